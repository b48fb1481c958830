"""Facts with a role or a relation that no rule and no declaration knows: they are stored, with a warning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AnySet
from dataclasses import dataclass, field
from difflib import get_close_matches

from django.db import connection

from facts.batches import by_signature
from facts.mentioned_ids import ids_in
from facts.models import COLUMNS
from facts.numbering import signature_numbers
from facts.wire import Fact
from policy.rules.program import Program, Signature
from policy.rules.signatures import _HAS_ROLE, PLACE, known_names

MOST_TOLD = 20  # unknown names in messages; the others are only counted
_MOST_LISTED = 5  # known names in a hint
_MOST_NAMES = 1_000  # names that are looked at among the stored facts of a signature
_MOST_KEPT = 1_000  # unknown names that are remembered for a signature
_COUNTED = 10_000  # stored facts with a name
_LONGEST = 100  # characters of a name in a sentence


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A role or a relation of some facts, and what may have been meant."""

    signature: Signature
    name: str
    hint: str
    facts: int = 1
    line: int | None = None  # of a file, where it comes first

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        others = f"; {self.facts:,} such facts" if self.facts > 1 else ""
        name = self.name if len(self.name) <= _LONGEST else f"{self.name[:_LONGEST]}…"
        unknown = f"no rule and no declaration of the policy knows {_what(self.signature)} `{name}`"
        return f"{place}{unknown}{self.advice}{others}"

    @property
    def advice(self) -> str:
        return f" ({self.hint})" if self.hint else ""


def _what(signature: Signature) -> str:
    if signature.predicate == _HAS_ROLE:
        return f"a role of {signature.types[2]}" if len(signature.types) == 3 else "a global role"
    return f"a relation of {signature.types[0]}"


def unknown_names(program: Program | None, facts: Iterable[Fact]) -> list[UnknownName]:
    """Return the names in the facts that the policy does not know; without a policy, any may come to mean something."""
    found = Names(program)
    for signature, ids in by_signature(facts).items():
        if found.concern(signature):
            found.take(signature, [each[PLACE] for each in ids])
    return found.unknown_names


@dataclass
class Names:
    """Collects the names that the policy does not know from facts as they come."""

    program: Program | None
    counted: dict[Signature, Counter[str]] = field(default_factory=dict)
    first: dict[tuple[Signature, str], int] = field(default_factory=dict)  # lines
    _known: dict[Signature, frozenset[str] | None] = field(default_factory=dict)

    def concern(self, signature: Signature) -> bool:
        """Say whether facts of the signature have a name that may be unknown to the policy."""
        if signature not in self._known:
            self._known[signature] = None if self.program is None else known_names(self.program, signature)
        return self._known[signature] is not None

    def has_unknown(self, signature: Signature, names: AnySet[str]) -> bool:
        return not names <= (self._known[signature] or frozenset())

    def take(self, signature: Signature, names: list[str], lines: list[int] | None = None) -> None:
        """Count the unknown ones among the names of some facts, which stand in these lines."""
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

    @property
    def unknown_names(self) -> list[UnknownName]:
        """Return them as they came."""
        return [
            UnknownName(signature, name, self._hint(signature, name), number, self.first.get((signature, name)))
            for signature, counted in self.counted.items()
            for name, number in counted.items()
        ]

    def _hint(self, signature: Signature, name: str) -> str:
        known = sorted(self._known[signature] or ())
        near = get_close_matches(name[:_LONGEST], known, 1)
        if near:
            return f"did you mean `{near[0]}`?"
        listed = ", ".join(f"`{each}`" for each in known[:_MOST_LISTED])
        return f"it knows {listed}{', …' if len(known) > _MOST_LISTED else ''}" if known else ""


def stored_names(environment_id: int, program: Program) -> list[UnknownName]:
    """Return the names of stored facts that the policy does not know: names are few, and looked up in the index."""
    found = Names(program)
    for signature, number in sorted(signature_numbers(environment_id).items(), key=lambda item: str(item[0])):
        if program.accepts(signature.predicate, signature.types) and found.concern(signature):
            column = COLUMNS[PLACE]
            for name in ids_in(number, column, _MOST_NAMES):
                if found.has_unknown(signature, {name}):
                    found.count(signature, name, _count(number, column, name))
    return found.unknown_names


def _count(number: int, column: str, name: str) -> int:
    """Return how many facts have the name, no further than is worth knowing."""
    with connection.cursor() as cursor:
        limited = f"SELECT 1 FROM fact WHERE sig = %s AND {column} = %s LIMIT %s"
        cursor.execute(f"SELECT COUNT(*) FROM ({limited}) AS met", (number, name, _COUNTED))
        return cursor.fetchone()[0]


def sentences(unknown: Sequence[UnknownName]) -> list[str]:
    """Say so many of them, and how many more there are."""
    named = [str(each) for each in unknown[:MOST_TOLD]]
    more = len(unknown) - len(named)
    return [*named, f"and {more:,} more names that the policy does not know"] if more else named
