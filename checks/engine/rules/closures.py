"""Rules that close a relation over values of many types -> a step, and one more step.

    linked(x, y) if near(x, y);                             linked(x, y) if linked step(x, y)
    linked(y, x) if linked(x, y);                           linked(x, z) if linked(x, y) and linked step(y, z)
    linked(x, z) if linked(x, y) and linked(y, z);      ->  linked step(x, y) if linked ground(x, y)
                                                            linked step(x, y) if linked ground(y, x)
                                                            linked ground(x, y) if near(x, y)

What can be reached in steps, and where each step can be taken back, is closed both ways. It does not matter what else
makes the ground true, be it the relation itself. All that is closed must be of the same types: else one step more may
lead to where no rule does. Of one type, transitive rules need nothing of this (see `linearise`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checks.engine.rules.clauses import Call, Clause, Part, Var
from policy.rules import program as p


@dataclass(frozen=True, slots=True)
class Closure:
    types: p.Types
    is_symmetric: bool
    rules: tuple[p.Rule, ...]  # that say so

    def clauses(self, predicate: str, types: tuple[str, ...]) -> Iterator[Clause]:
        """`linked(x, y)` of these types, by steps."""
        start, end = types
        step = Part.STEP if self.is_symmetric else Part.UNCLOSED
        x, z = Var(0, type=start), Var(1, type=end)
        yield Clause((x, z), (Call(predicate, types, (x, z), step),))
        for name in sorted(self.types):
            y = Var(2, type=name)
            so_far = Call(predicate, (start, name), (x, y))
            yield Clause((x, z), (so_far, Call(predicate, (name, end), (y, z), step)))

    def steps(self, predicate: str, types: tuple[str, ...]) -> Iterator[Clause]:
        """One step, which may be one back."""
        start, end = types
        x, y = Var(0, type=start), Var(1, type=end)
        yield Clause((x, y), (Call(predicate, types, (x, y), Part.UNCLOSED),))
        yield Clause((x, y), (Call(predicate, (end, start), (y, x), Part.UNCLOSED),))


def closure_of(rules: tuple[p.Rule, ...]) -> Closure | None:
    """Whether some of a predicate's rules say that it is transitive, and symmetric perhaps, for several types."""
    transitive, symmetric = list(filter(_is_transitive, rules)), list(filter(_is_symmetric, rules))
    types = {names for rule in (*transitive, *symmetric) for names in rule.types.values()}
    if not transitive or len(types) != 1 or len(min(types)) < 2:
        return None
    return Closure(min(types), bool(symmetric), (*transitive, *symmetric))


def _is_transitive(rule: p.Rule) -> bool:
    """`p(x, z) if p(x, y) and p(y, z)`, in either order."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as x, p.Var() as z), (one, two) if x != z and len(rule.body) == 2:
            return any(
                (first[0], last[1]) == (x, z) and first[1] == last[0] and first[1] not in (x, z)
                for first, last in ((one, two), (two, one))
                if isinstance(first[1], p.Var)
            )
    return False


def _is_symmetric(rule: p.Rule) -> bool:
    """`p(y, x) if p(x, y)`."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as y, p.Var() as x), (only,) if x != y and len(rule.body) == 1:
            return only == (x, y)
    return False


def _own_calls(rule: p.Rule) -> list[tuple[p.Term, ...]]:
    """The arguments of the calls of its own predicate, of as many arguments."""
    own = (rule.head.predicate, len(rule.head.args))
    return [each.args for each in rule.body if isinstance(each, p.Atom) and (each.predicate, len(each.args)) == own]
