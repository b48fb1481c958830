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


_ALL = _AllBut()
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


class _OpenRows:
    """Rows that an exit grants with '' in some columns."""

    def __init__(self, granted: Iterable[Row]):
        self.rows = {row for row in granted if "" in row}
        self._places = {tuple([text == "" for text in row]) for row in self.rows}  # few, even if the rows are many

    def above(self, row: Row) -> Row | None:
        """Return an open row that is the row itself but for '' in some columns."""
        opened = (tuple(["" if is_open else text for text, is_open in zip(row, places)]) for places in self._places)
        return next((each for each in opened if each in self.rows), None)


@dataclass
class _Exit:
    """What the guards of one exit grant, and what they withhold."""

    granted: set[Row] = field(default_factory=set)
    withheld: set[Row] = field(default_factory=set)

    def rows_granted(self) -> Iterator[_ExitRow]:
        return self._with_boxes(self.granted)

    def rows_kept_back(self) -> Iterator[tuple[_ExitRow, Row]]:
        """Yield what is withheld from an open row, with that row."""
        open_rows = _OpenRows(self.granted)
        for each in self._with_boxes(self.withheld):
            above = open_rows.above(each.row)
            if above is not None:
                yield each, above

    def answers(self) -> set[Row]:
        """Return what is granted, where nothing is kept back of it."""
        open_rows = _OpenRows(self.granted)
        closed = {row for row in self.granted if open_rows.above(row) is None}
        return closed | {tuple([text or None for text in row]) for row in open_rows.rows}

    def _with_boxes(self, rows: Iterable[Row]) -> Iterator[_ExitRow]:
        """Yield the rows: '' stands for every id but those that a row of this exit has in the column."""
        others = [_AllBut(filter(None, column)) for column in zip(*self.granted, *self.withheld)]
        return (_ExitRow(row, _box_of(row, others)) for row in rows)


def _box_of(row: Row, others: Sequence[_AllBut] = ()) -> Box:
    """Return the row's box. Without `others`, '' is an id that was asked about, and met by what is kept back of it."""
    opened = others or [_ALL] * len(row)
    return tuple([text or (_ALL if text is None else opened[index]) for index, text in enumerate(row)])


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
    rows = [_ExitRow(row, _box_of(row)) for row in plain]
    granted = _Granted([*rows, *(each for found in exits for each in found.rows_granted())])
    for withheld, open_row in kept_back:
        if not granted.has(withheld.box):
            raise CannotEnumerate(f"every value but some, such as `{_shown(withheld.row, open_row)}`")


class _Granted:
    """What some rows grant together."""

    def __init__(self, rows: list[_ExitRow]):
        self._rows = rows
        self._by_id: dict[int, tuple[dict[str, list[_ExitRow]], list[_ExitRow]]] = {}  # by column

    def has(self, box: Box) -> bool:
        """Say whether the rows grant all of the box.

        If no row grants all of it alone, it is split in a column where rows differ: into a box for each id that they
        name or leave out, and one for all other ids.
        """
        near = _Granted([each for each in self._about(box) if each.meets(box)])
        if any(each.covers(box) for each in near._rows):
            return True
        for index, cell in enumerate(box):
            if isinstance(cell, _AllBut):
                by_id, wide = near._in_column(index)
                ids = (by_id.keys() | frozenset().union(*(each.box[index] for each in wide))) - cell
                if ids:
                    before, after = box[:index], box[index + 1 :]
                    others = (*before, _AllBut(cell | ids), *after)
                    return near.has(others) and all(near.has((*before, text, *after)) for text in sorted(ids))
        return False

    def _about(self, box: Box) -> list[_ExitRow]:
        """Return the rows that may meet the box: there are few with the same id, where the box has one."""
        found = self._rows
        for index, cell in enumerate(box):
            if isinstance(cell, str):
                by_id, wide = self._in_column(index)
                mine = [*by_id.get(cell, ()), *wide]
                found = min(found, mine, key=len)
        return found

    def _in_column(self, index: int) -> tuple[dict[str, list[_ExitRow]], list[_ExitRow]]:
        """Return the rows with an id in the column, by that id, and those with more than one."""
        if index not in self._by_id:
            by_id: dict[str, list[_ExitRow]] = {}
            wide = []
            for each in self._rows:
                cell = each.box[index]
                if isinstance(cell, str):
                    by_id.setdefault(cell, []).append(each)
                else:
                    wide.append(each)
            self._by_id[index] = by_id, wide
        return self._by_id[index]


def _shown(row: Row, pattern: Row) -> str:
    """Return an id that the row has, and for which the pattern stands by ''."""
    return next(text for text, wanted in zip(row, pattern) if wanted == "" and text)
