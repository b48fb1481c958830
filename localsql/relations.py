"""Where the facts of a question can be read: in the caller's tables, and in what is stored or comes along."""

from __future__ import annotations

from dataclasses import dataclass

from checks.engine.plan.others import OtherSource
from localsql.bindings import Binding, Bindings
from policy.rules.program import Signature

LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class Domain(OtherSource):
    """Every id of a type, as the bindings say; column `v`."""

    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- all of {self.type}"


@dataclass(frozen=True)
class CallerTables:
    """Places as plans name them: `stored`, `inline`, and `local:` with a binding's index."""

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
