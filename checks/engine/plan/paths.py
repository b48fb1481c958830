"""Small questions about calls: what they are given, and whether they follow paths (see `separate`)."""

from __future__ import annotations

from dataclasses import replace

from checks.engine.rules.clauses import Call, Col, Const, Inner, Operand, Slot, Var, is_bound
from policy.values import STRING


def is_one_path(call: Call) -> bool:
    """All that one path leads to, from either end."""
    return call.is_path and sum(map(is_bound, call.args)) == 1


def is_backward(call: Call) -> bool:
    """Only the end of the path is known, so it is followed from there."""
    return call.is_path and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def is_led_to(call: Call) -> bool:
    """Something more than a name of the policy is given for the whole question."""
    named = zip(call.types, call.args)
    return any(isinstance(arg, Slot) or (isinstance(arg, Const) and kind != STRING) for kind, arg in named)


def is_given(call: Call, fixed: frozenset[Operand]) -> bool:
    """Whatever the call knows is given for the whole plan."""
    return not any(isinstance(arg, Col) and arg not in fixed for arg in call.args)


def outward(call: Call) -> Call:
    """The negated call on its own: what was quantified inside the negation is a variable like any other now."""
    typed = zip(call.args, call.types)
    args = tuple(Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in typed)
    return replace(call, args=args)
