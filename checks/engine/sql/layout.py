"""How tables of goals and answers keep what means one thing in one state and another in the next: as text, padded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from checks.engine.rules.clauses import Const, Term, Var
from checks.engine.sql.text import Column, Formed, Text


@dataclass(frozen=True)
class Padded:
    """Columns that all rows share; where a row has no value for one, or stands for every value, it is empty.

    c0 c1 o0 of an answer to a goal of one key:  'alice', '', 'doc1'
    """

    names: tuple[str, ...]
    seed: Callable[[Text], Text]  # how the database wants the values of a recursion

    def cells(self, tag: int, terms: Mapping[str, Term]) -> list[Column]:
        return [self._cell(terms.get(name)) for name in self.names]

    def _cell(self, term: Term | None) -> Column:
        return self._empty if term is None or isinstance(term, Var) else Formed(term, self.seed)

    @cached_property
    def _empty(self) -> Text:
        """Once: most cells of wide tables are empty."""
        return self.seed((Const(""),))


def padded(keys: int, outs: int, seed: Callable[[Text], Text]) -> Padded:
    names = (*(f"c{index}" for index in range(keys)), *(f"o{index}" for index in range(outs)))
    return Padded(names, seed)
