"""Whether the active policy can use a fact. What it cannot use is most likely a mistake, and is refused."""

from collections.abc import Sequence
from difflib import get_close_matches

from facts.bundles import by_signature, place_of_first
from facts.errors import FactRejected
from facts.wire import Fact
from policy.rules.program import Program, Signature


def check_facts(program: Program | None, facts: Sequence[Fact], path: str | None) -> None:
    """Refuse facts that the policy cannot use; without a policy every fact may become useful.

    `path` is that of the array in the request, None where a fact is all of the request.
    """
    for signature in () if program is None else by_signature(facts):
        if not program.accepts(signature.predicate, signature.types):
            check_signature(program, signature, "" if path is None else f"{path}[{place_of_first(facts, signature)}]")


def check_signature(program: Program, signature: Signature, path: str) -> None:
    if not program.accepts(signature.predicate, signature.types):
        raise FactRejected(path, f"the policy has no use for a fact `{signature}`", _hint(program, signature))


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
