"""Both sides in one order: that of the bytes of their ids, which is also Python's order of texts.

Rows that a database has sorted are checked as they come. Other rows are sorted here: in memory, or, if they are too
many, in files that are merged.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import IO

import orjson

from localsql.sync.rows import Ids

MOST_ROWS = 50_000  # in memory
MOST_CHARACTERS = 8_000_000
MOST_FILES = 64  # that are merged at once
_BUFFER = 1 << 15  # bytes of each


class OutOfOrder(Exception):
    """A database's order of texts is not that of their bytes."""


def in_order(rows: Iterable[Ids]) -> Iterator[Ids]:
    """Yield sorted rows, each once; raise `OutOfOrder` if they are not sorted."""
    last: Ids | None = None
    for row in rows:
        if last is not None and row <= last:
            if row == last:
                continue
            raise OutOfOrder
        last = row
        yield row


def brought_in_order(rows: Iterable[Ids], most_rows: int = MOST_ROWS) -> Iterator[Ids]:
    """Yield rows in order, each once, in whatever order they come."""
    rows = iter(rows)
    first = _part(rows, most_rows)
    second = _part(rows, most_rows)
    if not second:
        yield from first
        return
    with ExitStack() as files:
        runs = [_written(files, first), _written(files, second)]
        while part := _part(rows, most_rows):
            runs.append(_written(files, part))
            if len(runs) == MOST_FILES:
                runs = [_written(files, _merged(runs))]
        del first, second
        yield from _merged(runs)


def _part(rows: Iterator[Ids], most_rows: int) -> list[Ids]:
    """Return the next rows, as many as memory may hold, sorted and each once."""
    found: set[Ids] = set()
    characters = 0
    while len(found) < most_rows and characters < MOST_CHARACTERS:
        some = list(islice(rows, 1_000))
        if not some:
            break
        found.update(some)
        characters += sum([len(each) for row in some for each in row])
    return sorted(found)


def _merged(runs: list[IO[bytes]]) -> Iterator[Ids]:
    last: Ids | None = None
    for row in heapq.merge(*map(_read, runs)):
        if row != last:
            last = row
            yield row
    for run in runs:
        run.close()


def _written(files: ExitStack, rows: Iterable[Ids]) -> IO[bytes]:
    file = files.enter_context(tempfile.TemporaryFile(buffering=_BUFFER))  # noqa: SIM115  that closes it
    for row in rows:
        file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> Iterator[Ids]:
    for line in file:
        yield tuple(orjson.loads(line))
