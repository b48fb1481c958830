"""Semijoins: sources whose columns are not selected are tested with IN, so that their duplicates multiply no rows.

s0 local has_role(u, n, o), s1 local repo_org(r, o2), o = o2; r is the answer
    ->   s1 local repo_org(r, o2), o2 in (o of s0 local has_role(u, n, o))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checks.engine.plan.draft import connected, sources_of
from checks.engine.plan.plan import Among, Branch, Condition, DerivedTable, FactScan, ForeignCondition, Same, Source
from checks.engine.rules.clauses import Col, Operand, Term
from localsql.relations import ConstantRows, Domain


@dataclass(frozen=True, slots=True)
class Semijoin(ForeignCondition):
    """The operand is among the values of the branch's column."""

    operand: Operand
    column: Col
    branch: Branch


def set_apart(branch: Branch, outs: Iterable[Term]) -> Branch:
    """Return the branch; sources that only one equality joins with the rest become a `Semijoin`."""
    shown = {out.source for out in outs if isinstance(out, Col)}
    if not shown or len(branch.sources) < 2:
        return branch
    for condition in branch.conditions:
        if isinstance(condition, Same) and isinstance(condition.left, Col) and isinstance(condition.right, Col):
            for kept, column in ((condition.left, condition.right), (condition.right, condition.left)):
                group = _reached(branch, column.source, condition)
                if kept.source not in group and not group & shown and _is_local(branch, group):
                    return set_apart(_apart(branch, group, condition, Semijoin(kept, column, Branch(()))), outs)
    return branch


def _apart(branch: Branch, group: set[int], link: Condition, semijoin: Semijoin) -> Branch:
    inside = [each for each in branch.conditions if each != link and _mentioned(each) & group]
    sources = tuple(source for source in branch.sources if source.number in group)
    part = set_apart(Branch(sources, tuple(inside)), (semijoin.column,))
    made = Semijoin(semijoin.operand, semijoin.column, part)
    left = tuple(source for source in branch.sources if source.number not in group)
    conditions = (made if each == link else each for each in branch.conditions if each not in inside)
    return Branch(left, tuple(conditions))


def _reached(branch: Branch, start: int, link: Condition) -> set[int]:
    """Return the sources that other conditions than the link join with the first one, directly or through others."""
    joined = [_mentioned(each) for each in branch.conditions if each != link]
    joined += [_around(source) | {source.number} for source in branch.sources]
    return connected(start, joined)


def _mentioned(condition: Condition) -> set[int]:
    if isinstance(condition, Semijoin):
        return {condition.operand.source} if isinstance(condition.operand, Col) else set()
    return sources_of(condition)


def _around(source: Source) -> set[int]:
    """Return the numbers of the sources whose columns the source mentions."""
    return {each.source for each in source.plan.outer_columns} if isinstance(source, DerivedTable) else set()


def _is_local(branch: Branch, group: set[int]) -> bool:
    sources = [source for source in branch.sources if source.number in group]
    return any(isinstance(each, FactScan) for each in sources) and all(
        isinstance(each, FactScan | ConstantRows | Domain) for each in sources
    )


def tested(condition: Condition) -> tuple[Term, ...]:
    """Return the operands that cannot be NULL where the condition holds."""
    match condition:
        case Same(left, right):
            return (left, right)
        case Among(operand, _) | Semijoin(operand):
            return (operand,)
    return ()
