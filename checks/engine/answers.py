"""Rows of a statement -> answers. "Every value but some" is refused where no list can say it.

A row is a tuple of ids; None stands for every value of the column's type. An exit is guarded if negations withhold some
values from an answer that stands for every value. Its rows come with the outcome of the guards: one row for each id
that the guards can tell apart, and one with '' for all other ids.

    of one exit: ('',) granted                       ->  [(None,)]
    of one exit: ('',) granted, ('bob',) withheld    ->  CannotEnumerate, unless another row grants bob
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from checks.engine.errors import CannotEnumerate

Row = tuple[str | None, ...]
UNGUARDED = "0"  # in place of an exit's number


@dataclass
class _Exit:
    """What one guarded exit grants, and what its guards withhold; '' is any id that neither set mentions."""

    granted: set[Row] = field(default_factory=set)
    withheld: set[Row] = field(default_factory=set)

    def covers(self, row: Row) -> bool:
        if row in self.withheld:
            return False
        return row in self.granted or any("" in each and _is_under(row, each) for each in self.granted)


def answers_of(rows: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Return the distinct answers out of rows (exit, outcome, answer columns…)."""
    plain: set[Row] = set()
    exits: dict[str, _Exit] = {}
    for index, outcome, *columns in rows:
        row = tuple(columns)
        if index == UNGUARDED:
            plain.add(row)
        else:
            found = exits.setdefault(index, _Exit())
            (found.granted if outcome else found.withheld).add(row)
    answers = set(plain)
    for found in exits.values():
        found.withheld -= found.granted  # facts that grant a row are enough, even if others withhold it
    for found in exits.values():
        answers |= _answers_of_exit(found, plain, [other for other in exits.values() if other is not found])
    return list(answers)


def _answers_of_exit(found: _Exit, plain: set[Row], others: list[_Exit]) -> set[Row]:
    open_rows = [row for row in found.granted if "" in row]
    for row in open_rows:
        for kept_back in found.withheld:
            if _is_under(kept_back, row) and not _is_granted(kept_back, plain, others):
                raise CannotEnumerate(f"every value but some, such as `{_shown(kept_back, row)}`")
    closed = {row for row in found.granted if "" not in row and not any(_is_under(row, each) for each in open_rows)}
    return closed | {tuple(None if text == "" else text for text in row) for row in open_rows}


def _is_granted(row: Row, plain: set[Row], others: list[_Exit]) -> bool:
    return any(_is_under(row, each) for each in plain) or any(other.covers(row) for other in others)


def _is_under(row: Row, pattern: Row) -> bool:
    """Say whether the pattern covers the row: they are equal where the pattern has an id, and not None or ''."""
    return all(wanted in (None, "") or wanted == text for text, wanted in zip(row, pattern))


def _shown(row: Row, pattern: Row) -> str:
    return next(str(text) for text, wanted in zip(row, pattern) if wanted == "")
