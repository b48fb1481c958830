"""Rules by which a predicate is transitive or symmetric -> a step, and one more step.

    linked(x, y) if near(x, y);                             linked(x, y) if linked step(x, y)
    linked(y, x) if linked(x, y);                           linked(x, z) if linked(x, y) and linked step(y, z)
    linked(x, z) if linked(x, y) and linked(y, z);      ->  linked step(x, y) if linked unclosed(x, y)
                                                            linked step(x, y) if linked unclosed(y, x)
                                                            linked unclosed(x, y) if near(x, y)

A predicate that is reached by steps is transitive. It is symmetric too if each step may be taken backward. The other
rules, and stored facts, make up `unclosed`; they may even call the predicate itself. A transitive rule may have guards,
such as `not is_blocked(y)`, which say at which values two steps may meet (see `linearise`). The ends of all transitive
and symmetric rules must have the same types: otherwise one more step may lead to a value that no rule leads to. A value
of another type that two steps meet at is inside of one step of the closure: `linked unclosed(x, z) if linked(x, y) and
linked(y, z)`. What is only transitive, and over values of a single type, does not need this pass (see
`linearise`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from checks.engine.rules.clauses import Call, Clause, ClauseSubset, Literal, Pattern, Var, canonical, renumbered
from policy.rules import program as p
from policy.rules.flatten import terms_of

_BETWEEN = 2  # the number of y in the clauses of closures, after x and z


@dataclass(frozen=True, slots=True)
class Closure:
    types: p.Types
    rules: tuple[p.Rule, ...]  # the transitive and symmetric ones
    guards: tuple[p.Rule, ...]  # of each transitive rule: `linked(y) if …`, for the values y that two steps may meet at
    outside: tuple[p.Rule, ...]  # each transitive rule for values between of other types: this is a rule like others
    is_symmetric: bool

    @property
    def _step(self) -> ClauseSubset:
        return ClauseSubset.STEP if self.is_symmetric else ClauseSubset.UNCLOSED

    def first_step(self, pattern: Pattern) -> Clause:
        """Return `linked(x, z) if linked step(x, z)`."""
        x, z = (Var(index, type=name) for index, name in enumerate(pattern.types))
        return Clause((x, z), (Call(pattern.predicate, pattern.types, (x, z), self._step),))

    def next_step(self, pattern: Pattern, y: Var) -> Clause:
        """Return `linked(x, z) if linked(x, y) and linked step(y, z)`."""
        start, end = pattern.types
        x, z = Var(0, type=start), Var(1, type=end)
        so_far = Call(pattern.predicate, (start, y.type), (x, y))
        step = Call(pattern.predicate, (y.type, end), (y, z), self._step)
        return Clause((x, z), (so_far, step))

    def steps(self, pattern: Pattern) -> Iterator[Clause]:
        """Yield the clauses of one step: forward or backward."""
        start, end = pattern.types
        x, y = Var(0, type=start), Var(1, type=end)
        yield Clause((x, y), (Call(pattern.predicate, (start, end), (x, y), ClauseSubset.UNCLOSED),))
        yield Clause((x, y), (Call(pattern.predicate, (end, start), (y, x), ClauseSubset.UNCLOSED),))


def value_between(guard: p.Rule, type_name: str) -> Var:
    """Return the y that the guard is about, as a variable of this type in the closure's clauses."""
    (y,) = guard.head.args
    assert isinstance(y, p.Var), "a guard is about any value"
    return Var(_BETWEEN, y.name, type_name)


def about_between(guard: Clause) -> tuple[Literal, ...]:
    """Return what the guard says of y, with its variables numbered on from x and z."""
    numbered = canonical(guard)
    moved = {each.number: each.numbered(each.number + _BETWEEN) for each in numbered.variables}
    return tuple([renumbered(literal, moved) for literal in numbered.body])


def closure_of(rules: tuple[p.Rule, ...]) -> Closure | None:
    """Return the closure that a predicate's rules describe; None where no rule says that it is transitive, where its
    only rules of this kind are transitive ones over values of a single type, or where their ends have different types.
    """
    transitive, symmetric = tuple(filter(_is_transitive, rules)), tuple(filter(_is_symmetric, rules))
    ends = {each for rule in (*transitive, *symmetric) for each in _types_in(rule, rule.head)}
    if not transitive or len(ends) != 1:
        return None
    types = min(ends)
    outside = tuple(rule for each in transitive for rule in _outside(each, types))
    if len(types) < 2 and not symmetric and not outside:
        return None
    return Closure(types, (*transitive, *symmetric), tuple(map(_guard, transitive)), outside, bool(symmetric))


def _outside(rule: p.Rule, types: p.Types) -> Iterator[p.Rule]:
    """Yield the transitive rule for values between that are of none of these types, where there can be any."""
    y = _between(rule)
    if others := rule.types[y] - types:
        yield replace(rule, types={**rule.types, y: others})


def _guard(rule: p.Rule) -> p.Rule:
    """Return `p(y) if …` of a rule `p(x, z) if p(x, y) and p(y, z) and …`."""
    own = _own_calls(rule)
    body = tuple(literal for literal in rule.body if literal not in own)
    return replace(rule, head=p.Atom(rule.head.predicate, (_between(rule),)), body=body)


def _between(rule: p.Rule) -> p.Var:
    """Return y of a rule `p(x, z) if p(x, y) and p(y, z) and …`."""
    one, two = _own_calls(rule)
    (y,) = set(one.args) & set(two.args)
    assert isinstance(y, p.Var), "rules with a value in its place are not transitive"
    return y


def _types_in(rule: p.Rule, atom: p.Atom) -> list[p.Types]:
    return [rule.types[term] for term in atom.args if isinstance(term, p.Var)]


def _is_transitive(rule: p.Rule) -> bool:
    """Say whether the rule is `p(x, z) if p(x, y) and p(y, z)`, perhaps with guards that mention neither x nor z."""
    own = _own_calls(rule)
    if len(own) != 2 or len(rule.head.args) != 2:
        return False
    x, z = rule.head.args
    one, two = own if own[0].args[0] == x else own[::-1]
    y = one.args[1]
    guards = [literal for literal in rule.body if literal not in own]
    return (
        (one.args, two.args) == ((x, y), (y, z))
        and all(isinstance(term, p.Var) for term in (x, y, z))
        and len({x, y, z}) == 3
        and {x, z}.isdisjoint(term for guard in guards for term in terms_of(guard))
    )


def _is_symmetric(rule: p.Rule) -> bool:
    """Say whether the rule is `p(y, x) if p(x, y)`."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as y, p.Var() as x), (only,) if x != y and len(rule.body) == 1:
            return only.args == (x, y)
    return False


def _own_calls(rule: p.Rule) -> list[p.Atom]:
    """Return each call in the body to the head's own predicate, with as many arguments as the head."""
    own = (rule.head.predicate, len(rule.head.args))
    return [each for each in rule.body if isinstance(each, p.Atom) and (each.predicate, len(each.args)) == own]
