"""Recursion that moves one argument at a time -> paths of each argument on its own.

    has_role(u, r, f) if has_group(u, t) and has_role(t, r, f)              a hop of argument 0
    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)     a hop of argument 2
    has_role(u, r, f) if fact has_role(u, r, f)

becomes, if the hops of one argument do not depend on the others,

    has_role(u, r, f) if path 0(u, w) and path 1(f, g) and has_role core(w, r, g)
    has_role core(u, r, f) if fact has_role(u, r, f)
    path 0(u, u)
    path 0(u, w) if has_group(u, t) and path 0(t, w)

where `core` has the clauses that are no hops. Groups and folders are then followed separately and joined at the facts,
not followed as pairs: the cost is a sum, not a product. If a rule of the recursion is no hop, such as

    has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g) and not barred(u, f)

then `core` would recurse, too, and each of its steps would follow all groups again: nothing is separated.

Hops without a cycle are separated as well if the literals that they go by recurse: say, groups of groups for the users,
and for `f` a repository in a project in an organization. Each of these three would otherwise follow the groups again.
"""

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
)
from checks.engine.rules.hops import ComponentOf, Hop, Hops, are_cyclic, hop_of, reaches, with_call
from checks.engine.rules.limits import tick
from checks.engine.rules.unify import applied
from policy.rules.components import Components

Moves = list[tuple[int, Hop]]  # the hops among the clauses of a pattern, each with the argument that it moves
MovesOf = Callable[[Pattern], Moves | None]  # None: a clause that is no hop recurses, too


class Separated:
    """The pass. The clauses of a path add a hop at its start or, if asked for `backward`, at its end."""

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._component = Components(lambda pattern: calls_made(clauses(pattern)), tick).number
        self._hops: dict[tuple[str, Path], Hops] = {}  # of each path
        self._made: dict[tuple[Pattern, bool], tuple[Clause, ...]] = {}
        # Remembered, since each pattern also looks at the hops of all patterns that it leads to.
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
        """Return the clauses with facts turned back into calls where that shows hops (see `with_call`)."""
        return tuple([with_call(each, pattern, self._clauses) for each in self._clauses(pattern)])

    def _without_hops(self, pattern: Pattern, core: Core) -> Iterator[Clause]:
        """Yield the clauses that are no hops, with only the names of `core` known: those that no path follows.

        With a name that became known later, more of the clauses may be hops, but no path has followed those.
        """
        whole = replace(pattern, consts=core.consts, subset=ClauseSubset.WHOLE)
        clauses = self._called(whole) if core.is_ground else self._clauses(whole)
        for each in clauses:
            if hop_of(each, whole, self._component) is None:
                made = each if pattern.consts == core.consts else applied(each, pattern.params)
                if made is not None:
                    yield made if made is each else canonical(made)

    def _separate(self, pattern: Pattern, factors: Factors, is_ground: bool) -> Iterator[Clause]:
        """Yield a clause for each combination of types that hops lead to: the paths that lead there, and the core.

        Combinations whose core has no clauses, or that no path leads to, are left out.
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
        """Return the path of these hops, and the predicate that it was made for: others with equal hops share it."""
        for path, known in self._hops.items():
            if all(known.get(kind, each) == each for kind, each in hops.items()):
                known.update(hops)
                return path
        made = (predicate, Path(len(self._hops)))
        self._hops[made] = dict(hops)
        return made

    def _can_hold(self, pattern: Pattern) -> bool:
        """Say, of a path, whether hops lead from one type to the other; of a core, whether it has clauses."""
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
        """Say whether several arguments hop and some hop goes by a recursive call.

        Without separation, that call would be followed again for each hop of another argument.
        """
        hops = (hop for _, table in self.hops for each in table.values() for hop in each)
        calls = (call for hop in hops for call in mentioned(hop.clause.body))
        return len(self.hops) > 1 and any(component(pattern_of(call)) is not None for call in calls)


def factors_of(pattern: Pattern, moves_of: MovesOf) -> Factors | None:
    """Return the separate hops that make up the pattern's recursion; None where they are not all of it."""
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
    """Return the hops among the clauses; None where a clause that is no hop recurses, or where one is of a closure."""
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
    """Say whether the clause calls something that leads back to the pattern."""
    own = component(pattern)
    return own is not None and any(component(called) == own for called in calls_made((clause,)))


def _moved(pattern: Pattern, index: int, name: str) -> Pattern:
    types = (*pattern.types[:index], name, *pattern.types[index + 1 :])
    return Pattern(pattern.predicate, types, pattern.consts, pattern.subset)


def _independent(found: dict[Pattern, Moves]) -> dict[int, Hops] | None:
    """Return the hops of each argument, by its type; None where they depend on another argument's type."""
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
    """Return a variable of the type `name` that is not in the clause."""
    return Var(1 + max(variable.number for variable in clause.variables), type=name)
