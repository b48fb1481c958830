"""Prefixes: the facts that bind the start of a path. Branches with equal prefixes share one plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from checks.engine.plan.draft import Draft
from checks.engine.plan.foreign import ForeignCondition
from checks.engine.plan.plan import Among, Branch, Comparison, Condition, FactScan, Holds, Same, Tagged
from checks.engine.rules.clauses import Call, Col, Operand, Var, terms_of
from policy.rules.components import reachable


def prefix_of(call: Call, rest: Draft) -> Branch | None:
    """Return the facts that lead to the start of the path, with their conditions; None where there is no such prefix.

    There is none if anything else uses the columns of those facts, or if nothing is resolved after the path.
    """
    start, end = call.args
    if not isinstance(start, Col) or not isinstance(end, Var) or not rest.pending:
        return None
    facts = {source.number for source in rest.sources if isinstance(source, FactScan)}
    taken = connected(start.source, map(sources_of, rest.conditions))
    asked = [term for literal in rest.pending for term in terms_of(literal)] + list(rest.outs)
    if not taken <= facts or any(isinstance(term, Col) and term.source in taken for term in asked):
        return None
    conditions = tuple(each for each in rest.conditions if taken & sources_of(each))
    if not all(isinstance(each, (Same, Among, Comparison)) for each in conditions):
        return None
    return Branch(tuple(each for each in rest.sources if each.number in taken), conditions)


def without_prefix(rest: Draft, prefix: Branch) -> Draft:
    """Return the draft without the sources and conditions of the prefix."""
    sources = tuple(each for each in rest.sources if each not in prefix.sources)
    return replace(rest, sources=sources, conditions=tuple(c for c in rest.conditions if c not in prefix.conditions))


def prefix_key(prefix: Branch, column: Col) -> Hashable:
    """Return a key for the prefix and its column, which is the same whatever numbers its sources have."""
    return renumbered(prefix, (column,))


def renumbered(branch: Branch, columns: Iterable[Col]) -> tuple[Branch, tuple[Col, ...]] | None:
    """Return the branch and columns of it with its sources numbered from 0; None if it has more than facts and tests.

    Branches that differ in numbers alone become equal.
    """
    places = {source.number: index for index, source in enumerate(branch.sources)}
    if not all(isinstance(each, FactScan) for each in branch.sources):
        return None
    if not all(isinstance(each, (Same, Among, Comparison)) for each in branch.conditions):
        return None

    def placed(operand: Operand) -> Operand:
        return replace(operand, source=places[operand.source]) if isinstance(operand, Col) else operand

    sources = tuple(replace(each, number=places[each.number]) for each in branch.sources)
    conditions = tuple(_mapped(each, placed) for each in branch.conditions)
    return Branch(sources, conditions), tuple(replace(each, source=places[each.source]) for each in columns)


def connected(start: int, joins: Iterable[set[int]]) -> set[int]:
    """Return the source and all that is joined with it, directly or through others; `joins` are sources in groups."""
    groups = list(joins)
    return set(reachable((start,), lambda source: [each for group in groups if source in group for each in group]))


def sources_of(condition: Condition) -> set[int]:
    """Return the numbers of the sources that the condition mentions."""
    if isinstance(condition, Tagged):
        return {condition.source}
    return {column.source for column in columns_in(condition)}


def columns_in(condition: Condition) -> Sequence[Col]:
    """Return the columns that the condition mentions."""
    match condition:
        case Same(left, right) | Comparison(_, left, right):
            return [each for each in (left, right) if isinstance(each, Col)]
        case Among(Col() as column, _):
            return (column,)
        case Holds(plan):
            return plan.outer_columns
    return ()


def _mapped(condition: Condition, change: Callable[[Operand], Operand]) -> Condition:
    match condition:
        case Same(left, right):
            return Same(change(left), change(right))
        case Among(operand, ids):
            return Among(change(operand), ids)
        case Comparison(operator, left, right):
            return Comparison(operator, change(left), change(right))
        case Tagged() | Holds() | ForeignCondition():
            raise AssertionError("no prefix has such a condition")
