"""The columns of tables of goals and answers: all text, the same for all states, and empty where a state has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from checks.engine.rules.clauses import Const, Term, Var
from checks.engine.sql.text import Column, Formed, Text


@dataclass(frozen=True)
class Padded:
    """Columns that the rows of all states share; a row that has no value for one, or stands for every value, has ''.

    answer 'doc1' to a goal with the key 'alice', in the columns c0 c1 o0  ->  'alice', '', 'doc1'
    """

    names: tuple[str, ...]
    seed: Callable[[Text], Text]  # puts a value as a recursive table needs it

    def cells(self, tag: int, terms: Mapping[str, Term]) -> list[Column]:
        return [self._cell(terms.get(name)) for name in self.names]

    def _cell(self, term: Term | None) -> Column:
        return self._empty if term is None or isinstance(term, Var) else Formed(term, self.seed)

    @cached_property
    def _empty(self) -> Text:
        """Made once, as most cells of wide tables are empty."""
        return self.seed((Const(""),))


def padded(keys: int, outs: int, seed: Callable[[Text], Text]) -> Padded:
    names = (*(f"c{index}" for index in range(keys)), *(f"o{index}" for index in range(outs)))
    return Padded(names, seed)
