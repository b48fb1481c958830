"""What a call leads to, through the clauses that can make it true: whether it takes long, and what it only compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from checks.engine.rules.clauses import Call, Clause, Cmp, Member, Pattern, Scan, pattern_of
from checks.engine.rules.limits import tick

_NOTHING: frozenset[int] = frozenset()


@dataclass
class Calls:
    """`alternatives` are the clauses of a call, `component` what it recurses in; what was found is remembered."""

    alternatives: Callable[[Pattern], tuple[Clause, ...]]
    component: Callable[[Pattern], int | None]
    _deep: dict[Pattern, bool] = field(default_factory=dict)
    _leaning: dict[Pattern, frozenset[int]] = field(default_factory=dict)

    def is_deep(self, pattern: Pattern) -> bool:
        """Whether answering the call takes following paths or recursion."""
        if pattern not in self._deep:
            self._deep[pattern] = any(self.component(each) is not None for each in self._led_to(pattern))
        return self._deep[pattern]

    def leans_on(self, pattern: Pattern) -> frozenset[int]:
        """The arguments that some clause only compares: they are bound where the call is made, or nowhere."""
        if pattern not in self._leaning:
            found = dict.fromkeys(self._led_to(pattern), _NOTHING)
            while True:
                more = {each: self._leaning_of(each, found) for each in found}
                if more == found:
                    break
                found = more
            self._leaning |= found
        return self._leaning[pattern]

    def _led_to(self, pattern: Pattern) -> list[Pattern]:
        """The pattern and all that its clauses call, directly or through others."""
        found, queue = {pattern: None}, [pattern]
        while queue:
            tick()
            more = [each for each in calls_made(self.alternatives(queue.pop())) if each not in found]
            found |= dict.fromkeys(more)
            queue += more
        return list(found)

    def _leaning_of(self, pattern: Pattern, known: dict[Pattern, frozenset[int]]) -> frozenset[int]:
        tick()
        return _NOTHING.union(*(self._leaning_in(clause, known) for clause in self.alternatives(pattern)))

    def _leaning_in(self, clause: Clause, known: dict[Pattern, frozenset[int]]) -> set[int]:
        compared, bound = set(), set()
        for literal in clause.body:
            match literal:
                case Cmp(_, left, right):
                    compared |= {left, right}
                case Call(args=args):
                    leaning = known[pattern_of(literal)]
                    compared |= {args[index] for index in leaning}
                    bound |= {arg for index, arg in enumerate(args) if index not in leaning}
                case Scan(args=args):
                    bound |= set(args)
                case Member(variable, _):
                    bound.add(variable)
        return {index for index, param in enumerate(clause.params) if param in compared - bound}


def calls_made(clauses: Iterable[Clause]) -> list[Pattern]:
    """What the clauses call, as often as they do."""
    return [pattern_of(each) for clause in clauses for each in clause.body if isinstance(each, Call)]
