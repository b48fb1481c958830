"""The sources of plans over the caller's tables: those tables, known rows, and stored or inline facts."""

from __future__ import annotations

from dataclasses import dataclass

from checks.engine.plan.others import OtherSource
from checks.engine.plan.plan import Relation
from localsql.bindings import Binding, Bindings
from policy.rules.program import Signature

LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class Domain(OtherSource):
    """Every id of a type, from the bindings' query for it; column `v`."""

    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- all of {self.type}"


@dataclass(frozen=True, slots=True)
class Known(OtherSource):
    """A relation of constants; columns k0 …, of these types."""

    rows: tuple[tuple[str, ...], ...]
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"s{self.number} <- {len(self.rows)} known rows"


@dataclass(frozen=True, slots=True)
class Mentioned(OtherSource):
    """The ids at some places of the caller's tables, the known ones, and NULL for all others; column `v`."""

    ids: tuple[str, ...]
    places: tuple[tuple[str, int], ...]  # the place of a binding, and the index of an argument
    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- ids"


@dataclass(frozen=True, slots=True)
class FoldedRelation(Relation):
    """The answers of a folded plan; `types` are those of its columns, some of which may be constants without a type."""

    types: tuple[str, ...]


@dataclass(frozen=True)
class CallerTables:
    """The caller's bindings. Plans call places `stored`, `inline`, and `local:` with a binding's index."""

    bindings: Bindings
    inline: frozenset[Signature] = frozenset()

    def places(self, signature: Signature) -> tuple[str, ...]:
        return (*self.local_places(signature), *self.central_places(signature))

    def local_places(self, signature: Signature) -> tuple[str, ...]:
        return tuple(f"{LOCAL}{index}" for index in self.bindings.by_signature.get(signature, ()))

    def central_places(self, signature: Signature) -> tuple[str, ...]:
        return ("stored", "inline") if signature in self.inline else ("stored",)

    def binding(self, place: str) -> Binding:
        return self.bindings.facts[int(place.removeprefix(LOCAL))]


def is_local(place: str) -> bool:
    return place.startswith(LOCAL)
