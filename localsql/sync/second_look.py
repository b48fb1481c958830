"""Which of the facts that were just stored have no row any more.

A fact that is deleted while it is not stored yet leaves no trace here: an application that deletes a row, and tells the
service before a comparison has stored its fact, is told that there was nothing. So whoever stored facts reads their
rows again. A row that is deleted later is not missed: then its fact is there to be deleted.
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
    """Of those that the plan added."""
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
        for _ in source:  # to its end: what follows may show that it is not in order
            pass
    return gone
