"""Conditions -> SQL. What is certain, or cannot be, is True or False instead of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checks.engine.plan.plan import Among, Condition, Holds, Net, Order, Same, Tagged
from checks.engine.rules.clauses import Const, Term
from localsql.dialects import NATIVE, Typed
from localsql.families import Family
from localsql.scope import Scope
from localsql.semijoins import Member

if TYPE_CHECKING:
    from localsql.render import Renderer


def rendered(renderer: Renderer, condition: Condition, scope: Scope) -> str | bool:
    dialect = renderer.dialect
    match condition:
        case Same(left, Const(text)):
            return dialect.among(renderer.typed(left, scope), (text,)) or False
        case Same(left, right):
            return dialect.equal(renderer.typed(left, scope), renderer.typed(right, scope))
        case Among(operand, ids):
            return dialect.among(renderer.typed(operand, scope), sorted(ids)) or False
        case Member():
            return _member(renderer, condition, scope)
        case Order("!=", left, right):
            return _unequal(renderer, left, right, scope)
        case Order(operator, left, right):
            return f"{_number(renderer, left, scope)} {operator} {_number(renderer, right, scope)}"
        case Tagged(source, tags):
            return f"{scope.columns[source]('tag').sql} = {tags[0]}"
        case Holds(net, negated):
            return _holds(renderer, net, negated, scope)
    raise AssertionError(f"{condition} is tested by another renderer")


def tested(condition: Condition) -> tuple[Term, ...]:
    """The operands that NULL would fail."""
    match condition:
        case Same(left, right):
            return (left, right)
        case Among(operand, _) | Member(operand):
            return (operand,)
    return ()


def _member(renderer: Renderer, member: Member, scope: Scope) -> str | bool:
    inner = renderer.named(member.branch, scope)
    operand, column = renderer.typed(member.operand, scope), renderer.typed(member.column, inner)
    left, right = renderer.dialect.sides(operand, column)
    query = renderer.select(member.branch, right, inner)
    return query is not None and f"{left} IN ({query})"


def _unequal(renderer: Renderer, left: Term, right: Term, scope: Scope) -> str | bool:
    if isinstance(left, Const):
        left, right = right, left
    typed = renderer.typed(left, scope)
    if not isinstance(right, Const):
        return renderer.dialect.unequal(typed, renderer.typed(right, scope))
    family = typed.family if typed.family in NATIVE else Family.TEXT
    shown = renderer.dialect.constant(right.id, family)
    return True if shown is None else renderer.dialect.unequal(typed, Typed(shown, family, is_normal=True))


def _number(renderer: Renderer, operand: Term, scope: Scope) -> str:
    return operand.id if isinstance(operand, Const) else renderer.dialect.number(renderer.typed(operand, scope))


def _holds(renderer: Renderer, net: Net, negated: bool, scope: Scope) -> str | bool:
    if not net.seeds and not net.answers and not any(end.branch.sources for end in net.exits):
        return _tests(renderer, net, negated, scope)
    if negated:
        renderer.check_whole(net)
    query = renderer.query(net, scope)
    if query is None:
        return negated
    return f"{'NOT ' if negated else ''}EXISTS ({query})"


def _tests(renderer: Renderer, net: Net, negated: bool, scope: Scope) -> str | bool:
    """A net that reads nothing is an expression."""
    if negated:
        renderer.check_whole(net)
    ways = []
    for end in net.exits:
        found = [rendered(renderer, each, scope) for each in end.branch.conditions]
        if all(each is True for each in found):
            return not negated
        if False not in found:
            ways.append(" AND ".join(each for each in found if isinstance(each, str)))
    if not ways:
        return negated
    whole = " OR ".join(dict.fromkeys(ways))
    return f"({whole}) IS NOT TRUE" if negated else f"({whole})"
