"""Thread pools of a worker, and the admission queue that rejects requests under overload."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple, TypeVar

from django.db import DEFAULT_DB_ALIAS, Error, connections
from granian.rsgi import HTTPProtocol

from authz_project.copies import digest_of, keys_of
from authz_project.database import draining, let_go_if_broken, refresh_connection
from authz_project.route import Environ
from policy.core import journal
from policy.core.journal import thread
from policy.core.spaces import close_others, current, entered
from policy.core.threads import note_shortage, start_thread, thread_pool
from policy.endpoint import LongPoll

# ---- admission queue ----------------------------------------------------------------------------------------------
# Decides whether a request may wait in the queue, or is rejected and told to retry (backpressure).
#
# A queue that is only occasionally long is good: it absorbs bursts. A queue that was long for most of the last `BURST`
# seconds or so does not drain by itself, because the load exceeds the capacity. It only adds latency, not throughput.
# So from then on the queue is kept short for a while.
#
# After that, a long queue is tried again. If it soon fills up again, it is kept short for twice as long as before
# (exponential backoff). Only trying shows whether this is still needed, because rejected clients send fewer requests
# than they otherwise would. A queue that is sometimes empty shows nothing either: clients that wait for their
# responses come back in waves.

LINE_LENGTH = 16  # requests per thread: with two workers, a hundred clients that wait for responses do not fill it

T = TypeVar("T")
log = logging.getLogger("authz.server")
SHORT = 1  # requests per thread while the queue is kept short: latency stays within a few times a single request's
BURST = 1.0  # seconds for which a queue may be long before requests are rejected with a 503
LONGEST = 16  # times BURST: the longest time a queue is kept short before a long one is tried again
_MOST = 0.5  # share of the time


class WaitingLine:
    """The decision for one queue. It is not thread-safe: the owner holds a lock around each call."""

    def __init__(self, threads: int):
        self._long, self._short = LINE_LENGTH * threads, SHORT * threads
        self._is_long = False
        self._long_for = 0.0  # share of about the last `BURST` seconds in which the queue was long
        self._weighed_at = time.monotonic()
        self._kept_until = -math.inf  # until when the queue is kept short
        self._kept_for = 0.0  # seconds for which it was last kept short

    def note(self, waiting: int) -> None:
        """Record how many requests are waiting; to be called whenever that changes."""
        is_long = waiting >= self._long
        if is_long != self._is_long:
            self._weigh(time.monotonic())
            self._is_long = is_long

    def takes(self, waiting: int) -> bool:
        """Return whether one more may wait behind `waiting` others. Shorten the queue if it was long for too long."""
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
        """Update `_long_for`, an exponentially weighted moving average."""
        past = math.exp((self._weighed_at - now) / BURST)
        self._long_for = self._long_for * past + self._is_long * (1 - past)
        self._weighed_at = now


# ---- thread pool with extra threads for slow tasks ----------------------------------------------------------------


LONG = 0.1  # seconds after which another thread may take over a thread's slot
KNOWN_FIRST = 3  # tasks of known callers for each guest's
_TICK = 0.025  # seconds between checks for slow threads, while tasks wait

Task = tuple[Callable[..., object], tuple[object, ...]]
Inbox = SimpleQueue[Task]  # of one thread


class TaskQueue:
    """A queue of `CheckThreads`. `do` and `is_crowded` may be called by any thread; the rest, holding the lock."""

    def __init__(self, pool: CheckThreads, threads: int):
        self.tasks: deque[Task] = deque()
        self._pool, self._line = pool, WaitingLine(threads)

    def do(self, work: Callable[..., object], *arguments: object) -> bool:
        """Submit a task, which must handle its own errors, and return True without waiting for it.

        Return False, without queueing it, if the queue has been too long (see `WaitingLine`) or there is no thread at
        all.
        """
        return self._pool.submit(self, (work, arguments))

    @property
    def is_crowded(self) -> bool:
        """Return whether `do` would reject another task."""
        if not self.tasks:
            return False
        with self._pool.lock:
            return not self.takes_another()

    def takes_another(self) -> bool:
        return not self.tasks or self._line.takes(len(self.tasks))

    def note(self) -> None:
        """Record how many tasks wait; to be called whenever that changes."""
        self._line.note(len(self.tasks))


class CheckThreads:
    """A thread pool of `threads` threads that runs `at_once` tasks at a time. Further tasks wait in two queues.

    Requests with a known key wait in `known`, all others (pages, static files, unknown keys) in `guests`. While tasks
    wait in both, `KNOWN_FIRST` known ones run for each guest. So strangers cannot fill the queue of those who have a
    key, and pages open even if these keep all threads busy.

    For short tasks, switching between threads (GIL contention) takes longer than running them one after the other.
    The thread that became idle last is used first: its data, and those of its connection's server process, are still
    in the CPU caches. So a few clients keep only a few threads busy.

    A thread that has run for `LONG`, or declares itself slow (`policy/core/journal.py`), gives up its slot: up to
    `more` threads beyond `threads` run instead. If no thread can be started, tasks wait for the existing ones; if there
    are none, tasks are rejected.
    """

    def __init__(self, threads: int, more: int = 0, at_once: int = 0):
        self.size = threads
        self._free = min(at_once or threads, threads)
        self._more = more + threads - self._free
        self._idle: list[Inbox] = []
        self._since: dict[Inbox, float] = {}  # when each busy thread began its task
        self._long: set[Inbox] = set()  # the busy threads that have given up their slots
        self.lock = threading.Lock()
        self.known, self.guests = TaskQueue(self, threads), TaskQueue(self, threads)
        self._before_guest = KNOWN_FIRST  # tasks of known callers still to run before the next guest's
        self._is_full = threading.Event()
        start_thread("long work", self._watch)

    def submit(self, queue: TaskQueue, task: Task) -> bool:
        with self.lock:
            if not queue.takes_another():
                return False
            queue.tasks.append(task)
            self._begin()
            if not (self._since or self._idle):  # no thread at all
                queue.tasks.clear()  # only this task: without threads, all earlier ones were rejected, too
                queue.note()
                return False
            if self.waiting and not self._is_full.is_set():
                self._is_full.set()
        return True

    @property
    def busy(self) -> int:
        return len(self._since)

    @property
    def waiting(self) -> int:
        return len(self.known.tasks) + len(self.guests.tasks)

    def _begin(self) -> None:
        """Assign queued tasks to free threads. The caller holds the lock."""
        while self._free and (self.known.tasks or self.guests.tasks):
            inbox = self._idle.pop() if self._idle else self._new_thread()
            if inbox is None:
                break
            self._free -= 1
            self._since[inbox] = time.monotonic()
            inbox.put(self._next())
        self.known.note()
        self.guests.note()

    def _next(self) -> Task:
        """Remove and return the task to run next; there is one."""
        if not self.guests.tasks:
            return self.known.tasks.popleft()
        if self.known.tasks and self._before_guest:
            self._before_guest -= 1
            return self.known.tasks.popleft()
        self._before_guest = KNOWN_FIRST
        return self.guests.tasks.popleft()

    def _new_thread(self) -> Inbox | None:
        inbox: Inbox = SimpleQueue()
        try:
            start_thread("answers", self._work, inbox)
        except RuntimeError as reason:  # no more threads; the next one that finishes takes from the queue
            note_shortage(reason)
            return None
        return inbox

    def _work(self, inbox: Inbox) -> None:
        journal.thread.give_up = partial(self._give_up, inbox)
        while True:
            run_logged(*inbox.get())  # no variable may keep the request meanwhile: granian waits for its end
            with self.lock:
                del self._since[inbox]
                self._idle.append(inbox)
                if inbox in self._long:
                    self._long.remove(inbox)
                else:
                    self._free += 1
                self._begin()

    def _give_up(self, inbox: Inbox) -> None:
        with self.lock:
            self._pass_by(inbox)
            self._begin()

    def _pass_by(self, inbox: Inbox) -> None:
        """Take this thread's slot away, so that another one can use it. The caller holds the lock."""
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
        with self.lock:
            long_ago = time.monotonic() - LONG
            for inbox, since in self._since.items():
                if since < long_ago:
                    self._pass_by(inbox)
            self._begin()
            if not self.waiting:
                self._is_full.clear()


def run_logged(work: Callable[..., T], arguments: tuple[object, ...] = ()) -> T | None:
    """Run a task and return what it returns, or log its exception."""
    try:
        return work(*arguments)
    except BaseException:  # granian's exceptions do not all derive from Exception, and would not be logged
        log.exception("request failed")
        return None


# ---- changes ------------------------------------------------------------------------------------------------------
# A thread pool for requests that wait for commits, without holding up checks: small changes, and the change feed.


class ChangeThreads:
    """A thread pool with a queue as long as that of `counts_as` threads would be, since changes share commits.

    Its threads wait only for the database, so there is no deadlock: a task leaves its request to a commit under way.
    """

    def __init__(self, threads: int, counts_as: int = 16):
        self.size = threads
        self._here = 0  # requests in progress or in the queue
        self._lock = threading.Lock()
        self._line = WaitingLine(counts_as)
        self._threads = thread_pool(threads, "change", self._begin)
        _start_all(self._threads, threads)  # now: a thread that cannot start later would leave its task in the queue

    def do(self, work: Callable[..., object], *arguments: object) -> bool:
        """Submit a task, which must handle its own errors, and return True without waiting for it.

        Return False, without running it, if it is not taken. If the task returns False, its request has not ended yet,
        and `one_less` is called when it has.
        """
        with self._lock:
            if not self._line.takes(self.waiting):
                return False
            self._here += 1
            self._line.note(self.waiting)
        self._threads.submit(self._done, work, *arguments)
        return True

    def do_anyway(self, work: Callable[..., object], *arguments: object) -> None:
        """Submit a task of a request that was taken before."""
        self._threads.submit(run_logged, work, arguments)

    @property
    def is_crowded(self) -> bool:
        """Return whether `do` would reject another task."""
        with self._lock:
            return not self._line.takes(self.waiting)

    @property
    def busy(self) -> int:
        return min(self._here, self.size)

    @property
    def waiting(self) -> int:
        return max(0, self._here - self.size)

    def _done(self, work: Callable[..., object], *arguments: object) -> None:
        if run_logged(work, arguments) is not False:
            self.one_less()

    def one_less(self) -> None:
        with self._lock:
            self._here -= 1
            self._line.note(self.waiting)

    def _begin(self) -> None:
        thread.run = lambda work: self._threads.submit(run_logged, _run, (work, current()))


def _start_all(pool: ThreadPoolExecutor, threads: int) -> None:
    """Start all threads of the pool, which starts one for each task that finds none idle."""
    together = threading.Barrier(threads + 1)
    try:
        for _ in range(threads):
            pool.submit(together.wait)
        together.wait()
    except RuntimeError:  # release the others, or the process could not exit
        together.abort()
        raise


def _run(work: Callable[[Exception | None], T], space: str) -> T:
    """Call the work in the space, with the error if there is no connection to it, and return what it returns."""
    with ExitStack() as stack:
        failed = None
        try:
            stack.enter_context(entered(space))
            let_go_if_broken()
            refresh_connection()
        except Exception as error:
            failed = error
        try:
            return work(failed)
        finally:
            let_go_if_broken()


# ---- delayed rejections -------------------------------------------------------------------------------------------
# Clients that are rejected immediately retry immediately, so that the CPU does little but reject. Delaying the
# rejection leaves the CPU to the requests that are served.


KEPT_FOR = 0.2  # seconds
KEPT_AT_ONCE = 4096  # rejections; further ones are sent immediately
_REFUSAL_TICK = 0.02  # seconds between checks for due rejections

Send = Callable[[], None]  # sends one rejection


class DelayedRejections:
    """Delays each rejection by `KEPT_FOR` seconds. Its thread sleeps while there is none."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Send]] = deque()  # each with the time when it is due
        self._is_any = threading.Event()
        start_thread("refusals", self._watch)

    def send_later(self, send: Send) -> None:
        """Call `send` after `KEPT_FOR`, or immediately if too many are delayed already."""
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
        """Send those that are due. No variable may keep one afterwards: granian waits until nothing refers to it."""
        now = time.monotonic()
        while self._kept and self._kept[0][0] <= now:
            run_logged(self._kept.popleft()[1])


# ---- long polling -------------------------------------------------------------------------------------------------
# Requests that wait for changes, those of the change feed and of followers, have no thread: one thread looks for news
# for all of them, and has each answered again, from its start, once there is some.

NEWS_TICK = 0.1  # seconds between looks for revisions; those that this process commits are looked for at once
KEYS_TICK = 1.0  # seconds between looks for changed keys
UNUSED = 30.0  # seconds without a waiting request, after which the thread closes its connections

AnswerAgain = Callable[[Environ, HTTPProtocol], object]


class _WaitingPoll(NamedTuple):
    environ: Environ
    protocol: HTTPProtocol
    poll: LongPoll


def _keys_of(environment_id: int, space: str) -> str:
    with entered(space):
        return digest_of(keys_of(environment_id))


class LongPolls:
    """Up to `size` requests that wait, and the thread that looks for news; further ones are not taken."""

    waiting = 0  # none waits for a place

    def __init__(self, size: int, again: AnswerAgain):
        self.size = size
        self._again = again
        self._waiting: list[_WaitingPoll] = []
        self._news = threading.Condition()
        self._is_looking = self._is_told = False
        self._looked_at_keys = 0.0

    @property
    def busy(self) -> int:
        return len(self._waiting)

    def enter(self, protocol: HTTPProtocol, poll: LongPoll, environ: Environ) -> bool:
        """Let a request wait, and return True; return False if there is no place, or no time left."""
        with self._news:
            if len(self._waiting) >= self.size or time.monotonic() >= poll.until or draining.is_set():
                return False
            if not self._is_looking:
                start_thread("long polls", self._keep_looking)
                self._is_looking = True  # not set if no thread could be started: the next one tries again
                journal.commit_listeners.append(self.tell)
            self._waiting.append(_WaitingPoll(environ, protocol, poll))
            self._news.notify()
        return True

    def tell(self, environment_id: int) -> None:
        """Look for news at once if a request waits for this change, which was committed by this process."""
        if any(each.poll.environment_id == environment_id for each in self._waiting):
            with self._news:
                self._is_told = True
                self._news.notify()

    def _keep_looking(self) -> None:
        while True:
            self._pause()
            due = self._due()
            while due:  # no variable may keep a request: see `CheckThreads`
                run_logged(self._again, due.pop()[:2])

    def _pause(self) -> None:
        with self._news:
            while not self._news.wait_for(lambda: self._waiting, UNUSED):
                _disconnect()
            self._news.wait_for(lambda: self._is_told, NEWS_TICK)
            self._is_told = False

    def _due(self) -> list[_WaitingPoll]:
        """Remove and return those for whom there is news, who have waited for long enough, or whose wait is in vain."""
        with self._news:
            waiting = list(self._waiting)
        now, keys = time.monotonic(), {}
        try:
            let_go_if_broken()
            refresh_connection()
            offsets = journal.offsets_of({poll.environment_id: poll.space for _, _, poll in waiting})
            if now > self._looked_at_keys + KEYS_TICK:  # those whose space cannot be read are due anyway
                numbers = {poll.environment_id: poll.space for _, _, poll in waiting if poll.keys}
                keys = {number: _keys_of(number, space) for number, space in numbers.items() if number in offsets}
                self._looked_at_keys = now
            due = [
                each
                for each in waiting
                if now >= each.poll.until
                or offsets.get(each.poll.environment_id) != each.poll.offset
                or (each.poll.keys and keys.get(each.poll.environment_id, each.poll.keys) != each.poll.keys)
                or draining.is_set()
            ]
        except Exception:  # whatever it is, such as too little memory: their requests say what is wrong
            with suppress(Exception):
                close_others()  # one of them may be broken
            due = waiting
        taken = set(map(id, due))
        with self._news:
            self._waiting = [each for each in self._waiting if id(each) not in taken]
        return due


def _disconnect() -> None:
    with suppress(Error):
        close_others()
        connections[DEFAULT_DB_ALIAS].close()
