"""The names in sight of a select, and what their columns are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from checks.engine.plan.plan import Net, Source
from localsql.dialects import Typed

Columns = Callable[[str], Typed]  # a column of a source, by its name in the plan


@dataclass(frozen=True)
class Scope:
    columns: dict[int, Columns] = field(default_factory=dict)  # by source
    names: dict[int, str] = field(default_factory=dict)
    depth: int = 0
    net: Net | None = None  # whose goals and answers are in sight
    goals: str | None = None  # the tables' names; None where they have no rows
    answers: str | None = None
    lateral: type | None = None  # sources of this kind are the row that a recursive step goes on from

    @property
    def row(self) -> str:
        """The row that a recursive step goes on from."""
        return f"__p{self.depth}"

    def inside(self, net: Net) -> Scope:
        return replace(self, depth=self.depth + 1, net=net, goals=None, answers=None, lateral=None)

    def alias(self, source: Source) -> str:
        """The next free name; numbers of sources are all different, so a name stands for one source in sight."""
        return self.row if self.is_outer(source) else f"__t{len(self.columns)}"

    def naming(self, source: Source, name: str, columns: Columns) -> Scope:
        number = source.number
        return replace(self, columns={**self.columns, number: columns}, names={**self.names, number: name})

    def is_outer(self, source: Source) -> bool:
        return self.lateral is not None and isinstance(source, self.lateral)
