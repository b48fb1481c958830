"""The oracle of clauses: what they mean, worked out bottom-up over Python sets, whatever pass of the engine made them.

The world is finite: of each type a few values, one of them mentioned by nothing, which stands for all the others.
A pattern's rows are the least sets that its clauses, and those of what they call, lead to.

    world = World(facts, ids, {"now": "1000"})
    Meaning(passes.merged, world).rows(pattern)
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import ge, gt, le, lt

from checks.engine.rules.clauses import (
    Call,
    Clause,
    ClausesOf,
    Cmp,
    Col,
    Const,
    Given,
    Inner,
    Literal,
    Member,
    Neg,
    Other,
    Pattern,
    Scan,
    Slot,
    Term,
    Var,
    calls_made,
    mentioned,
    pattern_of,
    variables_of,
)
from policy.rules.components import reachable
from policy.rules.program import Signature

Row = tuple[str, ...]
Env = dict[Term, str]


@dataclass(frozen=True)
class World:
    facts: Mapping[Signature, Iterable[Row]]
    ids: Mapping[str, tuple[str, ...]]  # by type
    slots: Mapping[str, str]


@dataclass
class Meaning:
    """By default, clauses must not recurse through negation; else what they deny is what another meaning says."""

    clauses: ClausesOf
    world: World
    denied: Meaning | None = None
    _rows: dict[Pattern, set[Row]] = field(default_factory=dict)

    def rows(self, pattern: Pattern) -> set[Row]:
        """The rows for which the pattern holds."""
        if pattern not in self._rows:
            callers = self._callers(pattern)
            found: dict[Pattern, set[Row]] = {each: set() for each in callers}
            waiting = dict.fromkeys(reversed(list(found)))  # what is called before what calls it, more or less
            while waiting:
                each = next(iter(waiting))
                del waiting[each]
                more = {row for clause in self.clauses(each) for row in self._consequences(clause, found)}
                if len(more) > len(found[each]):
                    found[each] = more
                    waiting |= dict.fromkeys(callers[each])
            self._rows |= found
        return self._rows[pattern]

    def _callers(self, pattern: Pattern) -> dict[Pattern, list[Pattern]]:
        """By what the pattern leads to, and does not have its rows yet: who calls it."""
        callers: dict[Pattern, list[Pattern]] = {}
        for each in reachable((pattern,), lambda one: calls_made(self.clauses(one))):
            if each not in self._rows:
                callers.setdefault(each, [])
                for called in calls_made(self.clauses(each)):
                    callers.setdefault(called, []).append(each)
        return {each: found for each, found in callers.items() if each not in self._rows}

    def _consequences(self, clause: Clause, found: dict[Pattern, set[Row]]) -> Iterator[Row]:
        for env in self._ways(clause.body, clause.params, [{}], found):
            yield tuple([self._value(param, env) for param in clause.params])

    def rows_from(self, body: tuple[Literal, ...], outs: tuple[Term, ...], envs: list[Env]) -> set[Row]:
        """What is asked, for each way to meet the literals that goes on from one of these values of columns."""
        for call in (each for each in body if isinstance(each, Call)):
            self.rows(pattern_of(call))
        return {tuple([self._value(out, env) for out in outs]) for env in self._ways(body, outs, envs, {})}

    def _ways(
        self, body: tuple[Literal, ...], outs: tuple[Term, ...], envs: list[Env], found: dict[Pattern, set[Row]]
    ) -> list[Env]:
        for literal in _in_order(body):
            envs = list(_joined(envs, *self._read(literal, found)))
        for variable in variables_of((Call("", (), outs), *body)) - (envs[0].keys() if envs else set()):
            envs = [env | {variable: text} for env in envs for text in self.world.ids[variable.type]]
        for literal in body:
            envs = list(self._tested(envs, literal)) if isinstance(literal, (Cmp, Neg)) else envs
        return envs

    def _read(self, literal: Literal, found: dict[Pattern, set[Row]]) -> tuple[tuple[Term | str, ...], Iterable[Row]]:
        """What the literal's rows are to be the same as, and the rows."""
        match literal:
            case Scan(signature, args):
                return self._known(args), self.world.facts.get(signature, ())
            case Call(args=args):
                pattern = pattern_of(literal)
                return self._known(args), self._rows[pattern] if pattern in self._rows else found[pattern]
            case Member(variable, ids):
                return self._known((variable,)), [(text,) for text in ids]
            case Given(variable, slot):
                return self._known((variable,)), [(text,) for text in json.loads(self.world.slots[slot])]
        raise AssertionError(literal)

    def _tested(self, envs: list[Env], literal: Cmp | Neg) -> Iterator[Env]:
        if isinstance(literal, Cmp):
            for env in envs:
                if _compared(literal.operator, self._value(literal.left, env), self._value(literal.right, env)):
                    yield env
        elif envs:
            args = literal.call.args
            known = [index for index, arg in enumerate(args) if not isinstance(arg, Inner)]
            rows = (self.denied or self).rows(pattern_of(literal.call))
            denied = {tuple(row[index] for index in known) for row in rows if _repeats_as(args, row)}
            for env in envs:
                if tuple(self._value(args[index], env) for index in known) not in denied:
                    yield env

    def _known(self, args: tuple[Term, ...]) -> tuple[Term | str, ...]:
        return tuple(arg if isinstance(arg, (Var, Col)) else self._value(arg, {}) for arg in args)

    def _value(self, term: Term, env: Env) -> str:
        match term:
            case Const(text):
                return text
            case Slot(name) | Other(name):
                return self.world.slots[name]
        return env[term]


def well_founded(clauses: ClausesOf, world: World, pattern: Pattern) -> set[Row]:
    """The pattern's rows, where clauses may recurse through negation as long as no row depends on its own."""

    def following(one: Pattern) -> list[Pattern]:
        return [pattern_of(call) for clause in clauses(one) for call in mentioned(clause.body)]

    mentions = reachable((pattern,), following)
    if not any(each in reachable(denied_by(each, clauses), following) for each in mentions):
        return Meaning(clauses, world).rows(pattern)
    certain = Meaning(lambda _: (), world)  # and more and more of what is certain
    while True:
        possible = Meaning(clauses, world, certain)
        more = Meaning(clauses, world, possible)
        if all(more.rows(each) == certain.rows(each) for each in mentions):
            assert all(possible.rows(each) == certain.rows(each) for each in mentions), "some row denies itself"
            return certain.rows(pattern)
        certain = more


def denied_by(pattern: Pattern, clauses: ClausesOf) -> list[Pattern]:
    return [pattern_of(each.call) for clause in clauses(pattern) for each in clause.body if isinstance(each, Neg)]


@lru_cache(maxsize=10_000)
def _in_order(body: tuple[Literal, ...]) -> tuple[Literal, ...]:
    """What is read, the most determined first."""
    waiting = [each for each in body if isinstance(each, (Scan, Call, Member, Given))]
    found: list[Literal] = []
    while waiting:
        bound = variables_of(found)
        literal = min(waiting, key=lambda each: _openness(each, bound))
        waiting.remove(literal)
        found.append(literal)
    return tuple(found)


def _openness(literal: Literal, bound: set[Var]) -> tuple[bool, int]:
    """Lists that have to be gone through come last."""
    variables = variables_of((literal,))
    is_list = isinstance(literal, (Member, Given)) and not variables <= bound
    return is_list, len(variables - bound) - len(variables & bound)


def _repeats_as(args: tuple[Term, ...], row: Row) -> bool:
    """Whether the row has the same wherever the negation has the same variable of its own."""
    inner = {(arg, text) for arg, text in zip(args, row) if isinstance(arg, Inner)}
    return len(inner) == len({arg for arg, _ in inner})


def _joined(envs: list[Env], args: tuple[Term | str, ...], rows: Iterable[Row]) -> Iterator[Env]:
    """Each of these with each of the rows that are the same where both have a value."""
    if not envs:
        return
    known = [index for index, arg in enumerate(args) if isinstance(arg, str) or arg in envs[0]]
    by_known: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        by_known[tuple([row[index] for index in known])].append(row)
    for env in envs:
        for row in by_known.get(tuple([arg if isinstance(arg := args[i], str) else env[arg] for i in known]), ()):
            more = env | {arg: text for arg, text in zip(args, row) if not isinstance(arg, str)}
            if all(isinstance(arg, str) or more[arg] == text for arg, text in zip(args, row)):
                yield more


def _compared(operator: str, left: str, right: str) -> bool:
    if operator in ("=", "!="):
        return (left == right) == (operator == "=")
    holds = {"<": lt, "<=": le, ">": gt, ">=": ge}[operator]
    return _is_number(left) and _is_number(right) and holds(int(left), int(right))


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()
