"""Rows -> ids of facts, checked as those that a client sends; rows that are no facts are counted and reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from facts.wire import MAX_ID_BYTES, id_from_json
from localsql.sync.config import Pattern
from localsql.sync.errors import PatternRefused, shown
from localsql.sync.sources.row import Row
from policy.errors import MalformedRequest
from policy.values import BOOLEAN, INTEGER

Ids = tuple[str, ...]  # of the pattern's variables

ENOUGH = 100  # wrong rows that are listed; reading ends with the next one, unless they are skipped
_SHOWN = 60  # characters of a wrong id
_SHORT = MAX_ID_BYTES // 4  # characters that are never more bytes than an id may have


@dataclass
class Read:
    """What became of a pattern's rows."""

    pattern: Pattern
    skips_bad: bool
    rows: int = 0
    nulls: int = 0  # rows with a NULL: they are no facts
    bad_count: int = 0
    bad: list[str] = field(default_factory=list)  # the first of them

    def ids(self, rows: Iterable[Row]) -> Iterator[Ids]:
        """Yield the ids of the rows that are facts; () for each row of a pattern without variables."""
        types = [self.pattern.key.signature.types[index] for index in self._columns]
        is_plain, has_columns = INTEGER not in types and BOOLEAN not in types, bool(types)
        for row in rows:
            self.rows += 1
            if None in row:
                self.nulls += 1
                continue
            if not has_columns:
                yield ()
                continue
            text = "".join(row)  # type: ignore[arg-type]  # none of them is None
            plain = is_plain and len(text) <= _SHORT and text.isascii() and "\0" not in text
            if (plain and "" not in row and "*" not in row) or self._are_ids(types, row):
                yield row  # type: ignore[misc]  # likewise

    @property
    def has_facts(self) -> bool:
        return self.rows > self.nulls + self.bad_count

    @property
    def _columns(self) -> list[int]:
        return [index for index, constant in enumerate(self.pattern.key.constants) if constant is None]

    def _are_ids(self, types: list[str], row: Row) -> bool:
        for type_name, text in zip(types, row):
            try:
                written = id_from_json(type_name, text, "id")
            except MalformedRequest as error:
                self._refuse(row, error.message)
                return False
            if written != text:
                self._refuse(row, f"the {type_name} `{_cut(text)}` must be written as {written}")
                return False
        return True

    def _refuse(self, row: Row, reason: str) -> None:
        values = ", ".join(_cut(value) for value in row)
        if any((value or "").startswith("\0") for value in row):
            reason = next(value for value in row if value and value.startswith("\0"))[1:]  # the reader's own reason
        self.bad_count += 1
        if len(self.bad) < ENOUGH:
            self.bad.append(f"row {self.rows} ({values}): {shown(reason)}")
        elif not self.skips_bad:
            raise PatternRefused(self.sentence)

    @property
    def sentence(self) -> str:
        """The message about all wrong rows."""
        more = f"\n  and {self.bad_count - len(self.bad):,} more" if self.bad_count > len(self.bad) else ""
        return "these rows can be no facts:\n  " + "\n  ".join(self.bad) + more


def _cut(text: str | None) -> str:
    text = text or ""
    return shown(text) if len(text) <= _SHOWN else f"{shown(text[:_SHOWN])}…"
