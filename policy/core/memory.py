"""The memory of a process: caches of limited size, and the budget of a server.

The budget is what all requests of a process may use together, and decides which one is refused beyond it.

Three things are counted: rows that a query has fetched, as they arrive; what SQLite allocates for statements, while
they run; and large request bodies, from before they are read until they are answered. If the sum exceeds the budget,
the query that holds the most is refused, and the others go on. Bodies wait for room instead (`BodyAdmission`).

The counts are estimates on the high side: they include everything made from a row or a body until the response is sent.
Commands have no budget: `start` sets it, and only servers call that.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import gc
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from mmap import mmap
from pathlib import Path
from sys import getsizeof
from time import monotonic
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from policy.errors import TooLarge, Unavailable

log = logging.getLogger("authz.server")

MEGABYTE = 1_000_000
AT_ONCE = 100  # rows per fetch; each fetch is then counted
FEW = 20  # results this small are not counted
COPIES = 3  # of what was fetched: the rows, the result built from them, and its JSON
_SMALL = MEGABYTE  # a request that holds no more than this is never refused on account of others
LARGE = 8 * MEGABYTE  # after a request of this size, memory is returned to the system soon
TRIM_EVERY = 60.0  # seconds after which it is returned in any case
# Address space that must be free before something large is parsed or sent, and again after memory ran out. It is never
# touched, so it takes no physical memory. Granian's allocator maps 32 MiB at a time, aligned to that size.
SPARE = 64 * MEGABYTE
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3  # options of glibc's `mallopt`
_FOR_BODIES = 8  # bodies that are being read may use 1/_FOR_BODIES of the budget
_LEAST = 8  # 1/_LEAST of the budget is reserved for queries, however much bodies take
# Bytes that parsed JSON takes for each object, array, further element, and half a string (each has two quotes).
_OF_JSON = ((b"{", 190), (b"[", 72), (b",", 36), (b'"', 28))


class NeedsTooMuchMemory(TooLarge):
    """This request alone takes most of the budget."""

    def __init__(self, most: int):
        super().__init__(
            f"the request needs more memory than MEMORY_BUDGET allows ({most / MEGABYTE:,.0f} MB per process for "
            "all requests); ask for less at a time, or raise the limit"
        )


class MemoryInUse(Unavailable):
    """Several requests together exceed the budget, and this one holds the most."""

    def __init__(self) -> None:
        super().__init__("other requests are using all of MEMORY_BUDGET; try again")


class NoMemory(Unavailable):
    """The system would refuse the next allocation."""

    def __init__(self) -> None:
        super().__init__("out of memory; try again")


class Holding:
    """What one request holds, in bytes."""

    __slots__ = ("most", "refusal", "rows", "statement")

    def __init__(self) -> None:
        self.rows = 0
        self.statement = 0  # what SQLite has allocated since the statement was first checked
        self.most = 0  # the peak
        self.refusal: Callable[[], Exception] | None = None  # makes a new one each time: a reused error keeps frames

    @property
    def bytes(self) -> int:
        return self.rows + self.statement


class Budget:
    """Counts what requests hold. Its lock is held only briefly, and nothing is called while it is held."""

    def __init__(self, most: int = 0, allocated: Callable[[], int] | None = None):
        self.most = most  # 0 is no limit
        self._allocated = allocated or allocated_by_sqlite
        self._lock = threading.Lock()
        self._holdings: set[Holding] = set()  # those that hold something
        self._running: set[Holding] = set()  # those with a long-running SQLite statement
        self._rows = self._bodies = 0
        self._before = self._last = 0  # allocated by SQLite: when the first of `_running` began, and at the last check
        self._rooms: list[BodyAdmission] = []
        self._is_trim_due = False
        self._trimmed_at = monotonic()

    def count(self, holding: Holding, size: int) -> None:
        """Count fetched rows of this many bytes. Raise an error if the request is refused."""
        with self._lock:
            holding.rows += size
            self._rows += size
            self._holdings.add(holding)
            self._judge(holding)
        self.check(holding)

    def look(self, holding: Holding) -> None:
        """Count what SQLite has allocated since the last check for this statement. Raise an error if it is refused."""
        allocated = self._allocated()
        with self._lock:
            if not self._running:
                self._before = self._last = allocated
            self._running.add(holding)
            self._holdings.add(holding)
            holding.statement = max(0, holding.statement + allocated - self._last)
            self._last = allocated
            self._judge(holding)
        self.check(holding)

    def end_statement(self, holding: Holding) -> int:
        """Note that SQLite has freed the statement's memory, and return how much that was."""
        if holding not in self._running:
            return 0
        allocated, taken = self._allocated(), holding.statement
        with self._lock:
            self._running.discard(holding)
            holding.statement = 0
            self._last = allocated
        return taken

    def end(self, holding: Holding) -> None:
        """Release all that the request holds."""
        if holding not in self._holdings:
            return
        with self._lock:
            self._holdings.discard(holding)
            self._running.discard(holding)
            self._rows -= holding.rows
            holding.rows = holding.statement = 0
            self._is_trim_due |= holding.most >= LARGE
        self._admit()

    def check(self, holding: Holding) -> None:
        """Raise an error if the request was refused, perhaps by another thread."""
        if holding.refusal is not None:
            raise holding.refusal()

    @property
    def held(self) -> int:
        """Return the total that all requests hold."""
        return self._rows + self._bodies + self._of_statements

    def tick(self) -> None:
        """Time out waiting bodies, and return free memory to the system: periodically, and soon after a large request.

        Called several times a second, by a thread that handles no requests.
        """
        for room in self._rooms:
            room.expire()
        if self._is_trim_due or monotonic() - self._trimmed_at > TRIM_EVERY:
            self._is_trim_due = False
            trim()
            self._trimmed_at = monotonic()

    def trim_soon(self) -> None:
        """Return free memory to the system at the next `tick`."""
        self._is_trim_due = True

    @property
    def _of_statements(self) -> int:
        return max(0, self._last - self._before) if self._running else 0

    def _judge(self, holding: Holding) -> None:
        """If the budget is exceeded, refuse the request that holds the most, or else this one. The lock is held."""
        holding.most = max(holding.most, holding.bytes)
        questions = self._rows + self._of_statements
        if not self.most or questions <= max(self.most - self._bodies, self.most // _LEAST):
            return
        largest = max(self._holdings, key=lambda each: each.bytes)
        if largest not in self._running:  # it has fetched everything: too late to refuse
            largest = holding
        if largest.refusal is None and largest.bytes > _SMALL:
            is_alone = largest.bytes > self.most // 2
            largest.refusal = partial(NeedsTooMuchMemory, self.most) if is_alone else MemoryInUse

    # ---- bodies ------------------------------------------------------------------------------------------------

    def room_to_read(self) -> BodyAdmission:
        """Return a room for bodies that are being read."""
        return self._room(self.most // _FOR_BODIES)

    def room_to_parse(self) -> BodyAdmission:
        """Return a room for what is parsed from bodies that have been read."""
        return self._room(self.most)

    @property
    def is_awaited(self) -> bool:
        """Return whether bodies wait for room."""
        return any(room.is_awaited for room in self._rooms)

    def _room(self, most: int) -> BodyAdmission:
        self._rooms.insert(0, BodyAdmission(self, most))  # later rooms go first: what they admit has already been read
        return self._rooms[0]

    def _takes(self, size: int) -> bool:
        """Reserve this much for a body, and return whether it was free. The caller holds the room's lock."""
        with self._lock:
            if self.most and self._rows + self._of_statements + self._bodies + size > self.most:
                return False
            self._bodies += size
            return True

    def _take(self, size: int) -> None:
        with self._lock:
            self._bodies += size

    def _give(self, size: int) -> None:
        with self._lock:
            self._bodies -= size
            self._is_trim_due |= size >= LARGE
        self._admit()

    def _admit(self) -> None:
        for room in self._rooms:
            room.admit()


class Waiter(NamedTuple):
    size: int
    until: float
    begin: Callable[[], object]
    refuse: Callable[[], object]


class BodyAdmission:
    """An admission queue for bodies: admits them in order of arrival while they fit. A single one always fits."""

    def __init__(self, budget: Budget, most: int):
        self._budget, self._most = budget, most
        self._held = 0
        self._waiting: deque[Waiter] = deque()
        self._is_admitting = False
        self._lock = threading.Lock()

    def enter(self, size: int, begin: Callable[[], object], refuse: Callable[[], object], seconds: float) -> None:
        """Call `begin` once there is room, now or on another thread; call `refuse` after `seconds` (0: no timeout)."""
        with self._lock:
            must_wait = bool(self._waiting) or not self._takes(size)
            if must_wait:
                self._waiting.append(Waiter(size, monotonic() + (seconds or float("inf")), begin, refuse))
        if not must_wait:
            begin()

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def leave(self, size: int) -> None:
        with self._lock:
            self._held -= size
        self._budget._give(size)

    def admit(self) -> None:
        """Admit waiting bodies while they fit.

        What begins may leave this room or another one, which calls this again. It then returns, as does any other
        thread: the first call goes on. Otherwise, each body would begin inside of the one before it.
        """
        with self._lock:
            if self._is_admitting:
                return
            self._is_admitting = True
        while waiter := self._next():
            _call(waiter.begin)

    def _next(self) -> Waiter | None:
        """Remove and return the body to admit; None, which ends admitting, if none waits or the first does not fit."""
        with self._lock:
            if self._waiting and self._takes(self._waiting[0].size):
                return self._waiting.popleft()
            self._is_admitting = False
            return None

    def expire(self) -> None:
        """Refuse bodies that have waited too long."""
        now = monotonic()
        with self._lock:
            late = [each for each in self._waiting if each.until <= now]
            if late:
                self._waiting = deque([each for each in self._waiting if each.until > now])
        for each in late:
            _call(each.refuse)
        if late:
            self.admit()

    def _takes(self, size: int) -> bool:
        if self._held == 0:
            self._budget._take(size)
        elif (self._most and self._held + size > self._most) or not self._budget._takes(size):
            return False
        self._held += size
        return True


# ---- the process ---------------------------------------------------------------------------------------------------


def allocated_by_sqlite() -> int:
    """Return how many bytes SQLite has allocated in this process."""
    return _gauge()()


@cache
def _gauge() -> Callable[[], int]:
    """Return SQLite's own counter of allocated bytes or, failing that, one of the process's resident memory.

    The function is looked up in the driver's library, and so in the SQLite that the driver is linked to. Some builds of
    SQLite do not count: there it always returns 0.
    """
    with suppress(AttributeError, OSError):
        found = ctypes.PyDLL(getattr(_sqlite3, "__file__", None)).sqlite3_memory_used
        found.restype = ctypes.c_int64
        before = found()
        connection = sqlite3.connect(":memory:")
        is_counting = found() > before
        connection.close()
        if is_counting:
            return found
    return _resident


def _resident() -> int:
    """Return the process's resident memory; 0 if the system does not report it."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@cache
def _c_library() -> ctypes.CDLL | None:
    """Return glibc, which caches freed memory; None with another C library."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        if library.malloc_trim and library.mallopt:
            return library
    return None


def _prefer_to_return() -> None:
    """Make the C library cache less freed memory.

    By default, it has eight arenas per processor, and threads leave fragments in each. And once a large block has been
    freed, further blocks of that size are taken from arenas too.
    """
    if (library := _c_library()) is not None:
        library.mallopt(_ARENA_MAX, 2)
        library.mallopt(_MMAP_THRESHOLD, 1 << 18)


def trim() -> None:
    """Return memory to the system: collect reference cycles, and release what the C library has cached.

    By default, Python collects cycles so rarely (`gc.set_threshold` in `wsgi.py`) that those of hours accumulate, such
    as the garbage of compiling a policy. A collection takes milliseconds, since imported modules are frozen.
    """
    gc.collect()
    if (library := _c_library()) is not None:
        library.malloc_trim(0)


# ---- this process's budget ---------------------------------------------------------------------------------------


def _call(work: Callable[[], object]) -> None:
    """Run a callback of another request. Its errors must not affect this thread's request."""
    try:
        work()
    except BaseException:  # granian's exceptions do not all derive from Exception
        log.exception("request failed while waiting for memory")


budget = Budget()


def start(most: int, replace: Callable[[], object]) -> None:
    """Limit the requests of this process to `most` bytes in total; 0 is no limit. `replace` restarts the process.

    `replace` is called if memory runs out all the same, since any operation may then have stopped halfway.
    """
    global _replace, _reserve
    _replace = replace
    _reserve = mmap(-1, SPARE)
    budget.most = most
    _prefer_to_return()
    allocated_by_sqlite()  # locate SQLite now, not at the first long statement


def exhausted() -> None:
    """Handle an allocation failure: have this process replaced."""
    global _replace, _reserve
    replace, _replace = _replace, None
    _reserve = None
    if replace is not None:
        replace()


def demand(size: int) -> None:
    """Raise `NoMemory` unless the system would allocate this much memory now.

    For allocations of libraries that abort the process on failure: granian and orjson.
    """
    if size <= _SMALL:
        return
    try:
        bytes(size + SPARE)
    except MemoryError:
        budget.trim_soon()
        raise NoMemory from None


def demand_to_write() -> None:
    """Raise `NoMemory` unless there is memory for a response with the rows that this thread has read."""
    mine = _mine.holding
    if mine is not None:
        demand(mine.rows)  # which counts each row several times


_replace: Callable[[], object] | None = None
_reserve: mmap | None = None  # never touched; released when memory runs out, so that requests in flight can finish


# ---- the request of this thread ------------------------------------------------------------------------------------


class _RequestOfThread(threading.local):
    is_counted = False  # nothing is counted outside of requests
    holding: Holding | None = None  # set on first use: most requests need none


_mine = _RequestOfThread()


def begin_request() -> None:
    _mine.is_counted = budget.most > 0


def end_request() -> None:
    _mine.is_counted = False
    holding = _mine.holding
    if holding is not None:
        _mine.holding = None
        budget.end(holding)


def holding() -> Holding | None:
    """Return what this thread's request holds; None if nothing is counted."""
    if _mine.holding is None and _mine.is_counted:
        _mine.holding = Holding()
    return _mine.holding


def check() -> None:
    """Raise an error if this thread's request was refused."""
    mine = _mine.holding
    if mine is not None:
        budget.check(mine)


class Fetches(Protocol):
    def fetchmany(self, size: int, /) -> list[Any]: ...


def fetched(cursor: Fetches, overhead: int = 0) -> list[Any]:
    """Fetch all rows, counting them as they arrive, each as `overhead` bytes larger than it is."""
    rows = cursor.fetchmany(AT_ONCE)
    if len(rows) > FEW:
        count(rows, overhead)
    if len(rows) == AT_ONCE:
        while more := cursor.fetchmany(AT_ONCE):
            count(more, overhead)
            rows += more
    return rows


def count(rows: Sequence[tuple[Any, ...]], overhead: int = 0) -> None:
    """Count rows for this thread's request. Raise an error if it is refused."""
    if len(rows) > FEW and (mine := holding()) is not None:
        size = sum(map(getsizeof, rows)) + sum(map(getsizeof, chain.from_iterable(rows)))
        budget.count(mine, COPIES * size + overhead * len(rows))


def size_of_parsed(body: bytes) -> int:
    """Estimate how many bytes a body takes once it is parsed as JSON, including the body itself."""
    return len(body) + sum(body.count(character) * size for character, size in _OF_JSON)


# ---- caches -------------------------------------------------------------------------------------------------------
# Most hits take no lock, because most requests make two lookups that both hit.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache in two generations: once the newer one is full, it becomes the older one, and the older one is dropped.

    A value that is found in the older one moves to the newer one, so values in use stay. An LRU cache would move a
    value at each hit, which takes a lock, and needs more memory for each value than many of them take.
    """

    def __init__(self, most: int, weigh: Callable[[K, V], int] | None = None):
        """Limit the cache to `most` values or, with `weigh`, to keys and values of that total weight."""
        self._most, self._weigh = most, weigh or (lambda key, value: 1)
        self.newer: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self._weight = 0  # of the newer ones
        self._changing = threading.Lock()

    def get(self, key: K) -> V | None:
        found = self.newer.get(key)
        if found is None and key in self._older:
            with self._changing:
                found = self.newer.get(key)
                if found is None and (found := self._older.get(key)) is not None:
                    self._store(key, found)
        return found

    def store(self, key: K, value: V) -> None:
        """Store a value. It must not weigh more than the cache's capacity."""
        with self._changing:
            self._store(key, value)

    def drop(self, key: K) -> None:
        with self._changing:
            self._drop(key)

    def drop_all(self, is_meant: Callable[[K], bool]) -> None:
        """Drop the values of all keys for which `is_meant` returns true."""
        with self._changing:
            for key in [key for key in (*self.newer, *self._older) if is_meant(key)]:
                self._drop(key)

    def clear(self) -> None:
        with self._changing:
            self.newer, self._older, self._weight = {}, {}, 0

    def __len__(self) -> int:
        return len(self.newer) + len(self._older)

    def _store(self, key: K, value: V) -> None:
        weight = self._weigh(key, value)
        assert weight <= self._most, "a value has room"
        self._drop(key)
        if self._weight + weight > self._most / 2:
            self._older = self.newer if self._weight + weight <= self._most else {}
            self.newer, self._weight = {}, 0
        self.newer[key] = value
        self._weight += weight

    def _drop(self, key: K) -> None:
        self._older.pop(key, None)
        dropped = self.newer.pop(key, None)
        if dropped is not None:
            self._weight -= self._weigh(key, dropped)


def compact(json: bytes) -> bytes:
    """Return a copy to store: what orjson returns occupies its whole buffer, which has at least 4 kB."""
    return bytes(memoryview(json))
