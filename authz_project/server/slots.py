"""A bounded number of threads for work that takes its time."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from authz_project.server.line import Line
from policy import server_thread

log = logging.getLogger("authz.server")

LONG = 0.1  # seconds after which another thread may take a thread's slot
_TICK = 0.025  # seconds between checks for threads that have worked for long, while tasks wait

Task = tuple[Callable[..., None], tuple[object, ...]]
Inbox = SimpleQueue[Task]  # of one thread


class Slots:
    """Runs tasks on its `threads`, `at_once` of them at a time. Further tasks wait in line for a thread that is free.

    Threads that share the interpreter pass it on again and again: where each is done soon, that takes longer than one
    after the other. Of the idle threads, the one that worked last is used first: its data, and those of its
    connection's server process, are still in the processor's caches. So few clients keep few threads busy.

    A thread that has worked for long, or says that it takes longer than most (`policy/server_thread.py`), no longer
    counts: other threads take its slot meanwhile, up to `more` beyond `threads`. If no thread can be started, tasks
    wait for the threads that exist; if there are none, they are refused.
    """

    def __init__(self, threads: int, more: int = 0, at_once: int = 0):
        self.size = threads
        self._free = min(at_once or threads, threads)
        self._more = more + threads - self._free
        self._idle: list[Inbox] = []
        self._since: dict[Inbox, float] = {}  # when each thread that is at work began
        self._long: set[Inbox] = set()  # those of them that no longer count: others may have their slots
        self._waiting: deque[Task] = deque()
        self._line = Line(threads)
        self._lock = threading.Lock()
        self._is_full = threading.Event()
        threading.Thread(target=self._watch, name="long work", daemon=True).start()

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Return True at once, and have a thread do the work, which handles its own failures.

        Return False, and do nothing, where the line has been too long (see `Line`) or there is no thread at all.
        """
        with self._lock:
            if self._waiting and not self._line.takes(len(self._waiting)):
                return False
            self._waiting.append((work, arguments))
            self._begin()
            if not (self._since or self._idle):  # no thread at all
                self._waiting.clear()  # nothing but this: without threads, all before it were refused, too
                self._line.note(0)
                return False
            if self._waiting and not self._is_full.is_set():
                self._is_full.set()
        return True

    @property
    def is_crowded(self) -> bool:
        """Say whether `do` would refuse one more."""
        if not self._waiting:
            return False
        with self._lock:
            return not self._line.takes(len(self._waiting))

    @property
    def busy(self) -> int:
        """Return how many threads are at work."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """Return how many tasks wait in line."""
        return len(self._waiting)

    def _begin(self) -> None:
        """Give tasks in line to threads that are free. The caller holds the lock."""
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
        except RuntimeError as reason:  # the system gives no more; the next thread that is done takes from the line
            log.error("a thread to answer cannot be had: %s", reason)
            return None
        return inbox

    def _work(self, inbox: Inbox) -> None:
        server_thread.thread.give_up = partial(self._give_up, inbox)
        while True:
            _done(*inbox.get())  # no variable may keep the request while this waits: granian waits for its end
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
        """No longer count this thread, so that another one may take its slot. The caller holds the lock."""
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
    except BaseException:  # granian's own do not derive from Exception, and nobody else would log them
        log.exception("a request was not answered")
