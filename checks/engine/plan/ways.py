"""Small questions about calls: what they are given, and whether they follow ways (see `factoring`)."""

from __future__ import annotations

from dataclasses import replace

from checks.engine.rules.clauses import Call, Col, Const, Inner, Operand, Slot, Var, is_bound
from checks.engine.rules.separate import REACH
from policy.values import STRING


def whole_way(literals: tuple[Call, ...]) -> tuple[str, str] | None:
    """For all that one way leads to from a given start: the way and the type it leads to."""
    match literals:
        case (Call(args=(start, Var())) as call,) if is_way(call) and is_bound(start):
            return call.predicate, call.types[1]
    return None


def is_one_way(literals: tuple[Call, ...]) -> bool:
    """All that one way leads to, from either end."""
    return len(literals) == 1 and is_way(literals[0]) and sum(map(is_bound, literals[0].args)) == 1


def is_way(call: Call) -> bool:
    return call.predicate.endswith(REACH)


def is_backward(call: Call) -> bool:
    """Only the end of the way is known, so it is followed from there."""
    return is_way(call) and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def is_led_to(call: Call) -> bool:
    """Something more than a name of the policy is given for the whole question."""
    named = zip(call.types, call.args)
    return any(isinstance(arg, Slot) or (isinstance(arg, Const) and kind != STRING) for kind, arg in named)


def are_fixed(unit: tuple[Call, ...], fixed: frozenset[Operand]) -> bool:
    """Whatever the literals are given is given for the whole net."""
    return not any(isinstance(arg, Col) and arg not in fixed for call in unit for arg in call.args)


def outward(call: Call) -> Call:
    """The negated call on its own: what was quantified inside the negation is a variable like any other now."""
    typed = zip(call.args, call.types)
    args = tuple(Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in typed)
    return replace(call, args=args)
