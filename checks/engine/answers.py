"""Rows -> answers: what an answer column says, and whether "every value but some" can be said at all.

A row is a tuple of ids; None stands for every value of the column's type. Rows of a guarded exit come with the
outcome of its guards, for each id that they can tell apart and for one ('') that nothing mentions.
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
    """What one guarded exit grants and what its guards keep back; '' is any value that neither list mentions."""

    granted: set[Row] = field(default_factory=set)
    withheld: set[Row] = field(default_factory=set)

    def covers(self, row: Row) -> bool:
        if row in self.withheld:
            return False
        return row in self.granted or any("" in each and _is_under(row, each) for each in self.granted)


def answers_of(rows: Iterable[tuple[Any, ...]]) -> list[Row]:
    """The answers out of rows (exit, outcome, answer columns…)."""
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
        found.withheld -= found.granted  # one row of facts is enough, whatever others say
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
    """Whether the pattern says the row: equal, where the pattern does not stand for any value."""
    return all(wanted in (None, "") or wanted == text for text, wanted in zip(row, pattern))


def _shown(row: Row, pattern: Row) -> str:
    return next(str(text) for text, wanted in zip(row, pattern) if wanted == "")
