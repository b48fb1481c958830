"""The aliases in sight of a select, and what the goals and answers that it reads are called."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checks.engine.plan.plan import Fact, Ids, Source


def _letter(source: Source) -> str:
    """Stored facts are told apart from all else in query plans."""
    if isinstance(source, Fact):
        return "f" if source.place == "stored" else "c"
    return "i" if isinstance(source, Ids) else "t"


@dataclass(frozen=True)
class Scope:
    """The aliases in sight, and what the goals and answers of the net at hand are called."""

    names: dict[int, str] = field(default_factory=dict)
    facts: dict[int, Fact] = field(default_factory=dict)  # those of the sources that are facts
    depth: int = 0
    prefix: str = ""
    lateral: type | None = None
    tables: dict[int, str] = field(default_factory=dict)  # for goals and answers that are read from elsewhere

    @property
    def goals(self) -> str:
        return f"{self.prefix}g{self.depth}"

    @property
    def answers(self) -> str:
        return f"{self.prefix}a{self.depth}"

    @property
    def row(self) -> str:
        """The row that a recursive step goes on from: of this depth, so that no step inside takes it for its own."""
        return f"p{self.depth}"

    def inside(self) -> Scope:
        return replace(self, depth=self.depth + 1, lateral=None)

    def with_lateral(self, kind: type) -> Scope:
        return replace(self, lateral=kind)

    def naming(self, sources: tuple[Source, ...]) -> Scope:
        names = dict(self.names)
        for source in sources:
            is_outer = self.lateral is not None and isinstance(source, self.lateral)
            names[source.number] = self.row if is_outer else f"{_letter(source)}{len(names)}"
        facts = {source.number: source for source in sources if isinstance(source, Fact)}
        return replace(self, names=names, facts=self.facts | facts)

    def read(self, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """The sources that this select reads itself; the recursive row comes from around it."""
        if self.lateral is None:
            return sources
        return tuple(source for source in sources if not isinstance(source, self.lateral))
