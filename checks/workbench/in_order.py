"""Reads answers with one column in order, as of one moment or two, a part at a time: however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from checks.asking import run
from checks.asking.question import Page, Question
from checks.asking.snapshot import Snapshot
from checks.engine.answers import Row
from checks.workbench.review import AccessState

ROWS = 1_000  # that are read at once
ONE_SECONDS = 5.0  # for a question about one actor, or one resource


class InOrder:
    """Reads the answers of a question with one column side by side, as of one moment or two, a part at a time."""

    def __init__(self, sides: Sequence[Snapshot], question: Question, of_another: Question, text: str):
        """`of_another` asks the same about a value that nothing mentions: if that holds, every value is an answer."""
        self.sides, self.question, self.text = sides, question, text
        self.every = [side.holds(of_another) for side in sides]

    def _read(self, side: Snapshot, page: Page) -> list[Row]:
        with run.limited(ONE_SECONDS):
            return side.page(self.question, page)

    def after(self, text: str | None) -> tuple[list[tuple[str, str | None]], str | None]:
        """Return the lines after an id, as (state, id or None for every value), and the last id that they reach.

        That last id is None if no line follows.
        """
        pages = [self._read(side, Page(ROWS, text or "", None, self.text)) for side in self.sides]
        lasts = [str(rows[-1][0]) for rows in pages if len(rows) >= ROWS]
        last = min(lasts) if lasts else None
        ids = [{str(row[0]) for row in rows if last is None or str(row[0]) <= last} for rows in pages]
        is_first = text is None
        return sorted(self._changes(ids, is_first), key=lambda line: line[1] or ""), last

    def _changes(self, ids: list[set[str]], is_first: bool) -> Iterator[tuple[str, str | None]]:
        if len(ids) == 1:
            states = [(AccessState.HAS, set() if self.every[0] else ids[0])]
            every = AccessState.HAS if self.every[0] else None
        else:
            was, now = self.every
            every = None if was == now else AccessState.LOST if was else AccessState.GAINED
            lost, gained = (AccessState.LOST, ids[0] - ids[1]), (AccessState.GAINED, ids[1] - ids[0])
            states = [lost, gained] if not (was or now) else []
            if every:  # every value was lost or gained, except the ids that the other side lists: they are kept
                states = [(AccessState.KEPT, ids[1] if was else ids[0])]
        if every and is_first:
            yield every, None
        for state, some in states:
            for each in some:
                yield state, each
