"""Compares the facts of one pattern with its rows.

The facts are read first. So an application that commits a row and then adds its fact, or deletes a row and then its
fact, is never contradicted by a comparison in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from localsql.sync.config import Pattern
from localsql.sync.rows import Ids, Read
from localsql.sync.sorting import OutOfOrder, brought_in_order, in_order
from localsql.sync.sources import can_sort, rows_of
from localsql.sync.spill import Part, Spill
from localsql.sync.stored import stored_ids
from policy.offsets import current_offset

_REPORT_EVERY = 4_096  # facts and rows

OnProgress = Callable[[int], None]  # called with how many facts and rows are done


@dataclass(frozen=True)
class Plan:
    """The changes that make a pattern's facts those of its rows."""

    pattern: Pattern
    equal: int
    added: Part
    deleted: Part
    read: Read
    revision: int  # the latest one when the comparison began

    @property
    def stored(self) -> int:
        return self.equal + self.deleted.count

    @property
    def is_in_step(self) -> bool:
        return not (self.added.count or self.deleted.count)


@dataclass
class Spills:
    added: Spill
    deleted: Spill


def compared(environment_id: int, pattern: Pattern, spills: Spills, skips_bad: bool, on_progress: OnProgress) -> Plan:
    if can_sort(pattern):
        try:
            return _compared(environment_id, pattern, spills, Read(pattern, skips_bad), on_progress, by_database=True)
        except OutOfOrder:  # as in an SQLite file whose texts are in UTF-16: its rows are sorted here instead
            pass
    return _compared(environment_id, pattern, spills, Read(pattern, skips_bad), on_progress, by_database=False)


def _compared(
    environment_id: int, pattern: Pattern, spills: Spills, read: Read, on_progress: OnProgress, by_database: bool
) -> Plan:
    added, deleted = spills.added.part(), spills.deleted.part()
    revision = current_offset(environment_id)
    with closing(stored_ids(environment_id, pattern.key)) as stored:
        first = next(stored, None)  # from the first one on, all are as of one moment
        with closing(rows_of(pattern, by_database)) as rows:
            ids = read.ids(rows)
            source = in_order(ids) if by_database else brought_in_order(ids)
            equal = _merged(first, stored, source, added, deleted, on_progress)
    return Plan(pattern, equal, added, deleted, read, revision)


def _merged(
    mine: Ids | None, stored: Iterator[Ids], source: Iterator[Ids], added: Part, deleted: Part, on_progress: OnProgress
) -> int:
    """Note what differs, and return how many are on both sides; `mine` is the first of the stored ones."""
    equal = steps = 0
    theirs = next(source, None)
    while mine is not None or theirs is not None:
        steps += 1
        if not steps % _REPORT_EVERY:
            on_progress(steps)
        if mine == theirs:
            equal += 1
            mine, theirs = next(stored, None), next(source, None)
        elif theirs is None or (mine is not None and mine < theirs):
            deleted.add(cast(Ids, mine))
            mine = next(stored, None)
        else:
            added.add(theirs)
            theirs = next(source, None)
    return equal
