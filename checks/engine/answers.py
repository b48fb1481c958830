"""Turn the rows of a statement into answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from checks.errors import CannotEnumerate

# ---- boxes --------------------------------------------------------------------------------------------------------
# Boxes of answers: in each column one id, or all ids with exceptions. Can several boxes together cover another one?
#
# (bob, every id)   is covered by   (every id, read)  and  (bob, every id but read)   together, and by neither alone


class AllBut(frozenset[str]):
    """All ids except these."""


AnswerCell = str | AllBut
AnswerBox = tuple[AnswerCell, ...]


class Boxes:
    """A set of boxes, indexed by id."""

    def __init__(self, boxes: Iterable[AnswerBox]):
        self._boxes = list(boxes)
        self._columns: dict[int, tuple[dict[str, list[AnswerBox]], list[AnswerBox]]] = {}

    def hold(self, box: AnswerBox) -> bool:
        """Return whether the boxes together cover all of `box`.

        If no single one does, `box` is split along a column in which they differ: into a box for each id that they name
        or exclude, and one for all other ids.
        """
        near = Boxes(each for each in self._about(box) if all(map(_has_common, box, each)))
        if any(all(map(_is_within, box, each)) for each in near._boxes):
            return True
        for index, cell in enumerate(box):
            if isinstance(cell, AllBut):
                by_id, wide = near._column(index)
                ids = (by_id.keys() | frozenset().union(*(each[index] for each in wide))) - cell
                if ids:
                    before, after = box[:index], box[index + 1 :]
                    others = (*before, AllBut(cell | ids), *after)
                    return near.hold(others) and all(near.hold((*before, text, *after)) for text in sorted(ids))
        return False

    def _about(self, box: AnswerBox) -> list[AnswerBox]:
        """Return the boxes that may overlap with `box`: few, if it names an id."""
        found = self._boxes
        for index, cell in enumerate(box):
            if isinstance(cell, str):
                by_id, wide = self._column(index)
                found = min(found, [*by_id.get(cell, ()), *wide], key=len)
        return found

    def _column(self, index: int) -> tuple[dict[str, list[AnswerBox]], list[AnswerBox]]:
        """Return the boxes with one id in the column, by that id, and those with many."""
        if index not in self._columns:
            by_id: dict[str, list[AnswerBox]] = {}
            wide = []
            for each in self._boxes:
                cell = each[index]
                if isinstance(cell, str):
                    by_id.setdefault(cell, []).append(each)
                else:
                    wide.append(each)
            self._columns[index] = by_id, wide
        return self._columns[index]


def _is_within(cell: AnswerCell, other: AnswerCell) -> bool:
    if isinstance(other, AllBut):
        return cell >= other if isinstance(cell, AllBut) else cell not in other
    return cell == other


def _has_common(cell: AnswerCell, other: AnswerCell) -> bool:
    if isinstance(cell, AllBut):
        return isinstance(other, AllBut) or other not in cell
    return _is_within(cell, other)


# ---- answers ------------------------------------------------------------------------------------------------------
# Rows of a statement -> answers. "Every value but some" is rejected, since a list cannot express it.
#
# A row is a tuple of ids; None stands for every value of the column's type. An exit is guarded if negations withhold
# some values from an answer that stands for every value. Its rows come with the result of the guards: one row for each
# id that the guards can tell apart, and one with '' for all other ids.
#
#     of one exit: ('',) granted                       ->  [(None,)]
#     of one exit: ('',) granted, ('bob',) withheld    ->  CannotEnumerate, unless other rows grant bob
#
# What a row withholds may be many answers. Other rows must grant each of them, not just some:
#
#     of one exit: ('', None) granted, ('bob', None) withheld; of another: (None, '') granted, (None, 'reader') withheld
#     ->  CannotEnumerate: no row grants ('bob', 'reader')

AnswerRow = tuple[str | None, ...]
UNGUARDED = "0"  # in place of an exit's number, in rows without guards
GROUNDED = "-"  # in place of the number of an exit whose rows may contain placeholder ids (see `Grounding`)
# Ids that no fact can have. A question's plan reads them to stand for all values that nothing mentions.
FRESH_ID, SECOND_FRESH = "", "*" * 600
_STAND_INS = {FRESH_ID, SECOND_FRESH}
_ALL = AllBut()


def answers_of(rows: Iterable[tuple[Any, ...]]) -> list[AnswerRow]:
    """Return the distinct answers in rows of the form (exit, outcome, answer columns…)."""
    plain: set[AnswerRow] = set()
    stand_ins: set[AnswerRow] = set()
    exits: dict[str, _Exit] = {}
    for index, outcome, *columns in rows:
        row = tuple(columns)
        if index == GROUNDED and not _STAND_INS.isdisjoint(row):
            stand_ins.add(row)
        elif index in (UNGUARDED, GROUNDED):
            plain.add(row)
        else:
            found = exits.setdefault(index, _Exit())
            (found.granted if outcome else found.withheld).add(row)
    for row in stand_ins:
        if tuple([None if text in _STAND_INS else text for text in row]) not in plain:
            raise CannotEnumerate("all values except some")
    for found in exits.values():
        found.withheld -= found.granted  # a fact that grants a row is enough, even if others withhold it
    _check_that_nothing_is_kept_back(plain, list(exits.values()))
    return list(plain.union(*(found.answers() for found in exits.values())))


def _check_that_nothing_is_kept_back(plain: set[AnswerRow], exits: list[_Exit]) -> None:
    """Raise `CannotEnumerate` if a row withholds an answer that no other row grants."""
    kept_back = [each for found in exits for each in found.kept_back()]
    if not kept_back:
        return
    # Without guards, '' only occurs if the question was about an id that nothing mentions.
    boxes = list(_boxes(plain, plain.union(*(found.rows for found in exits))))
    granted = Boxes([*boxes, *(box for found in exits for box in _boxes(found.granted, found.rows))])
    for box, example in kept_back:
        if not granted.hold(box):
            raise CannotEnumerate(f"all values except some, such as `{example}`")


def _boxes(rows: Iterable[AnswerRow], among: Iterable[AnswerRow]) -> Iterator[AnswerBox]:
    """Yield the answers that rows stand for: '' is all ids except those in the same column of `among`."""
    others = [AllBut(filter(None, column)) for column in zip(*among)]
    for row in rows:
        yield tuple([text or (_ALL if text is None else others[index]) for index, text in enumerate(row)])


@dataclass
class _Exit:
    """What the guards of one exit grant, and what they withhold."""

    granted: set[AnswerRow] = field(default_factory=set)
    withheld: set[AnswerRow] = field(default_factory=set)

    @property
    def rows(self) -> set[AnswerRow]:
        return self.granted | self.withheld

    def answers(self) -> set[AnswerRow]:
        """Return the granted rows from which nothing is withheld."""
        open_rows = _OpenRows(self.granted)
        closed = {row for row in self.granted if open_rows.above(row) is None}
        return closed | {tuple([text or None for text in row]) for row in open_rows.rows}

    def kept_back(self) -> Iterator[tuple[AnswerBox, str]]:
        """Yield what is withheld from an open row, with an example of a withheld id."""
        open_rows = _OpenRows(self.granted)
        kept = [(row, above) for row in self.withheld if (above := open_rows.above(row)) is not None]
        for (row, above), box in zip(kept, _boxes((row for row, _ in kept), self.rows)):
            yield box, next(text for text, opened in zip(row, above) if opened == "" and text)


class _OpenRows:
    """Rows that an exit grants with '' in some columns."""

    def __init__(self, granted: Iterable[AnswerRow]):
        self.rows = {row for row in granted if "" in row}
        self._places = {tuple([text == "" for text in row]) for row in self.rows}  # few, even if there are many rows

    def above(self, row: AnswerRow) -> AnswerRow | None:
        """Return an open row that equals `row` except for '' in some columns."""
        opened = (tuple(["" if is_open else text for text, is_open in zip(row, places)]) for places in self._places)
        return next((each for each in opened if each in self.rows), None)
