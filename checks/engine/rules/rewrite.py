"""Simplify clauses: drop, merge and rename them without changing their meaning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Cmp,
    Const,
    Literal,
    Member,
    Neg,
    Operand,
    Pattern,
    Scan,
    Term,
    Var,
    calls_made,
    canonical,
    is_bound,
    mentioned,
    pattern_of,
    renumbered,
    substituted,
    substituted_terms,
    terms_of,
    tick,
    variables_of,
)
from policy.rules.components import Components, reachable
from policy.rules.program import Signature

# ---- Substituting a call's arguments into clauses: unification at compile time ------------------------------------


def applied(clause: Clause, args: tuple[Term, ...], params: tuple[Term, ...] | None = None) -> Clause | None:
    """Return the clause for a call with these arguments; None if two values differ.

        (x, "a") if q(x)   for the arguments (y, z)   ->   (y, "a") if q(y)

    The head is `params` (default: the arguments), with the bindings that the clause gives their variables. The clause's
    other variables get numbers that no argument has.
    """
    params = args if params is None else params
    free = max([term.number for term in (*args, *params) if isinstance(term, Var)], default=-1) + 1
    body, bound, others = unified(clause, args, lambda variable: variable.numbered(variable.number + free))
    return None if others else Clause(substituted_terms(params, bound), body)


class Unified(NamedTuple):
    """A clause's body for some arguments, what the clause binds of their variables, and values that must be equal."""

    body: tuple[Literal, ...]
    bound: Mapping[Var, Term]
    others: list[tuple[Operand, Operand]]


def unified(clause: Clause, args: tuple[Term, ...], fresh: Callable[[Var], Var]) -> Unified:
    """Unify a clause with the arguments of a call. `fresh` returns a variable that no argument has."""
    plain = _plain_bindings(clause.params, args)
    if plain is not None:
        terms = {each.number: plain.get(each.number) or fresh(each) for each in clause.variables}
        return Unified(tuple([renumbered(literal, terms) for literal in clause.body]), {}, [])
    moved = {variable: fresh(variable) for variable in clause.variables}
    bindings: dict[Var, Term] = {}
    others: list[tuple[Operand, Operand]] = []
    for param, arg in zip(substituted_terms(clause.params, moved), args):
        param, arg = _resolved(param, bindings), _resolved(arg, bindings)
        if param == arg:
            continue
        if isinstance(param, Var):
            bindings[param] = arg
        elif isinstance(arg, Var):
            bindings[arg] = param
        else:
            others.append((param, arg))
    ends = {variable: _resolved(variable, bindings) for variable in bindings}
    final = {variable.number: ends.get(own, own) for variable, own in moved.items()}
    body = tuple([renumbered(literal, final) for literal in clause.body])
    own = set(moved.values())
    return Unified(body, {variable: end for variable, end in ends.items() if variable not in own}, others)


def _plain_bindings(params: tuple[Term, ...], args: tuple[Term, ...]) -> dict[int, Term] | None:
    """Map each variable among the parameters, by its number, to its argument.

    None if the arguments do not match, or only match if variables of theirs are bound, too.
    """
    bound: dict[int, Term] = {}
    for param, arg in zip(params, args):
        known = bound.setdefault(param.number, arg) if isinstance(param, Var) else param
        if known is not arg and known != arg:
            return None
    return bound


def _resolved(term: Term, bindings: dict[Var, Term]) -> Term:
    while isinstance(term, Var) and term in bindings:
        term = bindings[term]
    return term


# ---- hops ---------------------------------------------------------------------------------------------------------
# Hops are recursive clauses that change one argument and pass the others on.
#
#     has_role(u, r, f) if has_relation(f, "parent", g) and has_role(u, r, g)
#
# is a hop of the third argument, from f to g, whatever u and r are. As a `Hop`, it is `(f, g) if has_relation(f,
# "parent", g)`.

ComponentOf = Callable[[Pattern], int | None]


@dataclass(frozen=True, slots=True)
class Hop:
    """`(x, y) if …`, and the type of y."""

    clause: Clause
    target: str

    def __str__(self) -> str:
        return str(self.clause)


Hops = dict[str, tuple[Hop, ...]]  # hops of one argument, by the type that they start from


def reaches(hops: Hops, start: str, end: str) -> bool:
    """Return whether zero or more hops lead from one type to the other."""
    return end in reachable((start,), lambda name: _targets(hops, name))


def are_cyclic(hops: Hops) -> bool:
    """Return whether hops lead from some type back to it."""
    components = Components(lambda name: _targets(hops, name))
    return any(components.number(name) is not None for name in hops)


def _targets(hops: Hops, name: str) -> list[str]:
    return [hop.target for hop in hops.get(name, ())]


# ---- which clauses hop ---------------------------------------------------------------------------------------------


def hop_of(clause: Clause, pattern: Pattern, component: ComponentOf) -> tuple[int, Hop] | None:
    """Return the index of the argument that the clause moves, and the hop; None if the clause is not a hop.

    The rest of the body must not recurse in the component of the clause's pattern, nor in that of the pattern called.
    """
    free = [param for param, const in zip(clause.params, pattern.consts) if const is None]
    if not all(isinstance(param, Var) for param in free) or len(set(free)) < len(free):
        return None  # the clause holds for some arguments only
    for place, call in enumerate(clause.body):
        if isinstance(call, Call) and (call.predicate, call.subset) == (pattern.predicate, pattern.subset):
            rest = clause.body[:place] + clause.body[place + 1 :]
            index = _moved(clause, call, rest)
            own = {component(pattern), component(pattern_of(call))}
            recurs = own - {None}
            if index is not None and not any(component(pattern_of(call)) in recurs for call in mentioned(rest)):
                ends = (clause.params[index], call.args[index])
                return index, Hop(canonical(Clause(ends, rest)), call.types[index])
    return None


def with_call(clause: Clause, pattern: Pattern, clauses: ClausesOf) -> Clause:
    """Return the clause with a fact of the pattern's predicate turned back into a call, to expose a hop.

    has_role(u, r, t) if has_relation(t, "parent", s) and fact has_role(u, r, s)
    ->  has_role(u, r, t) if has_relation(t, "parent", s) and has_role(u, r, s)

    Done if the call has a single clause, which reads the fact, and all of that clause's body is in this one. Other
    clauses are returned unchanged.
    """
    for scan in clause.body:
        if isinstance(scan, Scan) and scan.signature.predicate == pattern.predicate:
            target = replace(pattern, types=scan.signature.types)
            found = clauses(target)
            called = _called_instead(clause, scan, target, found[0]) if len(found) == 1 else None
            if called is not None:
                return called
    return clause


def _called_instead(clause: Clause, scan: Scan, target: Pattern, only: Clause) -> Clause | None:
    """Return the clause with the body of `only`, the single clause of `target`, replaced by a call of `target`.

    None if that body is not part of the clause, or if variables that the call would hide are used elsewhere.
    """
    own = [each for each in only.body if isinstance(each, Scan)]
    if len(own) != 1 or own[0].signature != scan.signature or len(clause.body) <= len(only.body):
        return None
    names: dict[Var, Term] = {}
    for inner, outer in zip(own[0].args, scan.args):
        if (names.setdefault(inner, outer) if isinstance(inner, Var) else inner) != outer:
            return None
    if not names.keys() >= set(only.variables):
        return None
    body = [substituted(each, names) for each in only.body]
    rest = tuple(each for each in clause.body if each not in body)
    args = substituted_terms(only.params, names)
    hidden = variables_of(body) - set(args)
    call = Call(target.predicate, target.types, args, target.subset)
    if pattern_of(call) != target or not set(body) <= set(clause.body):
        return None
    if hidden & (variables_of(rest) | set(clause.params)):
        return None
    return Clause(clause.params, (*rest, call))


def _moved(clause: Clause, call: Call, rest: tuple[Literal, ...]) -> int | None:
    """Return the index of the only argument in which the call differs from the head.

    None if there is no such argument, or if the rest of the body mentions other arguments or does not bind both
    variables.
    """
    moved = [index for index, (param, arg) in enumerate(zip(clause.params, call.args)) if param != arg]
    if len(moved) != 1 or len(clause.params) != len(call.args):
        return None  # a changed constant counts as moved, too
    start, end = clause.params[moved[0]], call.args[moved[0]]
    kept = {param for at, param in enumerate(clause.params) if at != moved[0]}
    if not (isinstance(start, Var) and isinstance(end, Var)) or end in clause.params or start in kept:
        return None
    positive = variables_of(each for each in rest if not isinstance(each, (Neg, Cmp)))
    is_apart = {start, end} <= positive and not kept & variables_of(rest)
    return moved[0] if is_apart else None


# ---- Clauses -> only those that some facts can make true ----------------------------------------------------------
#     p(x) if q(x) and fact r(x)          p(x) if fact s(x)
#     p(x) if fact s(x) and not q(x)  ->
#     q(x) if p(x) and q(x)
#
# A call is dead if it has no finite proof, whatever the facts. Here, each proof of `q` needs another proof of `q`, and
# the policy accepts no facts of `q`.


class Live:
    """The pass. Decides a pattern together with all that it leads to, since recursion cannot be decided in parts."""

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._found: dict[Pattern, tuple[Clause, ...]] = {}
        self._dead: set[Pattern] = set()

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        if pattern not in self._found:
            self._decide(pattern)
        return self._found[pattern]

    def _decide(self, start: Pattern) -> None:
        every: dict[Pattern, tuple[Clause, ...]] = {}

        def following(pattern: Pattern) -> list[Pattern]:
            every[pattern] = self._clauses(pattern)
            called = (pattern_of(call) for clause in every[pattern] for call in mentioned(clause.body))
            return [each for each in called if each not in self._found]

        reachable((start,), following, tick)
        self._dead |= self._dead_among(every)
        if not self._dead:
            self._found |= every
            return
        for pattern, clauses in every.items():
            self._found[pattern] = tuple(self._without_idle_tests(each) for each in clauses if self._can_hold(each))

    def _dead_among(self, every: dict[Pattern, tuple[Clause, ...]]) -> set[Pattern]:
        """Return the patterns outside of the least fixpoint of "some clause of it calls only live patterns".

        Negations do not count as calls.
        """
        needed = {pattern: [calls_made((clause,)) for clause in clauses] for pattern, clauses in every.items()}
        dead = set(every)
        while True:
            holding = dead | self._dead
            alive = {pattern for pattern in dead if any(holding.isdisjoint(calls) for calls in needed[pattern])}
            if not alive:
                return dead
            dead -= alive

    def _can_hold(self, clause: Clause) -> bool:
        return self._dead.isdisjoint(calls_made((clause,)))

    def _without_idle_tests(self, clause: Clause) -> Clause:
        """Return the clause without negations of dead calls, which always hold."""
        idle = [each for each in clause.body if isinstance(each, Neg) and pattern_of(each.call) in self._dead]
        return Clause(clause.params, tuple(each for each in clause.body if each not in idle)) if idle else clause


# ---- Clauses that differ in one constant of one fact -> one clause with a list of constants -----------------------
# p(u, r) if fact has_role(u, "reader", r)          p(u, r) if fact has_role(u, n, r) and n in ["reader", "writer"]
# p(u, r) if fact has_role(u, "writer", r)      ->

_HOLE = Var(-1)


def merged(clauses: ClausesOf) -> ClausesOf:
    @cache
    def merged_clauses(pattern: Pattern) -> tuple[Clause, ...]:
        many = clauses(pattern)
        while len(fewer := _merged_once(many)) < len(many):
            many = fewer
        return many

    return merged_clauses


def _merged_once(clauses: tuple[Clause, ...]) -> tuple[Clause, ...]:
    """Merge the first group of clauses that differ in one constant; return the same clauses if there is none."""
    groups: dict[Clause, list[tuple[int, frozenset[str]]]] = {}
    keys = [_merge_key(clause) for clause in clauses]
    times = Counter(keys)
    for index, clause in enumerate(clauses):
        tick()
        if times[keys[index]] > 1:
            for holed, ids in _holed(clause):
                groups.setdefault(holed, []).append((index, ids))
    for holed, group in groups.items():
        if len({index for index, _ in group}) > 1:
            ids = frozenset().union(*(each for _, each in group))
            taken = {index for index, _ in group}
            at = min(taken)
            return tuple(
                _filled(holed, ids) if index == at else clause
                for index, clause in enumerate(clauses)
                if index == at or index not in taken
            )
    return clauses


def _merge_key(clause: Clause) -> Hashable:
    """Return what mergeable clauses have in common: fast to compare, before constants are taken out of any."""
    return clause.params, tuple([_about(each) for each in clause.body if not isinstance(each, Member)])


def _about(literal: Literal) -> Hashable:
    match literal:
        case Scan(signature):
            return signature
        case Call(predicate):
            return predicate
    return type(literal).__name__


def _holed(clause: Clause) -> list[tuple[Clause, frozenset[str]]]:
    """Return, for each constant of a fact, the clause with a hole in its place, and the constant.

    A variable of a fact that only a list of constants limits is replaced in the same way, with the whole list.
    """
    found = []
    for place, literal in enumerate(clause.body):
        if not isinstance(literal, Scan):
            continue
        for index, arg in enumerate(literal.args):
            if isinstance(arg, Const):
                found.append((_with_hole(clause, literal, place, index, None), frozenset((arg.id,))))
            elif isinstance(arg, Var) and (member := _only_member(clause, literal, arg)):
                found.append((_with_hole(clause, literal, place, index, member), frozenset(member.ids)))
    return found


def _only_member(clause: Clause, scan: Scan, variable: Var) -> Member[Term] | None:
    """Return the variable's list of values, if only this list and one argument of the fact mention the variable."""
    members = [each for each in clause.body if isinstance(each, Member) and each.variable == variable]
    others = [each for each in clause.body if each not in members and each is not scan]
    used = variable in variables_of(others) or variable in clause.params or scan.args.count(variable) > 1
    return members[0] if len(members) == 1 and not used else None


def _with_hole(clause: Clause, scan: Scan, place: int, index: int, member: Member[Term] | None) -> Clause:
    args = (*scan.args[:index], _HOLE, *scan.args[index + 1 :])
    body: list[Literal] = [replace(scan, args=args) if each is scan else each for each in clause.body]
    kept = canonical(Clause(clause.params, tuple(each for each in body if each is not member)))
    left_out = sum(each is member for each in clause.body[:place])
    hole = terms_of(kept.body[place - left_out])[index]
    assert isinstance(hole, Var)
    back = {hole: _HOLE}
    return Clause(clause.params, tuple(substituted(each, back) for each in kept.body))


def _filled(holed: Clause, ids: frozenset[str]) -> Clause:
    """Return the clause with a new variable in its hole, and a list of the constants that the variable may be."""
    name = Var(max((variable.number for variable in holed.variables), default=0) + 1)
    body = tuple(substituted(literal, {_HOLE: name}) for literal in holed.body)
    return canonical(Clause(holed.params, (*body, Member(name, tuple(sorted(ids))))))


# ---- rename -------------------------------------------------------------------------------------------------------
# Clauses that only call something by another name -> the clauses at the ends of such chains.
#
#     p(x, y) if q(y, x)                                  p(x, y) if fact s(y, x)
#     q(x, y) if r(x, y)                              ->
#     r(x, y) if fact s(x, y)
#
# So `"read" if "reader"; "reader" if "writer"` becomes a few lookups of facts, without calls. In all other clauses, a
# call that only stored facts can make true becomes a lookup of those facts.


class Renamed:
    """The pass. It also knows which calls rename others, and which only facts can make true.

    It does not cache the clauses: the later passes `subsumed` and `merged` leave fewer, and `merged` caches those.
    """

    def __init__(self, clauses: ClausesOf):
        self._clauses = clauses
        self._calls: dict[Pattern, frozenset[Call]] = {}  # on the chains of a pattern, including its own call
        self._stored: dict[Pattern, bool] = {}
        self._hops = cache(lambda own: any(hop_of(each, own, lambda _: None) for each in self._clauses(own)))

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        clauses, self._calls[pattern] = self._walk(pattern)
        return clauses

    def implying(self, call: Call) -> set[Call]:
        """Return the call and all calls that it renames, directly or indirectly: each of them implies the call."""
        pattern = pattern_of(call)
        if pattern not in self._calls:
            self._calls[pattern] = self._walk(pattern)[1]
        terms = {param: arg for param, arg in zip(pattern.params, call.args) if isinstance(param, Var)}
        return {substituted(each, terms) for each in self._calls[pattern]}

    def is_stored(self, pattern: Pattern) -> bool:
        """Return whether only facts can make the call true."""
        if pattern not in self._stored:
            clauses = self._clauses(pattern)
            is_fact = len(clauses) == 1 and len(clauses[0].body) == 1 and isinstance(clauses[0].body[0], Scan)
            self._stored[pattern] = is_fact
        return self._stored[pattern]

    def _walk(self, pattern: Pattern) -> tuple[tuple[Clause, ...], frozenset[Call]]:
        """Return the clauses at the ends of the pattern's chains, and the calls on those chains."""
        params = pattern.params
        start = Call(pattern.predicate, pattern.types, params, pattern.subset)
        queue, seen = [start], {start}
        clauses: dict[Clause, None] = {}
        for call in queue:  # grows during the loop
            for clause in self._clauses(pattern_of(call)):
                tick()
                is_own = clause.params == call.args == params
                made = clause if is_own else applied(clause, call.args, params)
                if made is None:
                    continue
                renamed = _renamed(made) if made.params == params else None
                if renamed is None or self._hops_apart(pattern, renamed):
                    clauses[canonical(self._with_facts(made))] = None
                elif renamed not in seen:
                    seen.add(renamed)
                    queue.append(renamed)
        return tuple(clauses), frozenset(seen)

    def _hops_apart(self, pattern: Pattern, call: Call) -> bool:
        """Return whether the call is to another predicate whose clauses hop. A chain ends there (see `Separated`)."""
        if (call.predicate, call.subset) == (pattern.predicate, pattern.subset):
            return False
        return self._hops(pattern_of(call))

    def _with_facts(self, clause: Clause) -> Clause:
        body = tuple([self._as_fact(literal) for literal in clause.body])
        return clause if body == clause.body else Clause(clause.params, body)

    def _as_fact(self, literal: Literal) -> Literal:
        if isinstance(literal, Call) and self.is_stored(pattern_of(literal)):
            return Scan(Signature(literal.predicate, literal.types), literal.args)
        return literal


def _renamed(clause: Clause) -> Call | None:
    """Return the body if it is a single call whose arguments are all constants or parameters of the head."""
    match clause.body:
        case (Call() as call,) if all(is_bound(arg) or arg in clause.params for arg in call.args):
            return call
    return None


# ---- subsume ------------------------------------------------------------------------------------------------------
# Clauses -> without those that another clause subsumes: the other one holds whenever they do.
#
#     p(x) if member(x, y) and fact s(y)          p(x) if member(x, y) and fact s(y)
#     p(x) if owner(x, y) and fact s(y)       ->
#
# where `member(x, y) if owner(x, y)`: whenever the second clause holds, the first one does.

Implying = Callable[[Call], set[Call]]  # the call, and others that imply it


def subsumed(clauses: ClausesOf, implying: Implying) -> ClausesOf:
    def needed(pattern: Pattern) -> tuple[Clause, ...]:
        return _without_subsumed(clauses(pattern), implying)

    return needed


def _without_subsumed(clauses: tuple[Clause, ...], implying: Implying) -> tuple[Clause, ...]:
    """Return the clauses without those that differ from another in a single call, which implies the other's call."""
    groups: dict[tuple[tuple[Term, ...], tuple[Literal, ...]], list[tuple[int, Call]]] = {}
    for index, clause in enumerate(clauses):
        for place, literal in enumerate(clause.body):
            if isinstance(literal, Call):
                rest = clause.body[:place] + clause.body[place + 1 :]
                groups.setdefault((clause.params, rest), []).append((index, literal))
    dropped: set[int] = set()
    for group in groups.values():
        if len(group) == 1:
            continue
        implied = {index: implying(call) for index, call in group}
        for index, call in group:
            tick()
            rivals = (each for rank, each in implied.items() if rank != index and rank not in dropped)
            if index not in dropped and any(call in each for each in rivals):
                dropped.add(index)
    return tuple(clause for index, clause in enumerate(clauses) if index not in dropped)
