"""Clauses and calls put together: unification at compile time."""

from __future__ import annotations

from collections.abc import Iterable

from checks.engine.rules.clauses import (
    Call,
    Clause,
    Literal,
    Term,
    Var,
    renumbered,
    renumbered_terms,
    substituted_terms,
    terms_of,
)


def applied(clause: Clause, args: tuple[Term, ...], params: tuple[Term, ...] | None = None) -> Clause | None:
    """Return the clause as it is for a call with these arguments; None where two values differ.

        (x, "a") if q(x)   for the arguments (y, z)   ->   (y, "a") if q(y)

    The head is `params`, which are the arguments if not given, with what the clause binds of their variables put in.
    The clause's other variables get numbers that no argument has.
    """
    params = args if params is None else params
    free = max([term.number for term in (*args, *params) if isinstance(term, Var)], default=-1) + 1
    bound = plain_bindings(clause.params, args)
    if bound is not None:
        _move(clause.body, bound, free)
        return Clause(params, tuple([renumbered(literal, bound) for literal in clause.body]))
    moved: dict[int, Term] = {}
    _move((Call("", (), clause.params), *clause.body), moved, free)
    bindings: dict[Var, Term] = {}
    for param, arg in zip(renumbered_terms(clause.params, moved), args):
        if not _unify(param, arg, bindings):
            return None
    final = {number: resolved(variable, bindings) for number, variable in moved.items()}
    body = tuple([renumbered(literal, final) for literal in clause.body])
    return Clause(substituted_terms(params, {variable: resolved(variable, bindings) for variable in bindings}), body)


def plain_bindings(params: tuple[Term, ...], args: tuple[Term, ...]) -> dict[int, Term] | None:
    """Return which argument each variable among the parameters stands for, by the variable's number.

    None where the arguments do not match, or match only if variables of theirs are bound, too.
    """
    bound: dict[int, Term] = {}
    for param, arg in zip(params, args):
        known = bound.setdefault(param.number, arg) if isinstance(param, Var) else param
        if known is not arg and known != arg:
            return None
    return bound


def _move(literals: Iterable[Literal], terms: dict[int, Term], free: int) -> None:
    """Add to `terms` each variable that has none yet, under a number that is larger by `free`."""
    for literal in literals:
        for term in terms_of(literal):
            if isinstance(term, Var) and term.number not in terms:
                terms[term.number] = term.numbered(term.number + free)


def _unify(left: Term, right: Term, bindings: dict[Var, Term]) -> bool:
    left, right = resolved(left, bindings), resolved(right, bindings)
    if left == right:
        return True
    if isinstance(left, Var):
        bindings[left] = right
    elif isinstance(right, Var):
        bindings[right] = left
    else:
        return False
    return True


def resolved(term: Term, bindings: dict[Var, Term]) -> Term:
    while isinstance(term, Var) and term in bindings:
        term = bindings[term]
    return term
