"""Recursion that moves one argument at a time -> paths of each argument on its own.

    has_role(u, r, f) if has_group(u, t) and has_role(t, r, f)              a hop of argument 0
    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)     a hop of argument 2
    has_role(u, r, f) if fact has_role(u, r, f)

becomes, where each hop is there whatever the other arguments are,

    has_role(u, r, f) if path 0(u, w) and path 1(f, g) and has_role core(w, r, g)
    has_role core(u, r, f) if fact has_role(u, r, f)
    path 0(u, u)
    path 0(u, w) if has_group(u, t) and path 0(t, w)

with `core` the clauses that are no hops. Groups and folders are then followed apart and meet at the facts, instead
of as pairs: a sum where there was a product. Where one rule of the recursion is no hop, as

    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g) and not barred(u, f)

`core` would recurse as well, and each of its steps would follow all groups again: then nothing is followed apart.

The recursion may be that of what a hop goes by: of groups of groups, where `f` is a repository below a project below an
organization. Each of these would follow the groups again, so they are followed apart as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Core,
    Literal,
    Part,
    Path,
    Pattern,
    Var,
    calls_made,
    canonical,
    mentioned,
    pattern_of,
)
from checks.engine.rules.hops import ComponentOf, Hop, Hops, are_cyclic, hop_of, leads, with_call
from checks.engine.rules.limits import tick
from checks.engine.rules.unify import applied
from policy.rules.components import Components

Moves = list[tuple[int, Hop]]  # the hops among the clauses of a pattern, each with the argument that it moves
MovesOf = Callable[[Pattern], Moves | None]  # None: another clause recurses, too


class Separated:
    """The pass. The clauses of a path go on at its start, or at its end where they are asked for `backward`."""

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._component = Components(lambda pattern: calls_made(clauses(pattern)), tick).number
        self._hops: dict[tuple[str, Path], Hops] = {}  # of each path
        self._made: dict[tuple[Pattern, bool], tuple[Clause, ...]] = {}
        # Once for each: every pattern that leads to another one looks at the other's.
        self._moves = cache(lambda pattern: _moves_of(pattern, clauses(pattern), self._component))
        self._moves_called = cache(lambda pattern: _moves_of(pattern, self._called(pattern), self._component))

    def __call__(self, pattern: Pattern, backward: bool = False) -> tuple[Clause, ...]:
        key = (pattern, backward and pattern.is_path)
        if key not in self._made:
            self._made[key] = tuple(self._make(*key))
        return self._made[key]

    def _make(self, pattern: Pattern, backward: bool) -> Iterable[Clause]:
        if isinstance(pattern.part, Path):
            return _path_clauses(pattern, self._hops[pattern.predicate, pattern.part], backward)
        if isinstance(pattern.part, Core):
            return self._without_hops(pattern, pattern.part)
        if pattern.part == Part.WHOLE:
            factors = factors_of(pattern, self._moves)
            if factors is not None and factors.are_cyclic:
                return self._separate(pattern, factors, is_ground=False)
            factors = factors_of(pattern, self._moves_called)
            if factors is not None and not factors.are_cyclic and factors.go_by_recursion(self._component):
                return self._separate(pattern, factors, is_ground=True)
        return self._clauses(pattern)

    def _called(self, pattern: Pattern) -> tuple[Clause, ...]:
        """The clauses, with calls for the facts that these come to (see `with_call`)."""
        return tuple([with_call(each, pattern, self._clauses) for each in self._clauses(pattern)])

    def _without_hops(self, pattern: Pattern, core: Core) -> Iterator[Clause]:
        """The clauses that paths do not follow. For a name that is known by now, more of them may be hops: no path
        has followed those."""
        whole = replace(pattern, consts=core.consts, part=Part.WHOLE)
        clauses = self._called(whole) if core.is_ground else self._clauses(whole)
        for each in clauses:
            if hop_of(each, whole, self._component) is None:
                made = each if pattern.consts == core.consts else applied(each, pattern.params)
                if made is not None:
                    yield made if made is each else canonical(made)

    def _separate(self, pattern: Pattern, factors: Factors, is_ground: bool) -> Iterator[Clause]:
        """For each combination of types: paths that lead there, and the core, as far as there are any."""
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
        """The path of these hops, and the first predicate that has them: the same one, whatever predicate asks."""
        for path, known in self._hops.items():
            if all(known.get(kind, each) == each for kind, each in hops.items()):
                known.update(hops)
                return path
        made = (predicate, Path(len(self._hops)))
        self._hops[made] = dict(hops)
        return made

    def _can_hold(self, pattern: Pattern) -> bool:
        """Whether hops lead from one type to the other, or a core has clauses."""
        if isinstance(pattern.part, Path):
            return leads(self._hops[pattern.predicate, pattern.part], *pattern.types)
        return bool(self(pattern))


# ---- what falls apart --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Factors:
    """The arguments that hop, with their hops, and every combination of types that hops lead to."""

    hops: tuple[tuple[int, Hops], ...]
    patterns: tuple[Pattern, ...]

    @property
    def are_cyclic(self) -> bool:
        return any(are_cyclic(table) for _, table in self.hops)

    def go_by_recursion(self, component: ComponentOf) -> bool:
        """Whether a hop goes by what recurses itself, which would be followed again for each of another argument."""
        hops = (hop for _, table in self.hops for each in table.values() for hop in each)
        calls = (call for hop in hops for call in mentioned(hop.clause.body))
        return len(self.hops) > 1 and any(component(pattern_of(call)) is not None for call in calls)


def factors_of(pattern: Pattern, moves_of: MovesOf) -> Factors | None:
    """How the pattern's recursion falls apart; None where it does not, or not all of it."""
    found: dict[Pattern, Moves] = {}
    queue = [pattern]
    for each in queue:  # which grows meanwhile
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
    """The clauses that hop; None where another one recurses, or where they are steps from anything to anything."""
    found = []
    for clause in clauses:
        if any(isinstance(each, Call) and each.part in (Part.STEP, Part.UNCLOSED) for each in clause.body):
            return None
        hop = hop_of(clause, pattern, component)
        if hop is not None:
            found.append(hop)
        elif _calls_back(clause, pattern, component):
            return None
    return found


def _calls_back(clause: Clause, pattern: Pattern, component: ComponentOf) -> bool:
    """Whether the clause calls what leads back to the pattern."""
    own = component(pattern)
    return own is not None and any(component(called) == own for called in calls_made((clause,)))


def _moved(pattern: Pattern, index: int, name: str) -> Pattern:
    types = (*pattern.types[:index], name, *pattern.types[index + 1 :])
    return Pattern(pattern.predicate, types, pattern.consts, pattern.part)


def _independent(found: dict[Pattern, Moves]) -> dict[int, Hops] | None:
    """The hops of each argument by its type; None where they depend on another argument's type."""
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
    """`path(x, x)`, and one hop more at the start or, backward, at the end."""
    start, end = pattern.types
    if start == end:
        own = Var(0, type=start)
        yield Clause((own, own), ())
    yield from _one_more_at_end(pattern, hops) if backward else _one_more_at_start(pattern, hops)


def _one_more_at_start(pattern: Pattern, hops: Hops) -> Iterator[Clause]:
    """`path(x, z) if … and path(y, z)`, of hops `(x, y) if …`."""
    start, end = pattern.types
    for hop in hops.get(start, ()):
        if leads(hops, hop.target, end):
            x, y = hop.clause.params
            z = _another(hop.clause, end)
            call = Call(pattern.predicate, (hop.target, end), (y, z), pattern.part)
            yield Clause((x, z), (*hop.clause.body, call))


def _one_more_at_end(pattern: Pattern, hops: Hops) -> Iterator[Clause]:
    """`path(w, y) if … and path(w, x)`, of hops `(x, y) if …`."""
    start, end = pattern.types
    for middle, each in hops.items():
        for hop in each:
            if hop.target == end and leads(hops, start, middle):
                x, y = hop.clause.params
                w = _another(hop.clause, start)
                call = Call(pattern.predicate, (start, middle), (w, x), pattern.part)
                yield Clause((w, y), (*hop.clause.body, call))


def _another(clause: Clause, name: str) -> Var:
    """A variable of that type which the clause does not have."""
    return Var(1 + max(variable.number for variable in clause.variables), type=name)
