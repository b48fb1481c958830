"""Boxes of answers: in each column one id, or every id but some. And whether several boxes hold all of another one.

    (bob, every id)   is held by   (every id, read)  and  (bob, every id but read)   together, and by neither alone
"""

from __future__ import annotations

from collections.abc import Iterable


class AllBut(frozenset[str]):
    """Every id but these."""


Cell = str | AllBut
Box = tuple[Cell, ...]


class Boxes:
    """Boxes, found by the ids that they have."""

    def __init__(self, boxes: Iterable[Box]):
        self._boxes = list(boxes)
        self._columns: dict[int, tuple[dict[str, list[Box]], list[Box]]] = {}

    def hold(self, box: Box) -> bool:
        """Say whether they hold all of the box together.

        If none holds it alone, it is split in a column where they differ: into a box for each id that they name or
        leave out, and one for all other ids.
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

    def _about(self, box: Box) -> list[Box]:
        """Return those that may have answers in common with the box: few, where it has an id."""
        found = self._boxes
        for index, cell in enumerate(box):
            if isinstance(cell, str):
                by_id, wide = self._column(index)
                found = min(found, [*by_id.get(cell, ()), *wide], key=len)
        return found

    def _column(self, index: int) -> tuple[dict[str, list[Box]], list[Box]]:
        """Return those with one id in the column, by that id, and those with many."""
        if index not in self._columns:
            by_id: dict[str, list[Box]] = {}
            wide = []
            for each in self._boxes:
                cell = each[index]
                if isinstance(cell, str):
                    by_id.setdefault(cell, []).append(each)
                else:
                    wide.append(each)
            self._columns[index] = by_id, wide
        return self._columns[index]


def _is_within(cell: Cell, other: Cell) -> bool:
    if isinstance(other, AllBut):
        return cell >= other if isinstance(cell, AllBut) else cell not in other
    return cell == other


def _has_common(cell: Cell, other: Cell) -> bool:
    if isinstance(cell, AllBut):
        return isinstance(other, AllBut) or other not in cell
    return _is_within(cell, other)
