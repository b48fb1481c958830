"""Small questions about calls: which arguments are known or fixed, and whether they follow paths (see `separate`)."""

from __future__ import annotations

from dataclasses import replace

from checks.engine.rules.clauses import UNBOUND, Call, Col, Const, Inner, Operand, Other, Term, Var, is_bound
from policy.values import STRING


def is_one_path(call: Call) -> bool:
    """Say whether the call is a path of which one end is known: all that it leads to is asked."""
    return call.is_path and sum(map(is_bound, call.args)) == 1


def is_backward(call: Call) -> bool:
    """Say whether the call is a path of which only the end is known: it is followed from there."""
    return call.is_path and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def anchors(types: tuple[str, ...], args: tuple[Term, ...]) -> list[Term]:
    """Return the arguments that a search can start from: all known ones but names, which half a table may have."""
    bound = [(kind, arg) for kind, arg in zip(types, args) if not isinstance(arg, UNBOUND)]
    return [arg for kind, arg in bound if kind != STRING or not isinstance(arg, (Const, Other))]


def is_anchored(call: Call) -> bool:
    """Say whether a search for the call can start from what the question gives, not only from a column of a row."""
    return not all(isinstance(arg, Col) for arg in anchors(call.types, call.args))


def is_fixed(call: Call, fixed: frozenset[Operand]) -> bool:
    """Say whether all columns that the call mentions are fixed for the whole plan."""
    return not any(isinstance(arg, Col) and arg not in fixed for arg in call.args)


def outward(call: Call) -> Call:
    """Return the negated call as a call of its own: each `Inner`, which the negation quantifies, becomes a `Var`."""
    typed = zip(call.args, call.types)
    args = tuple(Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in typed)
    return replace(call, args=args)
