"""Which literal to meet next: the most determined one.

A fact that a given or joined entity leads to is an index search; names alone (`"reader"`) lead nowhere, since
half the table may have them. A call with a given argument goes before a fact that would have to be read through.
"""

from __future__ import annotations

from checks.engine.plan.partial import Frame
from checks.engine.rules.clauses import (
    Call,
    Const,
    Given,
    Literal,
    Member,
    Operand,
    Other,
    Scan,
    Slot,
    Term,
    Var,
    is_bound,
    pattern_of,
    variables_of,
)
from checks.engine.rules.ruleset import RuleSet
from policy.values import STRING


def next_literal(
    pending: tuple[Literal, ...], outs: tuple[Term, ...], rulebook: RuleSet, frame: Frame
) -> Literal | None:
    """The literal to resolve next; None where only tests of unbound variables are left."""
    ranked = []
    for index, literal in enumerate(pending):
        others = pending[:index] + pending[index + 1 :]
        cost = _cost(literal, others, outs, rulebook, frame)
        if cost is not None:
            ranked.append((cost, index, literal))
    return min(ranked, key=lambda each: each[:2])[2] if ranked else None


def _cost(
    literal: Literal, others: tuple[Literal, ...], outs: tuple[Term, ...], rulebook: RuleSet, frame: Frame
) -> float | None:
    match literal:
        case Given():
            return 0.5
        case Member(variable, _):
            return 5 if any(isinstance(each, Scan) and variable in each.args for each in others) else 0.4
        case Scan(signature, args):
            return _scan_cost(signature.types, args)
        case Call():
            return _call_cost(literal, others, outs, rulebook, frame)
    return None


def _scan_cost(types: tuple[str, ...], args: tuple[Term, ...]) -> float:
    if all(map(is_bound, args)):
        return 0
    open_args = sum(not is_bound(arg) for arg in args)
    return (1 if is_anchored(types, args) else 8) + open_args / 10


def _call_cost(
    call: Call, others: tuple[Literal, ...], outs: tuple[Term, ...], rulebook: RuleSet, frame: Frame
) -> float:
    pattern = pattern_of(call)
    component = rulebook.component(pattern)
    if component is None:
        if len(rulebook.alternatives(pattern)) <= 1:
            return 0.1
        if not variables_of((call,)) & (variables_of(others) | set(outs)):
            return 2.5
        return 3 if is_anchored(call.types, call.args) else 9
    return _recursive_cost(call, others, outs, frame, component)


def _recursive_cost(
    call: Call, others: tuple[Literal, ...], outs: tuple[Term, ...], frame: Frame, component: int
) -> float:
    entered = dict(frame.active)
    is_own = component in entered
    free = variables_of((call,))
    if call.is_path:
        if not any(map(is_bound, call.args)):
            return 20  # from anywhere to anywhere: only when one end is known
        if not is_own and free and not is_bound(call.args[1]) and is_fixed(call.args[0], frame.fixed):
            return 0.95  # small, and the same for the whole net
        may_jump = not is_own or len(others) <= entered[component]
        if may_jump and is_bound(call.args[0]) and not is_bound(call.args[1]):
            return 0.93  # followed before what is met at its end is looked for: a sum, where there was a product
    if companions_of(call, others, outs, frame.fixed):
        return 0.9
    is_closed = not free & (variables_of(others) | set(outs))
    if is_own and (is_closed or not outs):
        # Last, so that it is a jump; but before reading facts that nothing leads to, if it is a jump already.
        return 7.5 if len(others) <= entered[component] and is_anchored(call.types, call.args) else 30
    if is_closed:
        return 4
    return 3 if is_anchored(call.types, call.args) else (7.9 if is_own else 9)


def companions_of(
    call: Call, pending: tuple[Literal, ...], outs: tuple[Term, ...], fixed: frozenset[Operand]
) -> tuple[Call, ...]:
    """Paths from what the question gives to what is otherwise any argument of a recursive call.

    The recursion hands that argument on untouched, so it is met where the recursion ends, not carried along.
    """
    if call.is_path:
        return ()
    found = []
    for literal in pending:
        if isinstance(literal, Call) and literal.is_path and is_fixed(literal.args[0], fixed):
            end = literal.args[1]
            elsewhere = variables_of(each for each in pending if each is not literal) | set(outs)
            if isinstance(end, Var) and end in call.args and end not in elsewhere:
                found.append(literal)
    return tuple(found)


def is_fixed(term: Term, fixed: frozenset[Operand]) -> bool:
    return isinstance(term, (Slot, Const, Other)) or term in fixed


def is_anchored(types: tuple[str, ...], args: tuple[Term, ...]) -> bool:
    """Some argument is known that is more than a name of the policy."""
    return any(
        is_bound(arg) and not (isinstance(arg, (Const, Other)) and kind == STRING) for kind, arg in zip(types, args)
    )
