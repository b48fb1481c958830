"""Finds facts that were just stored and have no row any more.

Suppose that an application deletes a row, and tells the service to delete its fact, before a comparison that has read
the row stores this fact. Nothing is there to be deleted yet, and the fact would stay. So the rows of facts that were
stored are read again. A row that is deleted after this is no problem: its fact is there to be deleted.
"""

from __future__ import annotations

from contextlib import closing, suppress

from localsql.sync.compare import Plan
from localsql.sync.rows import Read
from localsql.sync.sorting import OutOfOrder, brought_in_order, in_order
from localsql.sync.sources import can_sort, rows_of
from localsql.sync.spill import Part, Spill

_AT_ONCE = 5_000  # facts


def without_rows(plan: Plan, spill: Spill) -> Part:
    """Return those of the added facts that have no row any more."""
    if can_sort(plan.pattern):
        with suppress(OutOfOrder):
            return _without_rows(plan, spill.part(), by_database=True)
    return _without_rows(plan, spill.part(), by_database=False)


def _without_rows(plan: Plan, gone: Part, by_database: bool) -> Part:
    read = Read(plan.pattern, skips_bad=True)
    with closing(rows_of(plan.pattern, by_database)) as rows:
        ids = read.ids(rows)
        source = in_order(ids) if by_database else brought_in_order(ids)
        theirs = next(source, None)
        for batch in plan.added.batches(_AT_ONCE):
            for mine in batch:
                while theirs is not None and theirs < mine:
                    theirs = next(source, None)
                if theirs != mine:
                    gone.add(mine)
        for _ in source:  # to its end: later rows may show that it is not in order
            pass
    return gone
