"""Which answer columns of a way stand for every value, and what holds them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from checks.engine.errors import CannotEnumerate
from checks.engine.plan.plan import Exit, Variant
from checks.engine.rules.clauses import Col, Neg, Operand, Term, Var, substituted, type_of


def variant_of(end: Exit, fixed: frozenset[Operand]) -> Variant:
    """The exit's variant, its guards over nothing but answer columns and what is fixed."""
    columns = {out: Var(k, type=type_of(out)) for k, out in enumerate(end.outs)}
    guards = []
    for guard in end.guards:
        args = tuple(columns.get(arg, arg) for arg in guard.call.args)
        if any(isinstance(arg, Col) and arg not in fixed for arg in args):
            raise CannotEnumerate("all but some, by a rule that a list cannot follow")
        guards.append(Neg(replace(guard.call, args=args)))
    wild = frozenset(k for k, out in enumerate(end.outs) if isinstance(out, Var))
    # A recursion that meets the same guard again at each level has it once: else there were no end of variants.
    return Variant(wild, tuple(sorted(set(guards), key=str)), same_columns(end))


def same_columns(end: Exit) -> tuple[tuple[int, int], ...]:
    """Wild columns that stand for the same value as an earlier one."""
    return tuple((out.number, k) for k, out in enumerate(end.outs) if isinstance(out, Var) and out.number != k)


def guards_for(variant: Variant, results: tuple[Var, ...], known: Mapping[Var, Term]) -> list[Neg]:
    """The variant's guards over the variables that its columns bind."""
    terms = {Var(k): known.get(variable, variable) for k, variable in enumerate(results)}
    return [substituted(guard, terms) for guard in variant.guards]
