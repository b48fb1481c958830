"""A bounded number of threads for work that takes its time."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from policy.waiting import thread

log = logging.getLogger("authz.server")

Work = Callable[[], None]
Slot = AbstractContextManager  # entered by each thread that works there: what it needs for that


class Slots:
    """At most `count` threads are at work; what comes when all are waits in line, and whoever is done takes it up.

    Threads are not started here: one that brings work does it, if it may. So one more thread than there are slots is
    always free to look at what arrives. The exception are changes that come while another is made: `aside` threads
    more do them, and those have no slot while they wait for others' commits. The slot that was used last is used next.
    """

    def __init__(self, count: int, aside: int = 0, slot: Callable[[], Slot] = nullcontext):
        self.count = count
        self._free = [slot() for _ in range(count)]
        self._waiting: deque[Work] = deque()
        self._returning: deque[_Aside] = deque()  # threads that had a slot, or are to have one
        self._changes = 0
        self._aside = ThreadPoolExecutor(aside, "aside") if aside else None
        self._lock = threading.Lock()

    def do(self, work: Callable[..., None], *arguments: object) -> None:
        """Now, in this thread, or when there is a slot for it. Work deals with its failures; none may cost a slot."""
        with self._lock:
            if not self._free:
                self._waiting.append(partial(work, *arguments))
                return
            slot = self._free.pop()
        self._work(slot, partial(work, *arguments))

    def do_change(self, work: Callable[..., None], *arguments: object) -> None:
        """The same, for work that may wait for other work of its kind."""
        with self._lock:
            self._changes += 1
            is_first = self._changes == 1
        change = partial(self._change, partial(work, *arguments))
        if is_first or self._aside is None:
            self.do(change)
        else:
            self._aside.submit(self._do_aside, change)

    def _change(self, work: Work) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._changes -= 1

    def _work(self, slot: Slot, work: Work | None) -> None:
        """Until there is nothing more to do."""
        while work is not None:
            with slot:
                _do(work)
            work = self._next(slot)

    def _next(self, slot: Slot) -> Work | None:
        """What is to be done in the slot; or the slot goes to others."""
        with self._lock:
            if self._returning:
                self._returning.popleft().take(slot)
            elif self._waiting:
                return self._waiting.popleft()
            else:
                self._free.append(slot)
        return None

    # ---- threads aside ------------------------------------------------------------------------------------------

    def _do_aside(self, work: Work) -> None:
        thread.place = place = _Aside(self)
        try:
            place.come_back()
            _do(work)
            place.leave()
        finally:
            thread.place = None

    def give(self, slot: Slot) -> None:
        """What waits for a slot has one now, and needs a thread."""
        work = self._next(slot)
        if work is not None:
            self._aside.submit(self._work, slot, work)  # type: ignore[union-attr]  # who gives one is aside

    def await_turn(self, place: "_Aside") -> None:
        with self._lock:
            if self._free:
                place.take(self._free.pop())
            else:
                self._returning.append(place)


class _Aside:
    """A thread aside, which has a slot or waits for one."""

    def __init__(self, slots: Slots):
        self._slots = slots
        self._slot: Slot = nullcontext()
        self._taken = threading.Event()

    def take(self, slot: Slot) -> None:
        """Said by any thread."""
        self._slot = slot
        self._taken.set()

    def leave(self) -> None:
        if self._taken.is_set():
            self._taken.clear()
            self._slot.__exit__(None, None, None)
            self._slots.give(self._slot)

    def come_back(self) -> None:
        self._slots.await_turn(self)
        self._taken.wait()
        self._slot.__enter__()


def _do(work: Work) -> None:
    try:
        work()
    except BaseException:  # granian's own are no Exceptions, and nobody is there to see them
        log.exception("a request was not answered")
