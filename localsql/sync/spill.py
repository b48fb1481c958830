"""Differences, kept in a file until all patterns are compared: ids in the order in which they were found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import orjson

from localsql.sync.rows import Ids

EXAMPLES = 5


class Spill:
    """A file for the additions, or the deletions, of all patterns. It is gone once closed, or with its process."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the pass

    def close(self) -> None:
        self._file.close()

    def part(self) -> Part:
        """Return the next part; it must be written before another one is begun."""
        return Part(self._file, self._file.seek(0, 2))


@dataclass
class Part:
    """The part of one pattern."""

    _file: IO[bytes]
    start: int
    count: int = 0
    examples: tuple[Ids, ...] = ()

    def add(self, ids: Ids) -> None:
        self._file.write(orjson.dumps(ids, option=orjson.OPT_APPEND_NEWLINE))
        if self.count < EXAMPLES:
            self.examples = (*self.examples, ids)
        self.count += 1

    def batches(self, size: int) -> Iterator[list[Ids]]:
        place = self._file.seek(self.start)
        for begun in range(0, self.count, size):
            self._file.seek(place)
            lines = [self._file.readline() for _ in range(min(size, self.count - begun))]
            place = self._file.tell()
            yield [tuple(orjson.loads(line)) for line in lines]
