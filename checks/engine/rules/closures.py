"""Rules that close a relation over values of many types -> a step, and one more step.

    linked(x, y) if near(x, y);                             linked(x, y) if linked step(x, y)
    linked(y, x) if linked(x, y);                           linked(x, z) if linked(x, y) and linked step(y, z)
    linked(x, z) if linked(x, y) and linked(y, z);      ->  linked step(x, y) if linked unclosed(x, y)
                                                            linked step(x, y) if linked unclosed(y, x)
                                                            linked unclosed(x, y) if near(x, y)

A relation that is reached by steps is transitive. It is symmetric too if each step may be taken backward. The other
rules, and stored facts, make up `unclosed`; they may even call the relation itself. All variables of the transitive and
symmetric rules must have the same types: otherwise one more step may lead to a value that no rule leads to. Transitive
rules over a single type do not need this pass (see `linearise`).
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
    rules: tuple[p.Rule, ...]  # the transitive and symmetric ones

    def clauses(self, predicate: str, types: tuple[str, ...]) -> Iterator[Clause]:
        """Yield the clauses of `linked(x, y)` for these types: one step, or `linked` and then one step."""
        start, end = types
        step = Part.STEP if self.is_symmetric else Part.UNCLOSED
        x, z = Var(0, type=start), Var(1, type=end)
        yield Clause((x, z), (Call(predicate, types, (x, z), step),))
        for name in sorted(self.types):
            y = Var(2, type=name)
            so_far = Call(predicate, (start, name), (x, y))
            yield Clause((x, z), (so_far, Call(predicate, (name, end), (y, z), step)))

    def steps(self, predicate: str, types: tuple[str, ...]) -> Iterator[Clause]:
        """Yield the clauses of one step for these types: forward or backward."""
        start, end = types
        x, y = Var(0, type=start), Var(1, type=end)
        yield Clause((x, y), (Call(predicate, types, (x, y), Part.UNCLOSED),))
        yield Clause((x, y), (Call(predicate, (end, start), (y, x), Part.UNCLOSED),))


def closure_of(rules: tuple[p.Rule, ...]) -> Closure | None:
    """Return the closure that a predicate's rules describe; None where no rule says that it is transitive, where these
    rules are about a single type, or where their variables have different types.
    """
    transitive, symmetric = list(filter(_is_transitive, rules)), list(filter(_is_symmetric, rules))
    types = {names for rule in (*transitive, *symmetric) for names in rule.types.values()}
    if not transitive or len(types) != 1 or len(min(types)) < 2:
        return None
    return Closure(min(types), bool(symmetric), (*transitive, *symmetric))


def _is_transitive(rule: p.Rule) -> bool:
    """Say whether the rule is `p(x, z) if p(x, y) and p(y, z)`, its calls in either order."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as x, p.Var() as z), (one, two) if x != z and len(rule.body) == 2:
            return any(
                (first[0], last[1]) == (x, z) and first[1] == last[0] and first[1] not in (x, z)
                for first, last in ((one, two), (two, one))
                if isinstance(first[1], p.Var)
            )
    return False


def _is_symmetric(rule: p.Rule) -> bool:
    """Say whether the rule is `p(y, x) if p(x, y)`."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as y, p.Var() as x), (only,) if x != y and len(rule.body) == 1:
            return only == (x, y)
    return False


def _own_calls(rule: p.Rule) -> list[tuple[p.Term, ...]]:
    """Return the arguments of each call in the body to the head's own predicate, with as many arguments as the head."""
    own = (rule.head.predicate, len(rule.head.args))
    return [each.args for each in rule.body if isinstance(each, p.Atom) and (each.predicate, len(each.args)) == own]
