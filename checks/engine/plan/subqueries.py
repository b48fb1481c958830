"""Joins with the answers of a net of its own, which is worked out once and read by whichever branches need it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from checks.engine.plan.partial import Frame, Partial, read
from checks.engine.plan.plan import Branch, End, Net, Relation, Same, Variant
from checks.engine.plan.prefixes import general, without
from checks.engine.plan.variants import guards_for, variant_of
from checks.engine.plan.ways import is_one_way, whole_way
from checks.engine.rules.clauses import Call, Col, Operand, Pattern, Term, Var, mapped, substituted, variables_of

if TYPE_CHECKING:
    from checks.engine.plan.unfold import Resolver


def related(
    resolver: Resolver,
    rest: Partial,
    unit: tuple[Call, ...],
    frame: Frame,
    rounds: int | None = None,
    resumed: Frame | None = None,
    table: Pattern | None = None,
) -> Iterator[End]:
    """Join with the answers of the unit. What only this branch knows is asked there, and joined here."""
    needed = variables_of(rest.pending) | set(rest.outs)
    joins: dict[Var, Operand] = {}

    def opened(term: Term) -> Term:
        if not isinstance(term, Col) or term in frame.fixed:
            return term
        known = next((variable for variable, operand in joins.items() if operand == term), None)
        variable = known or resolver.fresh(term)
        joins[variable] = term
        return variable

    literals = tuple(mapped(call, opened) for call in unit)
    free = (arg for call in literals for arg in call.args if isinstance(arg, Var))
    results = tuple(dict.fromkeys(arg for arg in free if arg in needed or arg in joins))
    net = _net_of(resolver, literals, results, rounds, table)
    yield from _joined(resolver, rest, net, results, joins, resumed or frame)


def led_from(resolver: Resolver, rest: Partial, prefix: Branch, call: Call, frame: Frame) -> Iterator[End]:
    """Join with all that a way leads to from what the prefix reads: one recursion, for every branch that starts so."""
    start, end = call.args
    assert isinstance(start, Col) and isinstance(end, Var), "a prefix leads from a column to anything"
    key = (general(prefix, start), call.predicate, call.types)
    if key not in resolver.nets:
        net = resolver.make(Partial((call,), (end,), prefix.sources, prefix.conditions))
        resolver.nets[key] = replace(net, is_way=True, reaches=(call.predicate, call.types[1]))
    yield from _joined(resolver, without(rest, prefix), resolver.nets[key], (end,), {}, frame)


def _net_of(
    resolver: Resolver,
    literals: tuple[Call, ...],
    results: tuple[Var, ...],
    rounds: int | None,
    table: Pattern | None,
) -> Net:
    """The net of the literals' answers; the same one for the same literals, whatever their variables are called."""
    names = {variable: variable.numbered(k) for k, variable in enumerate(results)}
    for variable in sorted(variables_of(literals) - set(results), key=lambda each: each.number):
        names[variable] = variable.numbered(len(names))
    asked = tuple(substituted(each, names) for each in literals)
    outs = tuple(names[variable] for variable in results)
    key = (asked, outs, rounds)
    if key not in resolver.nets:
        net = resolver.make(Partial(asked, outs), rounds, table)
        resolver.nets[key] = replace(net, is_way=is_one_way(asked), reaches=whole_way(asked))
    return resolver.nets[key]


def _joined(
    resolver: Resolver,
    rest: Partial,
    net: Net,
    results: tuple[Var, ...],
    joins: dict[Var, Operand],
    frame: Frame,
) -> Iterator[End]:
    for variant in dict.fromkeys(variant_of(end, net.fixed) for end in net.exits):
        source = Relation(next(resolver.numbers), net, variant)
        yield from resolver.ways(_with_answers(rest, source, variant, results, joins), frame)


def _with_answers(
    rest: Partial, source: Relation, variant: Variant, results: tuple[Var, ...], joins: dict[Var, Operand]
) -> Partial:
    columns = {
        variable: Col(source.number, source.net.column(index), variable.type)
        for index, variable in enumerate(results)
        if index not in variant.wild
    }
    conditions = [Same(columns[v], operand) for v, operand in joins.items() if v in columns]
    known: dict[Var, Term] = {**columns, **{v: o for v, o in joins.items() if v not in columns}}
    for first, second in variant.same:
        left, right = (known.get(results[index], results[index]) for index in (first, second))
        if isinstance(right, Var):
            known[right] = left
        elif isinstance(left, Var):
            known[left] = right
        else:
            conditions.append(Same(left, right))
    partial = replace(rest, pending=(*rest.pending, *guards_for(variant, results, known)))
    found = read(partial, source, known)
    return replace(found, conditions=(*found.conditions, *conditions))
