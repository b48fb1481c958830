"""Whether the active policy can use a fact. What it cannot use is most likely a mistake, and is refused."""

from difflib import get_close_matches

from facts.errors import FactRejected
from facts.wire import Fact
from policy.rules.program import Program, Signature


def check_fact(program: Program | None, fact: Fact, path: str) -> None:
    """Refuse a fact that the policy cannot use; without a policy every fact may become useful."""
    if program is not None:
        check_signature(program, fact.signature, path)


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
