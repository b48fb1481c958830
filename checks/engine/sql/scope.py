"""What a SELECT can mention: the sources in scope, and the names of its tables of goals and answers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from checks.engine.plan.plan import Plan, Source
from checks.engine.sql.text import Piece

Seen = TypeVar("Seen")  # what a renderer remembers of a source in sight


class Scope(NamedTuple, Generic[Seen]):
    """What a select can mention: its own sources, those of the selects around it, and the tables of its plan."""

    names: Mapping[int, str] = {}  # by number, the alias of each source
    seen: Mapping[int, Seen] = {}
    depth: int = 0
    prefix: str = ""  # of the names of tables
    plan: Plan | None = None  # the plan whose goals and answers can be read
    goals: str | None = None  # the table's name; None where there are none
    answers: str | None = None
    lateral: type | None = None  # in a recursive step: the kind of source that is read around it, a row at a time
    tables: Mapping[int, Piece] = {}  # by source, for goals and answers that are read from other tables
    looked_up: frozenset[int] = frozenset()  # sources that are facts as of an earlier revision
    mark: str = ""  # before all names, where a caller's SQL has names of its own

    def own(self, letter: str) -> str:
        """Return the name of a table at this depth."""
        return f"{self.mark}{self.prefix}{letter}{self.depth}"

    @property
    def row(self) -> str:
        """The alias of the row that a recursive step goes on from; its depth tells it from that of a step inside."""
        return f"{self.mark}p{self.depth}"

    def inside(self, plan: Plan) -> Scope[Seen]:
        """Return the scope of the plan's branches, one level deeper; its tables are still to be named."""
        return self._replace(depth=self.depth + 1, plan=plan, goals=None, answers=None, lateral=None)

    def around(self, plan: Plan) -> Hashable:
        """Return all of this scope that a nested plan's text depends on: what it mentions, where its names start."""
        given = {each.source for each in plan.outer_columns}
        seen = frozenset((n, self.names.get(n), self.seen.get(n), n in self.looked_up) for n in given)
        return seen, len(self.names), self.depth, self.prefix, self.mark

    def is_outer(self, source: Source) -> bool:
        return self.lateral is not None and isinstance(source, self.lateral)

    def read(self, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """Return the sources that this select reads itself; the recursive row comes from around it."""
        if self.lateral is None:
            return sources
        return tuple(source for source in sources if not isinstance(source, self.lateral))
