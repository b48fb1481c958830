"""The sources of plans over the caller's tables: those tables, known rows, and stored or inline facts."""

from __future__ import annotations

from dataclasses import dataclass

from checks.engine.plan.plan import DerivedTable, ForeignSource
from localsql.bindings import Binding, Bindings
from policy.rules.program import Signature

LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class Domain(ForeignSource):
    """Every id of a type, from the bindings' query for it; column `v`."""

    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- all of {self.type}"


@dataclass(frozen=True, slots=True)
class ConstantRows(ForeignSource):
    """Rows of constants; columns k0 …, of these types."""

    rows: tuple[tuple[str, ...], ...]
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"s{self.number} <- {len(self.rows)} known rows"


@dataclass(frozen=True, slots=True)
class FoldedCandidates(ForeignSource):
    """The ids at some positions of the caller's tables, the known ones, and NULL for all others; column `v`."""

    ids: tuple[str, ...]
    positions: tuple[tuple[str, int], ...]  # a binding's store, and the index of an argument
    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- ids"


@dataclass(frozen=True, slots=True)
class FoldedDerivedTable(DerivedTable):
    """The answers of a folded plan; `types` are those of its columns, some of which may be constants without a type."""

    types: tuple[str, ...]


@dataclass(frozen=True)
class CallerTables:
    """The caller's bindings. Plans call their stores `stored`, `inline`, and `local:` with a binding's index."""

    bindings: Bindings
    inline: frozenset[Signature] = frozenset()

    def stores(self, signature: Signature) -> tuple[str, ...]:
        return (*self.local_stores(signature), *self.service_stores(signature))

    def local_stores(self, signature: Signature) -> tuple[str, ...]:
        return tuple(f"{LOCAL}{index}" for index in self.bindings.by_signature.get(signature, ()))

    def service_stores(self, signature: Signature) -> tuple[str, ...]:
        return ("stored", "inline") if signature in self.inline else ("stored",)

    def binding(self, store: str) -> Binding:
        return self.bindings.facts[int(store.removeprefix(LOCAL))]


def is_local(store: str) -> bool:
    return store.startswith(LOCAL)
