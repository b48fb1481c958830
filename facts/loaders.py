"""Taking rows in, chunk by chunk: at once, or behind the reader's back."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections

from facts.bundles import Row

TURN = 0.0005  # seconds that one thread may keep the other from the interpreter


class Loader:
    """Stores chunks of rows as they come."""

    def __init__(self, store: Callable[[Sequence[Row]], int]):
        self._store = store
        self.inserted = 0

    def take(self, rows: Sequence[Row]) -> None:
        self.inserted += self._store(rows)

    def settle(self) -> None:
        """Nothing is under way after this, and the connection is free."""


class _LoaderBehind(Loader):
    """Stores a chunk while the next one is read."""

    def __init__(self, store: Callable[[Sequence[Row]], int], thread: Executor):
        super().__init__(store)
        self._thread = thread
        self._under_way: Future[int] | None = None
        self._kept: deque[Sequence[Row]] = deque(maxlen=2)

    def take(self, rows: Sequence[Row]) -> None:
        tidy = sorted(set(rows))
        # Thousands of rows take their time to be let go of: here, while the database has others to store. The thread
        # that stores would do so between two chunks, when the database waits.
        self._kept.append(tidy)
        self.settle()
        self._under_way = self._thread.submit(self._store, tidy)

    def settle(self) -> None:
        if self._under_way is not None:
            stored, self._under_way = self._under_way, None
            self.inserted += stored.result()


@contextmanager
def loader_behind(store: Callable[[Sequence[Row]], int]) -> Iterator[Loader]:
    """For databases in a process of their own. Two threads have the connection, by turns; one load in a process."""
    mine = connections[DEFAULT_DB_ALIAS]
    mine.inc_thread_sharing()
    usual_turn = sys.getswitchinterval()
    sys.setswitchinterval(TURN)  # while the thread that stores waits for its turn, so does the database
    try:
        with ThreadPoolExecutor(1, initializer=connections.__setitem__, initargs=(DEFAULT_DB_ALIAS, mine)) as thread:
            loader = _LoaderBehind(store, thread)
            yield loader
            loader.settle()
    finally:
        sys.setswitchinterval(usual_turn)
        mine.dec_thread_sharing()
