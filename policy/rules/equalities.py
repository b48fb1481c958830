"""The equalities of one conjunction are removed by substitution.

    x = y and y = "a" and p(x, z)   ->   x, y are "a";  p("a", z)

A variable that equals `@current_unix_time` is replaced by it. But a head cannot contain the time, so a variable of the
head stays, with two comparisons:

    p(x) if x = @current_unix_time  ->  p(x) if x <= @current_unix_time and x >= @current_unix_time
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policy.language.source import Span
from policy.rules.program import Compare, Now, Term, Var
from policy.values import INTEGER, Value

NOW = Now()
Substitution = dict[Var, Term]


@dataclass(slots=True)
class Solved:
    substitution: Substitution = field(default_factory=dict)
    compares: list[tuple[Compare, Span]] = field(default_factory=list)  # for what substitution cannot express
    contradiction: tuple[Span, Term, Term] | None = None


def solve(equations: Iterable[tuple[Term, Term, Span]], kept: tuple[Term, ...]) -> Solved:
    """Return a substitution that makes all equations true. It rather replaces others by variables in `kept`."""
    solved = Solved()
    groups = _Groups()
    for left, right, span in equations:
        groups.unite(left, right, span)
    for members, span in groups.all():
        _settle(members, span, kept, solved)
    return solved


def substituted(term: Term, by: Mapping[Var, Term]) -> Term:
    """Return what the substitution replaces the term with, or the term itself."""
    return by.get(term, term) if isinstance(term, Var) else term


class _Groups:
    """Terms that must be equal (union by renaming the smaller group)."""

    def __init__(self) -> None:
        self._of: dict[Term, list[Term]] = {}
        self._span: dict[int, Span] = {}

    def unite(self, left: Term, right: Term, span: Span) -> None:
        a, b = (self._of.setdefault(term, [term]) for term in (left, right))
        if a is not b:
            large, small = (a, b) if len(a) >= len(b) else (b, a)
            large += small
            self._of.update(dict.fromkeys(small, large))
        self._span[id(self._of[left])] = span

    def all(self) -> Iterable[tuple[list[Term], Span]]:
        unique = {id(group): group for group in self._of.values()}
        return [(group, self._span[key]) for key, group in unique.items()]


def _settle(members: list[Term], span: Span, kept: tuple[Term, ...], solved: Solved) -> None:
    values = [term for term in members if isinstance(term, Value)]
    variables = [term for term in members if isinstance(term, Var)]
    is_now = NOW in members
    if len(values) > 1 or (is_now and values and values[0].type != INTEGER):
        solved.contradiction = (span, values[0], values[1] if len(values) > 1 else NOW)
        return
    chosen = _representative(values, variables, kept, is_now)
    solved.substitution.update((variable, chosen) for variable in variables if variable != chosen)
    if is_now and isinstance(chosen, Value):
        solved.compares.append((Compare("=", NOW, chosen), span))
    elif is_now and isinstance(chosen, Var):
        solved.compares += [(Compare("<=", chosen, NOW), span), (Compare(">=", chosen, NOW), span)]


def _representative(values: list[Value], variables: list[Var], kept: tuple[Term, ...], is_now: bool) -> Term:
    if values:
        return values[0]
    present = set(variables)
    in_head = [term for term in kept if term in present]
    if in_head:
        return in_head[0]
    return NOW if is_now else variables[0]
