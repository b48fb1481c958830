"""The threads of a worker that answer requests, and when a request is refused instead."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project.database import let_go_if_broken, refresh_connection
from policy.ground import waking
from policy.ground.threads import note_shortage, start_thread, thread_pool
from policy.ground.waking import thread

# ---- line ---------------------------------------------------------------------------------------------------------
# Decides whether a request may wait in line, or is refused and told to retry (backpressure).
#
# A line that is long only now and then is good: it absorbs bursts. A line that was long for most of the last
# `BURST` seconds or so does not get shorter by itself, because more is asked than can be answered. A longer line
# only delays each answer; it does not raise their number. So from then on the line is kept short for a while.
#
# After that, a long line is tried again. If the line is long again soon, it is kept short for twice as long as
# before. Only trying shows whether this is still needed, because refused clients ask less than they would otherwise.
# A line that is empty now and then shows nothing either: clients that wait for their answers come back in waves.

LINE_LENGTH = (
    16  # requests for each thread: with two workers, a hundred clients that wait for answers make no long line
)

log = logging.getLogger("authz.server")
SHORT = 1  # requests, for each thread, in a line that is kept short: these take only a few times as long as one alone
BURST = 1.0  # seconds that a line may be long before requests are refused with a 503
LONGEST = 16  # times BURST: a line is kept short for so long at most, before a long one is tried again
_MOST = 0.5  # share of the time


class WaitingLine:
    """Decides this for one line. It takes no lock: its owner holds one around each call."""

    def __init__(self, threads: int):
        self._long, self._short = LINE_LENGTH * threads, SHORT * threads
        self._is_long = False
        self._long_for = 0.0  # share of the last `BURST` seconds, or so, in which the line was long
        self._weighed_at = time.monotonic()
        self._kept_until = -math.inf  # when the line is no longer kept short
        self._kept_for = 0.0  # seconds for which it was last kept short

    def note(self, waiting: int) -> None:
        """Take in how many requests wait; called whenever one has come or gone."""
        is_long = waiting >= self._long
        if is_long != self._is_long:
            self._weigh(time.monotonic())
            self._is_long = is_long

    def takes(self, waiting: int) -> bool:
        """Say whether one more may wait behind so many. Begin to keep the line short, if it was long for too long."""
        if waiting < self._short:
            return True
        now = time.monotonic()
        if now < self._kept_until:
            return False
        if waiting < self._long:
            return True
        is_tried = now < self._kept_until + self._kept_for
        self._weigh(now)
        if not is_tried and self._long_for < _MOST:
            return True
        longest = LONGEST * BURST
        self._kept_for = min(2 * self._kept_for, longest) if is_tried else BURST
        self._kept_until = now + self._kept_for
        return False

    def _weigh(self, now: float) -> None:
        """Update `_long_for`, an exponentially weighted average: what was longer ago counts for less."""
        past = math.exp((self._weighed_at - now) / BURST)
        self._long_for = self._long_for * past + self._is_long * (1 - past)
        self._weighed_at = now


# ---- A bounded number of threads for work that takes its time -----------------------------------------------------


LONG = 0.1  # seconds after which another thread may take a thread's slot
_TICK = 0.025  # seconds between checks for threads that have worked for long, while tasks wait

Task = tuple[Callable[..., None], tuple[object, ...]]
Inbox = SimpleQueue[Task]  # of one thread


class Slots:
    """Runs tasks on its `threads`, `at_once` of them at a time. Further tasks wait in line for a thread that is free.

    Threads that share the interpreter pass it on again and again: where each is done soon, that takes longer than one
    after the other. Of the idle threads, the one that worked last is used first: its data, and those of its
    connection's server process, are still in the processor's caches. So few clients keep few threads busy.

    A thread that has worked for long, or says that it takes longer than most (`policy/ground/waking.py`), no longer
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
        self._line = WaitingLine(threads)
        self._lock = threading.Lock()
        self._is_full = threading.Event()
        start_thread("long work", self._watch)

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Return True at once, and have a thread do the work, which handles its own failures.

        Return False, and do nothing, where the line has been too long (see `WaitingLine`) or there is no thread at all.
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
            start_thread("answers", self._work, inbox)
        except RuntimeError as reason:  # the system gives no more; the next thread that is done takes from the line
            note_shortage(reason)
            return None
        return inbox

    def _work(self, inbox: Inbox) -> None:
        waking.thread.give_up = partial(self._give_up, inbox)
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
                log.exception("cannot start extra threads for slow requests")

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
        log.exception("request failed")


# ---- changes ------------------------------------------------------------------------------------------------------
# Threads for small changes: these wait for one another's commits, and hold up no question meanwhile.


class ChangeThreads:
    """Two pools of threads: `waiting` threads with one request each, and `making` threads, which do the writing.

    A waiting thread keeps no connection. It hands what needs one to a making thread (`policy.ground.waking`).
    Making threads wait for nothing but the database, so the waiting always ends.
    """

    def __init__(self, waiting: int, making: int):
        self.size = waiting
        self._here = 0  # requests that are being answered, and those in line
        self._line = WaitingLine(waiting)
        self._counting = threading.Lock()
        self._waiting = thread_pool(waiting, "change", initializer=self.hand_on)
        self._making = thread_pool(making, "commit")
        _start_all(self._making, making)  # later, none might be had, while what it was to do stays in the queue

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Return True at once, and have a thread do the work, which handles its own failures.

        Return False, and do nothing, where the line has been too long (see `WaitingLine`) or no thread can be started.
        """
        with self._counting:
            if not self._line.takes(self.waiting):
                return False
            self._here += 1
            self._line.note(self.waiting)
        if handed(self._waiting, self._done, work, *arguments):
            return True
        self._one_less()
        return False

    @property
    def is_crowded(self) -> bool:
        """Say whether `do` would refuse one more."""
        with self._counting:
            return not self._line.takes(self.waiting)

    @property
    def busy(self) -> int:
        return min(self._here, self.size)

    @property
    def waiting(self) -> int:
        return max(0, self._here - self.size)

    def _done(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            done(work, *arguments)
        finally:
            self._one_less()

    def _one_less(self) -> None:
        with self._counting:
            self._here -= 1
            self._line.note(self.waiting)

    def hand_on(self) -> None:
        """Have this thread hand what needs a connection to a making thread, and wait for the result, from now on."""
        thread.hand_on = lambda change: self._making.submit(_made, change).result()


def _start_all(pool: ThreadPoolExecutor, threads: int) -> None:
    """Start all threads of the pool, which has one more for each task that finds none idle."""
    together = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(together.wait)
        together.wait()
    except RuntimeError:  # the others are not to wait, or the process could not end
        together.abort()
        raise


def handed(pool: ThreadPoolExecutor, work: Callable[..., None], *arguments: object) -> bool:
    """Give the work to the pool, and say whether it is done.

    The pool queues work before it starts a thread for it. If no thread can be started, the work stays in the queue, and
    a thread of the pool may still take it. So a lock decides: either that thread does the work, or it is never done.
    """
    mine = threading.Lock()  # taken by the thread that does the work, or by this one to say that it is not done

    def once() -> None:
        if mine.acquire(blocking=False):
            work(*arguments)

    try:
        pool.submit(once)
    except RuntimeError as reason:
        note_shortage(reason)
        return not mine.acquire(blocking=False)
    return True


def done(work: Callable[..., None], *arguments: object) -> None:
    try:
        work(*arguments)
    except BaseException:  # granian's own do not derive from Exception, and nobody else would log them
        log.exception("request failed")
    with suppress(Error):  # a request whose key had to be looked up has opened one
        connections[DEFAULT_DB_ALIAS].close()


def _made(change: Callable[[], Any]) -> Any:
    let_go_if_broken()
    refresh_connection()
    try:
        return change()
    finally:
        let_go_if_broken()


# ---- waiting ------------------------------------------------------------------------------------------------------
# Threads for requests that wait for changes: a few of their own, so that questions keep theirs.


class Waiting:
    """Lets `places` requests wait at once; further ones are answered without waiting.

    Its threads keep no connection: the making threads of `changes` read for them.
    """

    def __init__(self, places: int, changes: ChangeThreads):
        self.size = self._free = places
        self.waiting = 0  # for metrics: there is no line for a place
        self._lock = threading.Lock()
        self._threads = thread_pool(places, "wait", initializer=changes.hand_on)

    @property
    def busy(self) -> int:
        return self.size - self._free

    def do(self, work: Callable[..., None], *arguments: object) -> bool:
        """Have a thread do the work, and return True; return False if no place or no thread can be had."""
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
        if handed(self._threads, self._done, work, *arguments):
            return True
        self._one_more()
        return False

    def _done(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            done(work, *arguments)
        finally:
            self._one_more()

    def _one_more(self) -> None:
        with self._lock:
            self._free += 1


# ---- Sends refusals with a short delay, and several at a time -----------------------------------------------------
# A client that is refused at once retries at once, so that the processor does little but refuse. While a refusal is
# held back, the processor is free for the requests that are answered.


KEPT_FOR = 0.2  # seconds
KEPT_AT_ONCE = 4096  # refusals; further ones are sent at once
_REFUSAL_TICK = 0.02  # seconds between checks for refusals that are due

Send = Callable[[], None]  # sends one refusal


class HeldRefusals:
    """Holds each refusal back for `KEPT_FOR` seconds. Its thread sleeps while there is none."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Send]] = deque()  # each with the time when it is due
        self._is_any = threading.Event()
        start_thread("refusals", self._watch)

    def send_later(self, send: Send) -> None:
        """Call `send` a moment later; at once if too many are held back."""
        if len(self._kept) >= KEPT_AT_ONCE:
            send()
        else:
            self._kept.append((time.monotonic() + KEPT_FOR, send))
            self._is_any.set()

    def _watch(self) -> None:
        while self._is_any.wait():
            time.sleep(_REFUSAL_TICK)
            self._is_any.clear()
            self._send_those_due()
            if self._kept:
                self._is_any.set()

    def _send_those_due(self) -> None:
        """Call those that are due. No variable keeps one afterwards: granian waits until nothing refers to it."""
        now = time.monotonic()
        while self._kept and self._kept[0][0] <= now:
            try:
                self._kept.popleft()[1]()
            except BaseException:  # granian's own do not derive from Exception, and this thread must go on
                log.exception("request failed")
