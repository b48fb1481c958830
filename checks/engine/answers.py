"""Rows of a statement -> answers. "Every value but some" is refused where no list can say it.

A row is a tuple of ids; None stands for every value of the column's type. An exit is guarded if negations withhold some
values from an answer that stands for every value. Its rows come with the outcome of the guards: one row for each id
that the guards can tell apart, and one with '' for all other ids.

    of one exit: ('',) granted                       ->  [(None,)]
    of one exit: ('',) granted, ('bob',) withheld    ->  CannotEnumerate, unless other rows grant bob

What a row withholds may be many answers. Other rows must grant each of them, not just some:

    of one exit: ('', None) granted, ('bob', None) withheld; of another: (None, '') granted, (None, 'reader') withheld
    ->  CannotEnumerate: no row grants ('bob', 'reader')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from checks.engine.errors import CannotEnumerate

Row = tuple[str | None, ...]
UNGUARDED = "0"  # in place of an exit's number


class _AllBut(frozenset[str]):
    """Every id but these."""


Cell = str | _AllBut
Box = tuple[Cell, ...]  # all answers that have one of these ids in each column


class _ExitRow(NamedTuple):
    """A row, and the answers that it stands for."""

    row: Row
    box: Box

    def covers(self, box: Box) -> bool:
        """Say whether all of the box is in the row's."""
        return all(map(_is_within, box, self.box))

    def meets(self, box: Box) -> bool:
        """Say whether the box has answers in common with the row's."""
        return all(map(_has_common, box, self.box))


def _is_within(cell: Cell, other: Cell) -> bool:
    match cell, other:
        case _AllBut(), _AllBut():
            return cell >= other
        case str(), _AllBut():
            return cell not in other
    return cell == other


def _has_common(cell: Cell, other: Cell) -> bool:
    if isinstance(cell, _AllBut):
        return isinstance(other, _AllBut) or other not in cell
    return _is_within(cell, other)


@dataclass
class _Exit:
    """What the guards of one exit grant, and what they withhold."""

    granted: set[Row] = field(default_factory=set)
    withheld: set[Row] = field(default_factory=set)

    def rows_granted(self) -> Iterator[_ExitRow]:
        return self._with_boxes(self.granted)

    def rows_kept_back(self) -> Iterator[tuple[_ExitRow, Row]]:
        """Yield what is withheld from a row that is granted, with that row."""
        open_rows = self._open_rows()
        for each in self._with_boxes(self.withheld):
            granted = next((pattern for pattern in open_rows if _is_under(each.row, pattern)), None)
            if granted is not None:
                yield each, granted

    def answers(self) -> set[Row]:
        """Return what is granted, where nothing is kept back of it."""
        open_rows = self._open_rows()
        closed = {row for row in self.granted if not any(_is_under(row, each) for each in open_rows)}
        return closed | {tuple([text or None for text in row]) for row in open_rows}

    def _open_rows(self) -> list[Row]:
        return [row for row in self.granted if "" in row]

    def _with_boxes(self, rows: Iterable[Row]) -> Iterator[_ExitRow]:
        """Yield the rows: '' stands for every id but those that a row of this exit has in the column."""
        named = [frozenset(filter(None, column)) for column in zip(*self.granted, *self.withheld)]
        return (_ExitRow(row, _box_of(row, named)) for row in rows)


def _box_of(row: Row, named: Sequence[frozenset[str]] = ()) -> Box:
    return tuple([text or _AllBut(() if text is None else named[index]) for index, text in enumerate(row)])


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
    for found in exits.values():
        found.withheld -= found.granted  # facts that grant a row are enough, even if others withhold it
    _check_that_nothing_is_kept_back(plain, list(exits.values()))
    return list(plain.union(*(found.answers() for found in exits.values())))


def _check_that_nothing_is_kept_back(plain: set[Row], exits: list[_Exit]) -> None:
    """Refuse an answer of every value but some: what one row keeps back and no other rows grant."""
    kept_back = [each for found in exits for each in found.rows_kept_back()]
    if not kept_back:
        return
    granted = [_ExitRow(row, _box_of(row)) for row in plain]
    granted += [each for found in exits for each in found.rows_granted()]
    single = {each.row for each in granted if all(each.row)}
    wide = [each for each in granted if not all(each.row)]
    for withheld, open_row in kept_back:
        if withheld.row in single or any(each.covers(withheld.box) for each in wide):
            continue
        if all(withheld.row) or not _is_granted(withheld.box, granted):
            raise CannotEnumerate(f"every value but some, such as `{_shown(withheld.row, open_row)}`")


def _is_granted(box: Box, rows: list[_ExitRow]) -> bool:
    """Say whether the rows together grant all of the box.

    If no row grants all of it alone, it is split in a column where rows differ: into a box for each id that they name
    or leave out, and one for all other ids.
    """
    near = [each for each in rows if each.meets(box)]
    if any(each.covers(box) for each in near):
        return True
    for index, cell in enumerate(box):
        if isinstance(cell, _AllBut):
            mine = [each.box[index] for each in near]
            ids = frozenset().union(*({each} if isinstance(each, str) else each for each in mine)) - cell
            if ids:
                parts: list[Cell] = [_AllBut(cell | ids), *sorted(ids)]
                return all(_is_granted((*box[:index], part, *box[index + 1 :]), near) for part in parts)
    return False


def _is_under(row: Row, pattern: Row) -> bool:
    """Say whether the pattern has the row's ids, or stands for them by None or ''."""
    return all(wanted in (None, "") or wanted == text for text, wanted in zip(row, pattern))


def _shown(row: Row, pattern: Row) -> str:
    """Return an id that the row has, and for which the pattern stands by ''."""
    return next(text for text, wanted in zip(row, pattern) if wanted == "" and text)
