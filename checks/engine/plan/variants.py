"""Which answer columns of a branch stand for every value, and which negations (guards) exclude some values.

exit (x, s1.a0) unless p(x)   ->   column 0 is wild, with the guard not p(column 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from checks.engine.errors import CannotEnumerate
from checks.engine.plan.plan import Exit, Variant
from checks.engine.rules.clauses import Col, Neg, Operand, Term, Var, substituted, type_of


def variant_of(end: Exit, fixed: frozenset[Operand]) -> Variant:
    """Return the exit's variant. Refuse guards that mention anything but answer columns and what is fixed."""
    columns = {out: Var(k, type=type_of(out)) for k, out in enumerate(end.outs)} if end.guards else {}
    guards = []
    for guard in end.guards:
        args = tuple(columns.get(arg, arg) for arg in guard.call.args)
        if any(isinstance(arg, Col) and arg not in fixed for arg in args):
            raise CannotEnumerate("all but some, by a rule that a list cannot follow")
        guards.append(Neg(replace(guard.call, args=args)))
    wild = frozenset(k for k, out in enumerate(end.outs) if isinstance(out, Var))
    # Each guard is kept once: a recursion that met it at each level would otherwise make new variants without end.
    return Variant(wild, tuple(sorted(set(guards), key=str)), same_columns(end))


def same_columns(end: Exit) -> tuple[tuple[int, int], ...]:
    """Return pairs of wild columns, an earlier and a later one, that stand for the same value."""
    return tuple((out.number, k) for k, out in enumerate(end.outs) if isinstance(out, Var) and out.number != k)


def guards_for(variant: Variant, results: tuple[Var, ...], known: Mapping[Var, Term]) -> list[Neg]:
    """Return the variant's guards with `results` for its columns, or what is `known` of those."""
    if not variant.guards:
        return []
    terms = {Var(k): known.get(variable, variable) for k, variable in enumerate(results)}
    return [substituted(guard, terms) for guard in variant.guards]
