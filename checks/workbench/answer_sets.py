"""Compares sets of answers in which None stands for every value.

old  (ann, d)        new  (None, d)        gained (None, d), except what was there before: (ann, d)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

from checks.engine.answers import Row


def missing(rows: Set[Row], other: Set[Row]) -> list[Row]:
    """Return the rows of the first set that no row of the second covers: (None, "b") covers ("a", "b")."""
    opened = _open_places(other)
    if not opened:
        return list(rows - other)
    return [row for row in rows - other if not any(_opened(row, places) in other for places in opened)]


def without_covered(rows: Set[Row]) -> set[Row]:
    """Return the rows without those that another of them covers: they say the same."""
    opened = _open_places(rows)
    if not opened:
        return set(rows)
    return {row for row in rows if not any(_opened(row, each) in rows and _opened(row, each) != row for each in opened)}


def exceptions(gained: Iterable[Row], other: Iterable[Row]) -> set[Row]:
    """Return what the gained rows with a None have in common with the other rows. The last column is never None.

    gained (None, d), other (ann, d) and (ben, e)   ->   (ann, d)
    """
    wild = [row for row in gained if None in row]
    if not wild:
        return set()
    by_last: dict[str | None, list[Row]] = defaultdict(list)
    for row in other:
        by_last[row[-1]].append(row)
    found = (met(row, each) for row in wild for each in by_last.get(row[-1], ()))
    return {each for each in found if each is not None}


def met(row: Row, other: Row) -> Row | None:
    """Return the row of what both rows cover, or None: (None, "b") and ("a", None) both cover ("a", "b")."""
    if any(mine != theirs and mine is not None and theirs is not None for mine, theirs in zip(row, other)):
        return None
    return tuple(theirs if mine is None else mine for mine, theirs in zip(row, other))


def collapsed(old: Set[Row], new: Set[Row], others: Set[str]) -> list[tuple[str, Row]]:
    """Return (state, row) for what one actor lost, gained and kept; a row is (action, resource).

    What was kept are the exceptions to lost and gained rows with a None. The actions in `others` have kinds of their
    own (see `AccessKind`), so they appear here only as such exceptions. They do not appear at all if they were lost or
    gained on every resource: their own kinds say then what was kept.
    """
    old, new = without_covered(old), without_covered(new)
    lost, gained = ([row for row in rows if row[0] not in others] for rows in (missing(old, new), missing(new, old)))
    kept = {each for row in lost if None in row for other in new if (each := met(row, other))}
    kept |= {each for row in gained if None in row for other in old if (each := met(row, other))}
    exempt = [row for row in without_covered(kept) if row[0] not in others or not _differs(row[0], old, new)]
    return [("lost", row) for row in lost] + [("gained", row) for row in gained] + [("kept", row) for row in exempt]


def _differs(action: str | None, old: Set[Row], new: Set[Row]) -> bool:
    was, now = (any((each, None) in rows for each in (action, None)) for rows in (old, new))
    return was != now


def _open_places(rows: Iterable[Row]) -> set[tuple[int, ...]]:
    """Return the sets of columns in which rows are None: few different ones, even of very many rows."""
    wild = [row for row in rows if None in row]
    return {tuple([place for place, text in enumerate(row) if text is None]) for row in wild}


def _opened(row: Row, places: tuple[int, ...]) -> Row:
    return tuple(None if place in places else text for place, text in enumerate(row))
