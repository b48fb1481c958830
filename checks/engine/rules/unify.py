"""Clauses and calls put together: unification at compile time."""

from __future__ import annotations

from checks.engine.rules.clauses import Call, Clause, Term, Var, substituted, substituted_terms, variables_of


def applied(clause: Clause, args: tuple[Term, ...], params: tuple[Term, ...] | None = None) -> Clause | None:
    """The clause for a call with these arguments (over `params`); None where a constant differs.

    The clause's own variables are renumbered out of the way of those of the arguments.
    """
    params = args if params is None else params
    taken = variables_of((Call("", (), args), Call("", (), params)))
    free = max((variable.number for variable in taken), default=-1) + 1
    own = variables_of((Call("", (), clause.params), *clause.body))
    moved = {variable: variable.numbered(variable.number + free) for variable in own}
    bindings: dict[Var, Term] = {}
    for param, arg in zip(substituted_terms(clause.params, moved), args):
        if not _unify(param, arg, bindings):
            return None
    final = {variable: resolved(variable, bindings) for variable in (*bindings, *moved.values())}
    body = tuple(substituted(substituted(literal, moved), final) for literal in clause.body)
    return Clause(substituted_terms(params, final), body)


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
