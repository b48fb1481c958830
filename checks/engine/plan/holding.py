"""Literals that only have to hold: tests, made conditions as soon as all that they mention is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from checks.engine.plan.partial import Frame, Partial, comparison, fixed_in
from checks.engine.plan.plan import Among, Condition, Exit, Holds, Ids, Net, Source
from checks.engine.plan.subqueries import related
from checks.engine.plan.ways import is_led_to, outward
from checks.engine.rules.clauses import (
    Call,
    Cmp,
    Col,
    Const,
    Given,
    Literal,
    Member,
    Neg,
    Other,
    Scan,
    Var,
    pattern_of,
    terms_of,
)
from checks.engine.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from checks.engine.plan.unfold import Resolver


def with_tests(resolver: Resolver, partial: Partial, frame: Frame) -> Partial | None:
    """The tests that are ready, as conditions; None where one is false for certain."""
    waiting: list[Literal] = []
    conditions = list(partial.conditions)
    for literal in partial.pending:
        if isinstance(literal, (Call, Scan, Given)) or any(isinstance(term, Var) for term in terms_of(literal)):
            waiting.append(literal)
            continue
        verdict = tested(resolver, literal, frame, partial.sources if partial.outs else ())
        if verdict is False:
            return None
        if verdict is not True and verdict not in conditions:
            conditions.append(verdict)
    return replace(partial, pending=tuple(waiting), conditions=tuple(conditions))


def tested(resolver: Resolver, literal: Literal, frame: Frame, among: tuple[Source, ...] = ()) -> Condition | bool:
    match literal:
        case Cmp(operator, left, right) if not isinstance(left, Var) and not isinstance(right, Var):
            return comparison(operator, left, right)
        case Member(Const(text), ids):
            return text in ids
        case Member(Other(), _):
            return False
        case Member(operand, ids) if not isinstance(operand, Var):
            return Among(operand, ids)
        case Neg(call):
            held = holds(resolver, (outward(call),), frame, among)
            return not held if isinstance(held, bool) else replace(held, negated=True)
    raise AssertionError(f"{literal} is no test, or not ready")


def holds(resolver: Resolver, literals: tuple[Call, ...], frame: Frame, among: tuple[Source, ...] = ()) -> Holds | bool:
    """Whether the literals hold, their free variables taken to be anything.

    Asking for many rows, what takes long to find out for each is found out once for all.
    """
    as_set = _is_better_as_set(resolver.rulebook, literals, among)
    key = (literals, None, as_set)
    if key not in resolver.nets:
        made = _membership(resolver, literals, frame) if as_set else resolver.make(Partial(literals, ()))
        resolver.nets[key] = made
    net = resolver.nets[key]
    if any(not exit.branch.sources and not exit.branch.conditions for exit in net.exits):
        return True
    return Holds(net) if net.exits else False


def leans(rulebook: RuleSet, call: Call, kind: type | tuple[type, ...]) -> bool:
    """Whether an argument of that kind is only compared, so that nothing would bind it apart from here."""
    return any(isinstance(call.args[index], kind) for index in rulebook.calls.only_compared(pattern_of(call)))


def _is_better_as_set(rulebook: RuleSet, literals: tuple[Call, ...], among: tuple[Source, ...]) -> bool:
    """A call that takes more than one look, of many rows of facts perhaps, which something given leads to as well."""
    numbers = {source.number for source in among if not isinstance(source, Ids)}
    columns = [arg for call in literals for arg in call.args if isinstance(arg, Col)]
    if not columns or not all(column.source in numbers for column in columns):
        return False
    takes_long = any(rulebook.calls.is_deep(pattern_of(call)) or _is_wide(rulebook, call) for call in literals)
    return takes_long and all(is_led_to(call) and not leans(rulebook, call, Col) for call in literals)


def _is_wide(rulebook: RuleSet, call: Call) -> bool:
    """Whether there are several facts to look for."""
    clauses = rulebook.alternatives(pattern_of(call))
    return sum(isinstance(literal, Scan) for clause in clauses for literal in clause.body) > 1


def _membership(resolver: Resolver, literals: tuple[Call, ...], frame: Frame) -> Net:
    """The net that looks the literals' joined arguments up among all that the given ones answer to."""
    ends = list(related(resolver, Partial((), ()), literals, replace(frame, fixed=frozenset())))
    exits = tuple(end for end in ends if isinstance(end, Exit))
    assert len(exits) == len(ends), "nothing is left to meet where the answers are joined"
    return Net(resolver.name(), 0, exits, fixed=fixed_in(Partial(literals, ())), is_set=True)
