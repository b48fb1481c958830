"""Whether the active policy can use a fact.

One to be stored that it cannot use is most likely a mistake, and is refused. A context fact that it cannot use counts
for nothing, and is told of: callers may say more than a policy asks for, and a policy may ask for less than it did when
they were written.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from django.conf import settings

from facts.bundles import by_signature, place_of_first, without
from facts.errors import FactRejected
from facts.unused import ALL_USED, MOST_TOLD, Kind, Unused
from facts.wire import Fact
from policy.rules.program import Program, Signature


def check_facts(program: Program | None, facts: Sequence[Fact], path: str | None) -> None:
    """Refuse facts that the policy cannot use; without a policy every fact may become useful.

    `path` is that of the array in the request, None where a fact is all of the request.
    """
    if program is None:
        return
    for signature in useless(program, facts)[:1]:
        place = "" if path is None else f"{path}[{place_of_first(facts, signature)}]"
        raise FactRejected(place, kind_of(program, signature))


class Brought(NamedTuple):
    """The context facts of a question that count, and what those are that do not."""

    facts: Sequence[Fact]
    unused: Unused = ALL_USED


def brought(program: Program | None, facts: Sequence[Fact], path: str) -> Brought:
    """Context facts without those that the policy cannot use; with `STRICT_CONTEXT_FACTS`, a refusal of these."""
    found = useless(program, facts)
    if program is None or not found:
        return Brought(facts)
    if settings.STRICT_CONTEXT_FACTS:
        check_facts(program, facts, path)
    kinds = tuple([kind_of(program, signature) for signature in found[:MOST_TOLD]])
    return Brought(without(facts, frozenset(found)), Unused(kinds, len(found) - len(kinds)))


def useless(program: Program | None, facts: Sequence[Fact]) -> list[Signature]:
    """The signatures of the facts that the policy cannot use."""
    if program is None or not facts:
        return []
    accepts = program.accepts
    return [signature for signature in by_signature(facts) if not accepts(signature.predicate, signature.types)]


def check_signature(program: Program, signature: Signature) -> None:
    if not program.accepts(signature.predicate, signature.types):
        raise FactRejected("", kind_of(program, signature))


def kind_of(program: Program, signature: Signature) -> Kind:
    """Facts that the policy cannot use, with advice on what may have been meant."""
    return Kind(signature, _hint(program, signature))


def _hint(program: Program, signature: Signature) -> str:
    accepted = program.accepted.items()
    shapes = [shape for (name, _), patterns in accepted if name == signature.predicate for shape in patterns]
    if not shapes:
        return _near(signature.predicate, {name for (name, _), _ in accepted})
    unknown = [name for name in signature.types if not any(name in types for shape in shapes for types in shape)]
    known = {name for shape in shapes for types in shape for name in types}
    advice = next(filter(None, (_near(name, known) for name in unknown)), "")
    return advice or "it accepts " + ", ".join(f"`{signature.predicate}({_shape(shape)})`" for shape in shapes[:3])


def _near(name: str, names: set[str]) -> str:
    found = get_close_matches(name, sorted(names), 1)
    return f"did you mean `{found[0]}`?" if found else ""


def _shape(pattern: tuple[frozenset[str], ...]) -> str:
    return ", ".join("|".join(sorted(types)[:3]) + ("|…" if len(types) > 3 else "") for types in pattern)
