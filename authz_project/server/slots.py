"""A bounded number of threads for work that takes its time."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from authz_project.server.line import Line
from policy import places

log = logging.getLogger("authz.server")

LONG = 0.1  # seconds, after which work does not keep others from theirs
_TICK = 0.025  # seconds between looks at who has been at work for long, while others wait

Task = tuple[Callable[..., None], tuple[object, ...]]
Inbox = SimpleQueue[Task]  # of one thread


class Slots:
    """Of its `threads`, `at_once` are at work; what comes then waits in line, and whoever is done takes it up.

    Threads that have the interpreter by turns hand it over again and again: where each is done soon, that takes longer
    than one after the other. Of those that are idle, the one that worked last is the next: what it needs, and what its
    connection's process needs, is still in the processor's caches. So few clients keep few threads busy.

    Whoever has been at work for long, or says that it takes longer than most, does not count: the other threads, and up
    to `more`, take their places meanwhile. Where no thread can be had, work waits for those that there are; where there
    are none, it is not done.
    """

    def __init__(self, threads: int, more: int = 0, at_once: int = 0):
        self.size = threads
        self._free = min(at_once or threads, threads)
        self._more = more + threads - self._free
        self._idle: list[Inbox] = []
        self._since: dict[Inbox, float] = {}  # when those began that are at work
        self._long: set[Inbox] = set()  # of those, whose places others have
        self._waiting: deque[Task] = deque()
        self._line = Line(threads)
        self._lock = threading.Lock()
        self._is_full = threading.Event()
        threading.Thread(target=self._watch, name="long work", daemon=True).start()

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """As soon as there is a thread for it; this one goes on. Work deals with its failures; none may cost a slot.

        It is not done, and False, where too many wait for too long: see `Line`.
        """
        with self._lock:
            if self._waiting and not self._line.takes(len(self._waiting)):
                return False
            self._waiting.append((work, arguments))
            self._begin()
            if not (self._since or self._idle):  # no thread at all
                self._waiting.clear()  # it is the only one: all before it were refused, too
                self._line.note(0)
                return False
            if self._waiting and not self._is_full.is_set():
                self._is_full.set()
        return True

    @property
    def is_crowded(self) -> bool:
        """Whether one more would not be done."""
        if not self._waiting:
            return False
        with self._lock:
            return not self._line.takes(len(self._waiting))

    @property
    def busy(self) -> int:
        """How many threads are at work."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many that are not begun."""
        return len(self._waiting)

    def _begin(self) -> None:
        """Give what waits to threads that are free. The lock is held."""
        while self._waiting and self._free:
            inbox = self._idle.pop() if self._idle else self._new_thread()
            if inbox is None:
                break
            self._free -= 1
            self._since[inbox] = time.monotonic()
            inbox.put(self._waiting.popleft())
        self._line.note(len(self._waiting))

    def _new_thread(self) -> Inbox | None:
        inbox: Inbox = SimpleQueue()
        try:
            threading.Thread(target=self._work, args=(inbox,), name="answers", daemon=True).start()
        except RuntimeError as reason:  # the system gives no more; whoever is done next looks again
            log.error("a thread to answer cannot be had: %s", reason)
            return None
        return inbox

    def _work(self, inbox: Inbox) -> None:
        places.thread.give_up = partial(self._give_up, inbox)
        while True:
            _done(*inbox.get())  # nothing of it may be held here until the next: granian waits for its end
            with self._lock:
                del self._since[inbox]
                self._idle.append(inbox)
                if inbox in self._long:
                    self._long.remove(inbox)
                else:
                    self._free += 1
                self._begin()

    def _give_up(self, inbox: Inbox) -> None:
        with self._lock:
            self._pass_by(inbox)
            self._begin()

    def _pass_by(self, inbox: Inbox) -> None:
        """Have another thread take the place. The lock is held."""
        if inbox not in self._long and len(self._long) < self._more:
            self._long.add(inbox)
            self._free += 1

    def _watch(self) -> None:
        while self._is_full.wait():
            time.sleep(_TICK)
            try:
                self._pass_by_what_is_long()
            except Exception:
                log.exception("who has been at work for long was not passed by")

    def _pass_by_what_is_long(self) -> None:
        with self._lock:
            long_ago = time.monotonic() - LONG
            for inbox, since in self._since.items():
                if since < long_ago:
                    self._pass_by(inbox)
            self._begin()
            if not self._waiting:
                self._is_full.clear()


def _done(work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    try:
        work(*arguments)
    except BaseException:  # granian's own are no Exceptions, and nobody is there to see them
        log.exception("a request was not answered")
