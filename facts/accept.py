"""Which facts the active policy accepts, with warnings for unknown roles and relations."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AnySet
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import NamedTuple

from facts.keyset_pages import ids_in
from facts.models import COLUMNS
from facts.numbering import signature_numbers
from facts.table import count_up_to, counted, equals, fetch, select
from facts.wire import Fact, by_signature, end_path, place_of_first, some_end, without
from policy.core.clock import now, text_of
from policy.core.config import settings
from policy.errors import AuthzError, MalformedRequest
from policy.publishing import Ignored
from policy.rules.program import Program, Signature
from policy.rules.types import _HAS_ROLE, PLACE, known_names

# ---- names --------------------------------------------------------------------------------------------------------
# Facts with a role or relation that neither a rule nor a declaration knows: they are stored, with a warning.

MOST_TOLD = 20  # unknown names in messages; the others are only counted
_MOST_LISTED = 5  # known names in a hint
_MOST_NAMES = 1_000  # names that are examined among the stored facts of a signature
_MOST_KEPT = 1_000  # unknown names that are remembered per signature
_COUNTED = 10_000  # stored facts with a name
_LONGEST = 100  # characters of a name in a sentence


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A role or relation that occurs in facts, with a suggestion."""

    signature: Signature
    name: str
    hint: str
    facts: int = 1
    line: int | None = None  # in a file: its first occurrence

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        others = f"; {self.facts:,} such facts" if self.facts > 1 else ""
        name = self.name if len(self.name) <= _LONGEST else f"{self.name[:_LONGEST]}…"
        unknown = f"unknown {_what(self.signature)}: `{name}`"
        return f"{place}{unknown}{self.advice}{others}"

    @property
    def advice(self) -> str:
        return f" ({self.hint})" if self.hint else ""


def _what(signature: Signature) -> str:
    if signature.predicate == _HAS_ROLE:
        return f"role on {signature.types[2]}" if len(signature.types) == 3 else "global role"
    return f"relation of {signature.types[0]}"


def unknown_names(program: Program | None, facts: Iterable[Fact]) -> list[UnknownName]:
    """Return the names in the facts that the policy does not know; none without a policy, which may define any."""
    if program is None:
        return []
    found = UnknownNames(program)
    for signature, ids in by_signature(facts).items():
        if found.concern(signature):
            found.take(signature, [each[PLACE] for each in ids])
    return found.unknown_names


@dataclass
class UnknownNames:
    """Collects the names that the policy does not know from a stream of facts."""

    program: Program | None
    counted: dict[Signature, Counter[str]] = field(default_factory=dict)
    first: dict[tuple[Signature, str], int] = field(default_factory=dict)  # lines
    _known: dict[Signature, frozenset[str] | None] = field(default_factory=dict)

    def concern(self, signature: Signature) -> bool:
        """Return whether facts of the signature have a name that may be unknown to the policy."""
        if signature not in self._known:
            self._known[signature] = None if self.program is None else _known_names(self.program, signature)
        return self._known[signature] is not None

    def has_unknown(self, signature: Signature, names: AnySet[str]) -> bool:
        return not names <= (self._known[signature] or frozenset())

    def take(self, signature: Signature, names: list[str], lines: list[int] | None = None) -> None:
        """Count the unknown ones among the names of some facts; `lines` are their line numbers."""
        known = self._known[signature] or frozenset()
        for place, name in enumerate(names):
            if name not in known:
                self.count(signature, name, 1)
                if lines and name in self.counted[signature]:
                    self.first.setdefault((signature, name), lines[place])

    def count(self, signature: Signature, name: str, facts: int) -> None:
        """Count facts with an unknown name; beyond `_MOST_KEPT` names, new ones are not counted."""
        counted = self.counted.setdefault(signature, Counter())
        if name in counted or len(counted) < _MOST_KEPT:
            counted[name] += facts

    def named(self, signature: Signature, name: str) -> UnknownName:
        return UnknownName(signature, name, self._hint(signature, name))

    @property
    def unknown_names(self) -> list[UnknownName]:
        """Return the unknown names in order of appearance."""
        return [
            UnknownName(signature, name, self._hint(signature, name), number, self.first.get((signature, name)))
            for signature, counted in self.counted.items()
            for name, number in counted.items()
        ]

    def _hint(self, signature: Signature, name: str) -> str:
        known = sorted(self._known[signature] or ())
        if near := _near(name[:_LONGEST], known):
            return near
        listed = ", ".join(f"`{each}`" for each in known[:_MOST_LISTED])
        return f"known: {listed}{', …' if len(known) > _MOST_LISTED else ''}" if known else ""


def _known_names(program: Program, signature: Signature) -> frozenset[str] | None:
    """Return `known_names`; found once for each signature that the program accepts, since they are few."""
    if signature in program.memo:
        found: frozenset[str] | None = program.memo[signature]
        return found
    found = known_names(program, signature)
    if program.accepts(signature.predicate, signature.types):
        program.memo[signature] = found
    return found


def stored_names(environment_id: int, program: Program) -> list[UnknownName]:
    """Return the unknown names of stored facts: distinct names are few, and looked up in the index."""
    found = UnknownNames(program)
    for signature, number in sorted(signature_numbers(environment_id).items(), key=lambda item: str(item[0])):
        if program.accepts(signature.predicate, signature.types) and found.concern(signature):
            column = COLUMNS[PLACE]
            some = counted(select("1", "sig = %s", equals(column), limit=_COUNTED))
            for name in ids_in(number, column, _MOST_NAMES):
                if found.has_unknown(signature, {name}):
                    found.count(signature, name, fetch(some, (number, name))[0][0])
    return found.unknown_names


def sentences(unknown: Sequence[UnknownName]) -> list[str]:
    """Return a sentence for each of the first names, and one for the number of the others."""
    named = [str(each) for each in unknown[:MOST_TOLD]]
    more = len(unknown) - len(named)
    return [*named, f"and {more:,} more unknown names"] if more else named


# ---- Which facts the active policy can use, and what happens to unused ones ----------------------------------------
# Storing a fact that the policy cannot use is most likely a mistake, and is rejected. A context fact that it cannot use
# is ignored, and the response says so: callers may send more than a policy uses, and a newer policy may use less than
# the one that the caller was written for. A stored fact that a new policy cannot use is kept and ignored; the publisher
# of the policy is told how many such facts there are.

MOST_NAMED = 10  # signatures of unused context facts that a response names; the others are only counted
COUNTED = 10_000  # limit for counting stored facts; beyond it, the count is "10,000 or more"


class Unaccepted(NamedTuple):
    """Facts of one signature, with a suggestion."""

    signature: Signature
    hint: str

    def __str__(self) -> str:
        return f"`{self.signature}` is not used in policy{self.advice}"

    @property
    def advice(self) -> str:
        return f" ({self.hint})" if self.hint else ""


class FactRejected(AuthzError):
    """Raised for a well-formed fact that the active policy cannot use; `why` says so of the fact."""

    def __init__(self, path: str, why: str):
        self.path = path
        super().__init__(f"{path}: {why}" if path else why)


# ---- facts to be stored ----------------------------------------------------------------------------------------


def check_facts(program: Program | None, facts: Sequence[Fact], path: str | None, is_strict: bool = False) -> None:
    """Reject facts that the policy cannot use; without a policy, every fact may become useful.

    Facts to be stored (`is_strict`) must also have known roles and relations, if `STRICT_FACTS` is set.

    `path` is that of the array in the request, None if the request is a single fact, or if there is no request.
    """
    if program is None:
        return
    for signature in useless(program, facts)[:1]:
        place = "" if path is None else f"{path}[{place_of_first(facts, signature)}]"
        raise FactRejected(place, f"the fact {unaccepted_of(program, signature)}")
    if is_strict and settings.STRICT_FACTS:
        for unknown in unknown_names(program, facts)[:1]:
            place = "" if path is None else f"{path}[{_place_of_name(facts, unknown)}]"
            raise FactRejected(place, str(replace(unknown, facts=1)))


def _place_of_name(facts: Sequence[Fact], unknown: UnknownName) -> int:
    """Return the index of the first fact with the name."""
    signature, name = unknown.signature, unknown.name
    return next(i for i, each in enumerate(facts) if each.signature == signature and each.args[PLACE].id == name)


def check_signature(program: Program, signature: Signature) -> None:
    if not program.accepts(signature.predicate, signature.types):
        raise FactRejected("", f"the fact {unaccepted_of(program, signature)}")


# ---- expiries of facts to be stored ---------------------------------------------------------------------------------


class EndIsPast(MalformedRequest):
    """A fact was to be stored with an expiry in the past."""


def check_ends(facts: Sequence[Fact], path: str | None) -> None:
    """Reject expiries in the past. `path` is that of the array, None if the request is a single fact."""
    if not some_end(facts):
        return
    moment = now()
    for index, fact in enumerate(facts):
        if fact.expires_at is not None:
            check_end(fact.expires_at, moment, "" if path is None else f"{path}[{index}]")


def check_end(end: int, moment: int, path: str) -> None:
    if end <= moment:
        raise EndIsPast(end_path(path), f"is in the past: the current time is {text_of(moment)}")


def parted_by_end(facts: Sequence[Fact]) -> tuple[Sequence[Fact], Sequence[Fact]]:
    """Split facts into those that hold and those that have expired. Among duplicates, the last one's expiry counts.

    p(x) until yesterday, p(y), p(y) until yesterday, p(x)  ->  p(x) and p(y) until yesterday
    """
    if not some_end(facts):
        return facts, ()
    moment = now()
    last = {fact: fact for fact in facts}.values()
    ended = [fact for fact in last if fact.expires_at is not None and fact.expires_at <= moment]
    return [fact for fact in last if fact.expires_at is None or fact.expires_at > moment], ended


# ---- facts of a query ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unused:
    """The signatures of a query's context facts that are ignored, and how many more such signatures there are."""

    kinds: tuple[Unaccepted, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.kinds)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return sentences for people."""
        others = [f"{self.more} more context fact signatures are not used in policy"] if self.more else []
        return (*[f"the context fact {kind}" for kind in self.kinds], *others)


ALL_USED = Unused()


class UsableContextFacts(NamedTuple):
    """The context facts of a query that are used, and which ones are ignored."""

    facts: Sequence[Fact]
    unused: Unused = ALL_USED


def brought(program: Program | None, facts: Sequence[Fact], path: str) -> UsableContextFacts:
    """Drop the context facts that the policy cannot use; with `STRICT_FACTS`, reject them instead."""
    found = useless(program, facts)
    if program is None or not found:
        return UsableContextFacts(facts)
    if settings.STRICT_FACTS:
        check_facts(program, facts, path)
    kinds = tuple([unaccepted_of(program, signature) for signature in found[:MOST_NAMED]])
    return UsableContextFacts(without(facts, frozenset(found)), Unused(kinds, len(found) - len(kinds)))


# ---- stored facts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnusedStored:
    """A signature that the policy does not accept, and how many facts it has."""

    signature: Signature
    facts: Ignored


def ignored_facts(environment_id: int, program: Program) -> Ignored:
    """Return how many stored facts the program does not accept.

    It counts the index entries of the signatures that are not accepted, up to `COUNTED`: the time does not depend on
    how many facts there are.
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


# ---- suggestions for unaccepted facts -----------------------------------------------------------------------------


def useless(program: Program | None, facts: Sequence[Fact]) -> list[Signature]:
    """Return the signatures of the facts that the policy cannot use."""
    if program is None:
        return []
    accepts = program.accepts
    return [signature for signature in by_signature(facts) if not accepts(signature.predicate, signature.types)]


def unaccepted_of(program: Program, signature: Signature) -> Unaccepted:
    accepted = program.accepted.items()
    shapes = [shape for (name, _), patterns in accepted if name == signature.predicate for shape in patterns]
    if not shapes:
        return Unaccepted(signature, _near(signature.predicate, {name for (name, _), _ in accepted}))
    known = {name for shape in shapes for types in shape for name in types}
    advice = next(filter(None, (_near(name, known) for name in signature.types if name not in known)), "")
    examples = ", ".join(f"`{shape_text(signature.predicate, shape)}`" for shape in shapes[:3])
    return Unaccepted(signature, advice or f"accepted: {examples}")


def _near(name: str, names: Iterable[str]) -> str:
    found = get_close_matches(name, sorted(names), 1)
    return f"did you mean `{found[0]}`?" if found else ""


def shape_text(predicate: str, pattern: Iterable[frozenset[str]]) -> str:
    """Return facts that the policy accepts as `has_role(User, String, Repo|Team)`, with at most three types each."""
    listed = ["|".join(sorted(types)[:3]) + ("|…" if len(types) > 3 else "") for types in pattern]
    return f"{predicate}({', '.join(listed)})"


# ---- response headers ------------------------------------------------------------------------------------------------
# Callers are told which context facts were ignored, and which words the policy does not have, in printable ASCII.

HEADER = "X-Unused-Context-Facts"
WARNING = "X-Authz-Warning"  # names unknown words of a question, or of facts that were stored
LONGEST = 1_000  # characters
_NOT_PRINTABLE = re.compile(r"[^ -~]")


def line_of(unused: Unused) -> str:
    """Return the ignored context facts in one line of printable ASCII; other characters are escaped."""
    named = [f"`{each.signature}`{each.advice}" for each in unused.kinds]
    return printable(
        f"not used in policy: {'; '.join([*named, *([f'and {unused.more} more'] if unused.more else [])])}"
    )


def printable(text: str) -> str:
    """Convert a text to printable ASCII, with other characters escaped, cut to `LONGEST` characters."""
    escaped = _NOT_PRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text[: LONGEST + 1])
    return escaped if len(escaped) <= LONGEST else f"{escaped[: LONGEST - 3]}..."
