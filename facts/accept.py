"""Which facts the active policy can use, and what happens to the others.

Storing a fact that the policy cannot use is most likely a mistake, and is refused. A context fact that it cannot use is
ignored, and the response says so: callers may send more than a policy uses, and a newer policy may use less than the
one the caller was written for. A stored fact that a new policy cannot use stays and is ignored; whoever publishes the
policy is told how many such facts there are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from django.conf import settings

from facts.batches import by_signature, place_of_first, without
from facts.numbering import signature_numbers
from facts.read import count_up_to
from facts.wire import Fact
from policy.errors import AuthzError
from policy.publishing import Ignored
from policy.rules.program import Program, Signature

MOST_NAMED = 10  # signatures of unused context facts that a response names; the others are only counted
COUNTED = 10_000  # stored facts that are counted at most; beyond that it is "10,000 or more"


class Unaccepted(NamedTuple):
    """Facts of one signature, and what may have been meant."""

    signature: Signature
    hint: str

    def __str__(self) -> str:
        return f"`{self.signature}` is not used in policy{self.advice}"

    @property
    def advice(self) -> str:
        return f" ({self.hint})" if self.hint else ""


class FactRejected(AuthzError):
    """Well formed, but not a fact that the active policy can use."""

    def __init__(self, path: str, unaccepted: Unaccepted):
        self.path = path
        super().__init__(f"{path}: the fact {unaccepted}" if path else f"the fact {unaccepted}")


# ---- facts to be stored ----------------------------------------------------------------------------------------


def check_facts(program: Program | None, facts: Sequence[Fact], path: str | None) -> None:
    """Refuse facts that the policy cannot use; without a policy every fact may become useful.

    `path` is that of the array in the request, None where a fact is all of the request, or nothing came by one.
    """
    if program is None:
        return
    for signature in useless(program, facts)[:1]:
        place = "" if path is None else f"{path}[{place_of_first(facts, signature)}]"
        raise FactRejected(place, unaccepted_of(program, signature))


def check_signature(program: Program, signature: Signature) -> None:
    if not program.accepts(signature.predicate, signature.types):
        raise FactRejected("", unaccepted_of(program, signature))


# ---- facts of a question ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unused:
    """The signatures of a question's context facts that are ignored, and how many more such signatures there are."""

    kinds: tuple[Unaccepted, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.kinds)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the sentences that people read."""
        others = [f"{self.more} more kinds of context facts are not used in policy"] if self.more else []
        return (*[f"the context fact {kind}" for kind in self.kinds], *others)


ALL_USED = Unused()


class Brought(NamedTuple):
    """The context facts of a question that are used, and which ones are ignored."""

    facts: Sequence[Fact]
    unused: Unused = ALL_USED


def brought(program: Program | None, facts: Sequence[Fact], path: str) -> Brought:
    """Leave out the context facts that the policy cannot use; with `STRICT_CONTEXT_FACTS`, refuse them instead."""
    found = useless(program, facts)
    if program is None or not found:
        return Brought(facts)
    if settings.STRICT_CONTEXT_FACTS:
        check_facts(program, facts, path)
    kinds = tuple([unaccepted_of(program, signature) for signature in found[:MOST_NAMED]])
    return Brought(without(facts, frozenset(found)), Unused(kinds, len(found) - len(kinds)))


# ---- facts that are stored -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnusedStored:
    """A signature that the policy does not accept, and how many facts are filed under it."""

    signature: Signature
    facts: Ignored


def ignored_facts(environment_id: int, program: Program) -> Ignored:
    """Return how many stored facts the program does not accept.

    It goes through the signatures, and counts the index entries of those that are not accepted, `COUNTED` at most: the
    time does not depend on how many facts there are.
    """
    return _counted(_unaccepted(environment_id, program).values())


def unused_signatures(environment_id: int, program: Program) -> list[UnusedStored]:
    """Return the signatures whose stored facts the program does not accept, each with its own count."""
    numbers = sorted(_unaccepted(environment_id, program).items(), key=lambda item: str(item[0]))
    found = (UnusedStored(signature, _counted([number])) for signature, number in numbers)
    return [each for each in found if each.facts.count]


def _unaccepted(environment_id: int, program: Program) -> dict[Signature, int]:
    numbers = signature_numbers(environment_id).items()
    return {one: number for one, number in numbers if not program.accepts(one.predicate, one.types)}


def _counted(numbers: Iterable[int]) -> Ignored:
    count = count_up_to(COUNTED + 1, numbers)
    return Ignored(min(count, COUNTED), or_more=count > COUNTED)


# ---- what is not accepted, and what may have been meant ----------------------------------------------------------


def useless(program: Program | None, facts: Sequence[Fact]) -> list[Signature]:
    """Return the signatures of the facts that the policy cannot use."""
    if program is None:
        return []
    accepts = program.accepts
    return [signature for signature in by_signature(facts) if not accepts(signature.predicate, signature.types)]


def unaccepted_of(program: Program, signature: Signature) -> Unaccepted:
    """Return facts that the policy cannot use, with advice on what may have been meant."""
    return Unaccepted(signature, _hint(program, signature))


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
