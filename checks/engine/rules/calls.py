"""What a call leads to, through the clauses that can make it true: whether it takes long, and what it only compares."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.engine.rules.clauses import Call, Clause, ClausesOf, Cmp, Member, Pattern, Scan, calls_made, pattern_of
from checks.engine.rules.hops import ComponentOf
from checks.engine.rules.limits import tick
from policy.rules.components import reachable

_NOTHING: frozenset[int] = frozenset()


@dataclass
class Calls:
    """Answers questions about patterns, and remembers the answers.

    `clauses` gives the clauses of a pattern, `component` the recursive component that it is in.
    """

    clauses: ClausesOf
    component: ComponentOf
    _deep: dict[Pattern, bool] = field(default_factory=dict)
    _compared: dict[Pattern, frozenset[int]] = field(default_factory=dict)

    def is_deep(self, pattern: Pattern) -> bool:
        """Say whether answering the call takes a path or another recursion."""
        if pattern not in self._deep:
            self._deep[pattern] = any(self.component(each) is not None for each in self._led_to(pattern))
        return self._deep[pattern]

    def only_compared(self, pattern: Pattern) -> frozenset[int]:
        """Return the indexes of arguments that some clause compares and does not bind: the caller has to bind them."""
        if pattern not in self._compared:
            found = dict.fromkeys(self._led_to(pattern), _NOTHING)
            while (more := {each: self._only_compared_by(each, found) for each in found}) != found:
                found = more
            self._compared |= found
        return self._compared[pattern]

    def _led_to(self, pattern: Pattern) -> list[Pattern]:
        """Return the pattern and all patterns that its clauses call, directly or through others."""
        return reachable((pattern,), lambda each: calls_made(self.clauses(each)), tick)

    def _only_compared_by(self, pattern: Pattern, known: dict[Pattern, frozenset[int]]) -> frozenset[int]:
        tick()
        return _NOTHING.union(*(_only_compared_in(clause, known) for clause in self.clauses(pattern)))


def _only_compared_in(clause: Clause, known: dict[Pattern, frozenset[int]]) -> set[int]:
    compared, bound = set(), set()
    for literal in clause.body:
        match literal:
            case Cmp(_, left, right):
                compared |= {left, right}
            case Call(args=args):
                passed = known[pattern_of(literal)]
                compared |= {args[index] for index in passed}
                bound |= {arg for index, arg in enumerate(args) if index not in passed}
            case Scan(args=args):
                bound |= set(args)
            case Member(variable, _):
                bound.add(variable)
    return {index for index, param in enumerate(clause.params) if param in compared - bound}
