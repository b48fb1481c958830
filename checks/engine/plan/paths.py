"""Small questions about calls: what they are given, and whether they follow paths (see `separate`)."""

from __future__ import annotations

from dataclasses import replace

from checks.engine.rules.clauses import UNBOUND, Call, Col, Const, Inner, Operand, Other, Term, Var, is_bound
from policy.values import STRING


def is_one_path(call: Call) -> bool:
    """All that one path leads to, from either end."""
    return call.is_path and sum(map(is_bound, call.args)) == 1


def is_backward(call: Call) -> bool:
    """Only the end of the path is known, so it is followed from there."""
    return call.is_path and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def anchors(types: tuple[str, ...], args: tuple[Term, ...]) -> list[Term]:
    """The arguments that a search can start from: what is known, but for names, which half a table may have."""
    bound = [(kind, arg) for kind, arg in zip(types, args) if not isinstance(arg, UNBOUND)]
    return [arg for kind, arg in bound if kind != STRING or not isinstance(arg, (Const, Other))]


def is_anchored(call: Call) -> bool:
    """Whether the question itself gives what a search for the call can start from, not only a row that is read."""
    return not all(isinstance(arg, Col) for arg in anchors(call.types, call.args))


def is_given(call: Call, fixed: frozenset[Operand]) -> bool:
    """Whether all that the call knows is given for the whole plan."""
    return not any(isinstance(arg, Col) and arg not in fixed for arg in call.args)


def outward(call: Call) -> Call:
    """The negated call on its own: what was quantified inside the negation is a variable like any other now."""
    typed = zip(call.args, call.types)
    args = tuple(Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in typed)
    return replace(call, args=args)
