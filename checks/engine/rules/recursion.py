"""Rewrite recursive clauses: closures become linear, and independent arguments get separate paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    ClauseSubset,
    Core,
    Literal,
    Path,
    Pattern,
    Var,
    calls_made,
    canonical,
    mentioned,
    pattern_of,
    renumbered,
    tick,
    variables_of,
)
from checks.engine.rules.rewrite import ComponentOf, Hop, Hops, applied, are_cyclic, hop_of, reaches, with_call
from policy.rules import program as p
from policy.rules.components import Components
from policy.rules.flatten import terms_of

# ---- Rules that make a predicate transitive or symmetric -> a step, and one more step -----------------------------
#     linked(x, y) if near(x, y);                             linked(x, y) if linked step(x, y)
#     linked(y, x) if linked(x, y);                           linked(x, z) if linked(x, y) and linked step(y, z)
#     linked(x, z) if linked(x, y) and linked(y, z);      ->  linked step(x, y) if linked unclosed(x, y)
#                                                             linked step(x, y) if linked unclosed(y, x)
#                                                             linked unclosed(x, y) if near(x, y)
#
# A predicate that is reached by steps is transitive; it is also symmetric if each step may be taken backward. The other
# rules, and stored facts, make up `unclosed`; they may even call the predicate itself. A transitive rule may have
# guards, such as `not is_blocked(y)`, on the values at which two steps may meet (see `linearised`). The ends of all
# transitive and symmetric rules must have the same types: otherwise one more step could lead to a value that no rule
# leads to. If two steps meet at a value of another type, that is part of one step of the closure: `linked unclosed(x,
# z) if linked(x, y) and linked(y, z)`. Predicates that are only transitive, over values of a single type, do not need
# this pass (see `linearised`).

_BETWEEN = 2  # number of y in the clauses of closures, after x and z


@dataclass(frozen=True, slots=True)
class Closure:
    types: p.Types
    rules: tuple[p.Rule, ...]  # the transitive and symmetric ones
    guards: tuple[p.Rule, ...]  # of each transitive rule: `linked(y) if …`, for values y at which steps may meet
    outside: tuple[p.Rule, ...]  # each transitive rule for middle values of other types: an ordinary rule
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
    """Return the y of the guard as a variable of this type in the closure's clauses."""
    (y,) = guard.head.args
    assert isinstance(y, p.Var), "a guard is about any value"
    return Var(_BETWEEN, y.name, type_name)


def about_between(guard: Clause) -> tuple[Literal, ...]:
    """Return the guard's conditions on y, with its variables numbered after x and z."""
    numbered = canonical(guard)
    moved = {each.number: each.numbered(each.number + _BETWEEN) for each in numbered.variables}
    return tuple([renumbered(literal, moved) for literal in numbered.body])


def closure_of(rules: tuple[p.Rule, ...]) -> Closure | None:
    """Return the closure that a predicate's rules describe, or None.

    None if no rule is transitive, if all these rules are transitive and over a single type, or if their ends' types
    differ.
    """
    transitive, symmetric = tuple(filter(_is_transitive, rules)), tuple(filter(_is_symmetric, rules))
    both = (*transitive, *symmetric)
    ends = {rule.types[term] for rule in both for term in rule.head.args if isinstance(term, p.Var)}
    if not transitive or len(ends) != 1:
        return None
    types = min(ends)
    outside = tuple(rule for each in transitive for rule in _outside(each, types))
    if len(types) < 2 and not symmetric and not outside:
        return None
    return Closure(types, (*transitive, *symmetric), tuple(map(_guard, transitive)), outside, bool(symmetric))


def _outside(rule: p.Rule, types: p.Types) -> Iterator[p.Rule]:
    """Yield the transitive rule for middle values of none of these types, if there can be any."""
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


def _is_transitive(rule: p.Rule) -> bool:
    """Return whether the rule is `p(x, z) if p(x, y) and p(y, z)`, maybe with guards that mention neither x nor z."""
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
    """Return whether the rule is `p(y, x) if p(x, y)`."""
    match rule.head.args, _own_calls(rule):
        case (p.Var() as y, p.Var() as x), (only,) if x != y and len(rule.body) == 1:
            return only.args == (x, y)
    return False


def _own_calls(rule: p.Rule) -> list[p.Atom]:
    """Return the calls in the body to the head's own predicate with the same number of arguments."""
    own = (rule.head.predicate, len(rule.head.args))
    return [each for each in rule.body if isinstance(each, p.Atom) and (each.predicate, len(each.args)) == own]


# ---- linearise ----------------------------------------------------------------------------------------------------
# Transitive clauses of a predicate -> linear ones, whose second call is to the predicate without those clauses.
#
# p(x, z) if p(x, y) and p(y, z) and not q(y)          p(x, z) if p(x, y) and p base(y, z) and not q(y)
# p(x, y) if fact r(x, y)                          ->  p(x, y) if fact r(x, y)
#                                                      p base(x, y) if fact r(x, y)
#
# Literals such as `not q(y)` are guards: they restrict at which values two hops may meet, but not where a path begins
# or ends. So hops can be joined in any order, in particular all but the last one first.
#
# This is done only if no other clause of the predicate is directly recursive.


def linearised(clauses: ClausesOf) -> ClausesOf:
    """The pass."""

    @cache
    def linear(pattern: Pattern) -> tuple[Clause, ...]:
        if pattern.subset == ClauseSubset.BASE:
            whole = replace(pattern, subset=ClauseSubset.WHOLE)
            return tuple(clause for clause in clauses(whole) if not _is_transitive_clause(clause, whole))
        return _with_bases(clauses(pattern), pattern)

    return linear


def _with_bases(clauses: tuple[Clause, ...], pattern: Pattern) -> tuple[Clause, ...]:
    """Return the clauses with transitive ones made linear; unchanged if another clause mentions the predicate.

    Without such a clause, both forms mean the same.
    """
    transitive = [clause for clause in clauses if _is_transitive_clause(clause, pattern)]
    others = [clause for clause in clauses if clause not in transitive]
    if any(call.predicate == pattern.predicate for clause in others for call in mentioned(clause.body)):
        return clauses
    return (*others, *(_based(clause, pattern) for clause in transitive))


def _based(clause: Clause, pattern: Pattern) -> Clause:
    """Return the transitive clause with its second call changed to the base."""
    hops = _hops(clause, pattern)
    assert hops, "only transitive clauses have a base"
    return Clause(clause.params, (hops.one, replace(hops.two, subset=ClauseSubset.BASE), *hops.guards))


def _is_transitive_clause(clause: Clause, pattern: Pattern) -> bool:
    """Return whether the clause is transitive, and the base of its second call has the same guards.

    From a user to a team, and on from team to team, other clauses of other types may have other guards.
    """
    hops = _hops(clause, pattern)
    if hops is None or hops.one.types != pattern.types:
        return False
    return not hops.guards or hops.two.types == pattern.types


@dataclass(frozen=True, slots=True)
class _Hops:
    """A transitive clause: `p(x, z) if p(x, y) and p(y, z)`, with equal constants for all other arguments."""

    one: Call  # from x to y
    two: Call  # from y to z
    guards: tuple[Literal, ...]  # on y


def _hops(clause: Clause, pattern: Pattern) -> _Hops | None:
    """Return the hops of a transitive clause, between values of any types; None if it is not transitive."""
    calls = [each for each in clause.body if isinstance(each, Call) and _is_of(each, pattern)]
    guards = tuple(each for each in clause.body if each not in calls)
    ends = [index for index, param in enumerate(clause.params) if isinstance(param, Var)]
    if len(calls) != 2 or len(ends) != 2 or any(_is_of(call, pattern) for call in mentioned(guards)):
        return None
    first, last = ends
    x, z = clause.params[first], clause.params[last]
    if x == z or not {x, z}.isdisjoint(variables_of(guards)):
        return None
    for one, two in (calls, calls[::-1]):
        middle = (index for index in range(len(clause.params)) if index not in ends)
        same = all(one.args[index] == two.args[index] == clause.params[index] for index in middle)
        joined = one.args[last] == two.args[first] and isinstance(one.args[last], Var)
        outer = one.args[first] == x and two.args[last] == z
        if same and joined and outer and one.args[last] not in clause.params:
            return _Hops(one, two, guards)
    return None


def _is_of(call: Call, pattern: Pattern) -> bool:
    return (call.predicate, call.subset, len(call.args)) == (pattern.predicate, pattern.subset, len(pattern.types))


# ---- Recursion that moves one argument at a time -> a path for each argument --------------------------------------
#     has_role(u, r, f) if has_group(u, t) and has_role(t, r, f)              a hop of argument 0
#     has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)     a hop of argument 2
#     has_role(u, r, f) if fact has_role(u, r, f)
#
# becomes, if the hops of one argument do not depend on the others,
#
#     has_role(u, r, f) if path 0(u, w) and path 1(f, g) and has_role core(w, r, g)
#     has_role core(u, r, f) if fact has_role(u, r, f)
#     path 0(u, u)
#     path 0(u, w) if has_group(u, t) and path 0(t, w)
#
# where `core` has the clauses that are not hops. Groups and folders are then followed separately and joined at the
# facts, not followed as pairs: the cost is a sum, not a product. If a recursive rule is not a hop, such as
#
#     has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g) and not barred(u, f)
#
# then `core` would recurse, too, and each of its steps would follow all groups again; nothing is separated then.
#
# Acyclic hops are separated as well if the literals in them recurse: say, groups of groups for the users, and for `f` a
# repository in a project in an organization. Otherwise each of these three would follow the groups again.

Moves = list[tuple[int, Hop]]  # the hops among a pattern's clauses, each with the argument that it moves
MovesOf = Callable[[Pattern], Moves | None]  # None: a clause that is not a hop recurses, too


class Separated:
    """The pass. The clauses of a path add a hop at its start or, with `backward`, at its end."""

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._component = Components(lambda pattern: calls_made(clauses(pattern)), tick).number
        self._hops: dict[tuple[str, Path], Hops] = {}  # by path
        self._made: dict[tuple[Pattern, bool], tuple[Clause, ...]] = {}
        # Cached, since each pattern also inspects the hops of all patterns that it leads to.
        self._moves = cache(lambda pattern: _moves_of(pattern, clauses(pattern), self._component))
        self._moves_called = cache(lambda pattern: _moves_of(pattern, self._called(pattern), self._component))

    def __call__(self, pattern: Pattern, backward: bool = False) -> tuple[Clause, ...]:
        key = (pattern, backward and pattern.is_path)
        if key not in self._made:
            self._made[key] = tuple(self._make(*key))
        return self._made[key]

    def _make(self, pattern: Pattern, backward: bool) -> Iterable[Clause]:
        if isinstance(pattern.subset, Path):
            return _path_clauses(pattern, self._hops[pattern.predicate, pattern.subset], backward)
        if isinstance(pattern.subset, Core):
            return self._without_hops(pattern, pattern.subset)
        if pattern.subset == ClauseSubset.WHOLE:
            factors = factors_of(pattern, self._moves)
            if factors is not None and factors.are_cyclic:
                return self._separate(pattern, factors, is_ground=False)
            factors = factors_of(pattern, self._moves_called)
            if factors is not None and not factors.are_cyclic and factors.go_by_recursion(self._component):
                return self._separate(pattern, factors, is_ground=True)
        return self._clauses(pattern)

    def _called(self, pattern: Pattern) -> tuple[Clause, ...]:
        """Return the clauses, with facts turned back into calls where that reveals hops (see `with_call`)."""
        return tuple([with_call(each, pattern, self._clauses) for each in self._clauses(pattern)])

    def _without_hops(self, pattern: Pattern, core: Core) -> Iterator[Clause]:
        """Yield the clauses that are not hops with only the names of `core` known: those that no path follows.

        With names that became known later, more clauses may be hops, but no path has followed those.
        """
        whole = replace(pattern, consts=core.consts, subset=ClauseSubset.WHOLE)
        clauses = self._called(whole) if core.is_ground else self._clauses(whole)
        for each in clauses:
            if hop_of(each, whole, self._component) is None:
                made = each if pattern.consts == core.consts else applied(each, pattern.params)
                if made is not None:
                    yield made if made is each else canonical(made)

    def _separate(self, pattern: Pattern, factors: Factors, is_ground: bool) -> Iterator[Clause]:
        """Yield a clause for each combination of types that hops lead to: the paths to it, and the core.

        Combinations whose core has no clauses, or that no path leads to, are skipped.
        """
        paths = {index: self._path(pattern.predicate, hops) for index, hops in factors.hops}
        params = pattern.params
        for target in factors.patterns:
            args = list(params)
            body: list[Literal] = []
            for index, (predicate, path) in paths.items():
                types = (pattern.types[index], target.types[index])
                args[index] = Var(len(params) + index, type=types[1])
                body.append(Call(predicate, types, (params[index], args[index]), path))
            body.append(Call(pattern.predicate, target.types, tuple(args), Core(target.consts, is_ground)))
            clause = Clause(params, tuple(body))
            if all(map(self._can_hold, calls_made((clause,)))):
                yield clause

    def _path(self, predicate: str, hops: Hops) -> tuple[str, Path]:
        """Return the path for these hops, and the predicate it was created for; equal hops share a path."""
        for path, known in self._hops.items():
            if all(known.get(kind, each) == each for kind, each in hops.items()):
                known.update(hops)
                return path
        made = (predicate, Path(len(self._hops)))
        self._hops[made] = dict(hops)
        return made

    def _can_hold(self, pattern: Pattern) -> bool:
        """Return whether hops connect the path's types; for a core, whether it has clauses."""
        if isinstance(pattern.subset, Path):
            return reaches(self._hops[pattern.predicate, pattern.subset], *pattern.types)
        return bool(self(pattern))


# ---- what falls apart --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Factors:
    """The arguments that hops move, with their hops; and a pattern for each combination of types that hops lead to."""

    hops: tuple[tuple[int, Hops], ...]
    patterns: tuple[Pattern, ...]

    @property
    def are_cyclic(self) -> bool:
        return any(are_cyclic(table) for _, table in self.hops)

    def go_by_recursion(self, component: ComponentOf) -> bool:
        """Return whether several arguments hop and some hop depends on a recursive call.

        Without separation, that call would be followed again for each hop of another argument.
        """
        hops = (hop for _, table in self.hops for each in table.values() for hop in each)
        calls = (call for hop in hops for call in mentioned(hop.clause.body))
        return len(self.hops) > 1 and any(component(pattern_of(call)) is not None for call in calls)


def factors_of(pattern: Pattern, moves_of: MovesOf) -> Factors | None:
    """Return the separate hops that make up the pattern's recursion; None if they are not all of it."""
    found: dict[Pattern, Moves] = {}
    queue = [pattern]
    for each in queue:  # grows during the loop
        tick()
        if each not in found:
            hops = moves_of(each)
            if hops is None:
                return None
            found[each] = hops
            queue += [_moved(each, index, hop.target) for index, hop in hops]
    tables = _independent(found)
    return Factors(tuple(sorted(tables.items())), tuple(found)) if tables else None


def _moves_of(pattern: Pattern, clauses: tuple[Clause, ...], component: ComponentOf) -> Moves | None:
    """Return the hops among the clauses; None if another clause recurses, or if a clause belongs to a closure."""
    found = []
    for clause in clauses:
        if any(
            isinstance(each, Call) and each.subset in (ClauseSubset.STEP, ClauseSubset.UNCLOSED) for each in clause.body
        ):
            return None
        hop = hop_of(clause, pattern, component)
        if hop is not None:
            found.append(hop)
        elif _calls_back(clause, pattern, component):
            return None
    return found


def _calls_back(clause: Clause, pattern: Pattern, component: ComponentOf) -> bool:
    """Return whether the clause calls something that leads back to the pattern."""
    own = component(pattern)
    return own is not None and any(component(called) == own for called in calls_made((clause,)))


def _moved(pattern: Pattern, index: int, name: str) -> Pattern:
    types = (*pattern.types[:index], name, *pattern.types[index + 1 :])
    return Pattern(pattern.predicate, types, pattern.consts, pattern.subset)


def _independent(found: dict[Pattern, Moves]) -> dict[int, Hops] | None:
    """Return the hops of each argument, by its type; None if they depend on another argument's type."""
    every: dict[int, Hops] = {}
    moving = {index for hops in found.values() for index, _ in hops}
    for pattern, hops in found.items():
        for index in moving:
            own = tuple(hop for at, hop in hops if at == index)
            table = every.setdefault(index, {})
            if table.setdefault(pattern.types[index], own) != own:
                return None
    return every


# ---- the clauses of paths ----------------------------------------------------------------------------------------


def _path_clauses(pattern: Pattern, hops: Hops, backward: bool) -> Iterator[Clause]:
    """Yield `path(x, x)`, and clauses for one more hop: at the start or, if backward, at the end."""
    start, end = pattern.types
    if start == end:
        own = Var(0, type=start)
        yield Clause((own, own), ())
    yield from _one_more_at_end(pattern, hops) if backward else _one_more_at_start(pattern, hops)


def _one_more_at_start(pattern: Pattern, hops: Hops) -> Iterator[Clause]:
    """Yield `path(x, z) if … and path(y, z)` for each hop `(x, y) if …`."""
    start, end = pattern.types
    for hop in hops.get(start, ()):
        if reaches(hops, hop.target, end):
            x, y = hop.clause.params
            z = _another(hop.clause, end)
            call = Call(pattern.predicate, (hop.target, end), (y, z), pattern.subset)
            yield Clause((x, z), (*hop.clause.body, call))


def _one_more_at_end(pattern: Pattern, hops: Hops) -> Iterator[Clause]:
    """Yield `path(w, y) if … and path(w, x)` for each hop `(x, y) if …`."""
    start, end = pattern.types
    for middle, each in hops.items():
        for hop in each:
            if hop.target == end and reaches(hops, start, middle):
                x, y = hop.clause.params
                w = _another(hop.clause, start)
                call = Call(pattern.predicate, (start, middle), (w, x), pattern.subset)
                yield Clause((w, y), (*hop.clause.body, call))


def _another(clause: Clause, name: str) -> Var:
    """Return a variable of the type `name` that does not occur in the clause."""
    return Var(1 + max(variable.number for variable in clause.variables), type=name)
