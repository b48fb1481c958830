"""Says whether this process is ready, from a thread that has nothing else to do, and in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from authz_project.readiness import AWAY, DRAINING, Readiness, current, draining

log = logging.getLogger("authz.server")

WITHIN = 2.0  # seconds that the database has to answer
FRESH = 1.0  # seconds for which what was found counts for those who ask next
GIVEN_UP = 60.0  # seconds after which a look is not waited for any more, but another one begun
MOST = 10  # looks that do not end: after so many, nobody begins another

Told = Callable[[Readiness], None]


class Lookout:
    """Who asks is told by `told`, at once or within a bit more than two seconds, whatever the database does.

    One thread looks, on a connection of its own. If it hangs, so that nobody knows for how long, the other still tells.
    Both start when somebody asks.
    """

    def __init__(self, look: Callable[[], Readiness] = current):
        self._look_once = look
        self._inbox: SimpleQueue[Told] = SimpleQueue()
        self._is_started, self._starting = False, threading.Lock()
        self._lookers: list[_Looker] = []  # the last one is asked; those before hang
        self._look: Future[Readiness] | None = None  # the one under way
        self._begun = 0.0
        self._found, self._found_at = AWAY, float("-inf")

    def tell(self, told: Told) -> None:
        """Have it told; this thread goes on. `told` deals with its failures."""
        if not self._is_started:
            with self._starting:
                if not self._is_started:
                    threading.Thread(target=self._run, name="readiness", daemon=True).start()
                    self._is_started = True  # not before: where no thread can be had, the next who asks tries again
        self._inbox.put(told)  # last: who hears of a failure here is answered by its caller, and only once

    def _run(self) -> None:
        while True:
            _tell(self._inbox.get(), self._known())  # nothing of it is held here until the next: see `Slots`

    def _known(self) -> Readiness:
        if draining.is_set():
            return DRAINING
        if time.monotonic() - self._found_at > FRESH:
            self._found = self._looked()
            self._found_at = time.monotonic()
        return self._found

    def _looked(self) -> Readiness:
        try:
            if self._look is None or self._look.done() or self._is_given_up():
                self._begin()
        except RuntimeError:
            log.exception("not ready: no thread can be had to look at the database")
            return AWAY
        assert self._look is not None, "one is under way"
        try:
            return self._look.result(WITHIN)
        except TimeoutError:
            log.warning("not ready: the database has not answered for %d seconds", time.monotonic() - self._begun)
            return AWAY

    def _is_given_up(self) -> bool:
        if time.monotonic() - self._begun < GIVEN_UP:
            return False
        self._lookers = [each for each in self._lookers if each.is_alive]
        if len(self._lookers) >= MOST:
            return False
        another = _Looker(self._look_once)  # first: where no thread can be had, those before stay
        for each in self._lookers:
            each.dismiss()
        self._lookers.append(another)
        return True

    def _begin(self) -> None:
        if not self._lookers:
            self._lookers.append(_Looker(self._look_once))
        self._begun = time.monotonic()
        self._look = self._lookers[-1].look()


def _tell(told: Told, found: Readiness) -> None:
    try:
        told(found)
    except BaseException:  # granian's own are no Exceptions, and nobody is there to see them
        log.exception("a request was not answered")


class _Looker:
    """A thread that looks when it is asked to. One that hung ends once its look does."""

    def __init__(self, look: Callable[[], Readiness]):
        self._look = look
        self._asked: SimpleQueue[Future[Readiness]] = SimpleQueue()
        self._is_last = True
        self._thread = threading.Thread(target=self._run, name="look at the database", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def look(self) -> Future[Readiness]:
        found: Future[Readiness] = Future()
        self._asked.put(found)
        return found

    def dismiss(self) -> None:
        self._is_last = False

    def _run(self) -> None:
        while self._is_last:
            self._asked.get().set_result(self._look())
