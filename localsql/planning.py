"""A question -> the engine's plan over the caller's tables and the stored facts, and how to read its exits.

An answer that stands for every value is said by a condition alone (`FALSE OR gate`), or by all ids of the type, where
the bindings give them. What negations hold back from it has branches of its own, where they mention nothing but that
value and what is given; those may stand for every value again, and have something held back from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from checks.asking import deadline
from checks.engine.compile import Root
from checks.engine.errors import NestedTooDeep
from checks.engine.plan.paths import outward
from checks.engine.plan.plan import Branch, Condition, Exit, Plan
from checks.engine.plan.planner import Planner
from checks.engine.rules.clauses import Col, Neg, Operand, Slot, Var, substituted, substituted_terms, type_of
from checks.engine.rules.ruleset import RuleSet
from localsql.relations import CallerTables, Domain


@dataclass(frozen=True)
class LocalBranch:
    """An exit of a plan: its answer columns, `Var(k)` where column k stands for every value.

    `withheld` are branches to what is not among those values; None where that cannot be listed.
    """

    exit: Exit
    withheld: tuple[LocalBranches, ...] | None = ()


@dataclass(frozen=True)
class LocalBranches:
    """All branches to some answers. They are of one plan, whose recursion they share."""

    plan: Plan
    each: tuple[LocalBranch, ...]


def planned(rules: RuleSet, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalBranches:
    """All branches to answers, whose columns have these types. Nothing is tabled for size: the caller reads the SQL."""
    with rules.planning((tables, root, types)):
        deadline.check()
        try:
            return _planned(rules, tables, root, types)
        except RecursionError:
            raise NestedTooDeep from None


def _planned(rules: RuleSet, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalBranches:
    planner = Planner(rules, tables.places, is_bounded=False)
    outs = tuple(Var(k, type=name) for k, name in enumerate(types))
    fixed: frozenset[Operand] = frozenset(arg for call in root.calls for arg in call.args if isinstance(arg, Slot))
    plan = planner.plan((*root.givens, *root.calls), outs, fixed)
    ends = (_enumerated(planner, tables, end, types) for end in plan.exits)
    return _branches(planner, plan, ends, fixed)


def _branches(planner: Planner, plan: Plan, ends: Iterable[Exit], fixed: frozenset[Operand]) -> LocalBranches:
    branches = (_branch(planner, end) for end in ends)
    return LocalBranches(plan, tuple(branch for branch in branches if branch is not None))


def _enumerated(planner: Planner, tables: CallerTables, end: Exit, types: tuple[str, ...]) -> Exit:
    """The exit with columns that stand for every value read from all ids of their types, where those are known."""
    sources = list(end.branch.sources)
    columns: dict[Var, Col] = {}
    for out, type_name in zip(end.outs, types):
        # Two columns may stand for one and the same value.
        if isinstance(out, Var) and out not in columns and type_name in tables.bindings.domains:
            source = Domain(planner.new_source(), type_name)
            sources.append(source)
            columns[out] = Col(source.number, "v", type_name)
    outs = substituted_terms(end.outs, columns)
    guards = tuple(substituted(guard, columns) for guard in end.guards)
    return replace(end, branch=Branch(tuple(sources), end.branch.conditions), outs=outs, guards=guards)


def _branch(planner: Planner, end: Exit) -> LocalBranch | None:
    conditions: list[Condition] = []
    withheld: list[LocalBranches] | None = []
    for guard in end.guards:
        if any(isinstance(arg, Var) for arg in guard.call.args):
            found = _withheld(planner, guard, end)
            withheld = None if withheld is None or found is None else [*withheld, found]
            continue
        verdict = planner.tested(guard)
        if verdict is False:
            return None
        conditions += [] if verdict is True else [verdict]
    branch = Branch(end.branch.sources, (*end.branch.conditions, *conditions))
    return LocalBranch(replace(end, branch=branch, guards=()), None if withheld is None else tuple(withheld))


def _withheld(planner: Planner, guard: Neg, end: Exit) -> LocalBranches | None:
    """The branches to what the guard holds back; None where that depends on the row, or on several columns."""
    args = guard.call.args
    if len(end.outs) != 1 or any(isinstance(arg, Col) for arg in args):
        return None
    fixed: frozenset[Operand] = frozenset(arg for arg in args if isinstance(arg, Slot))
    plan = planner.plan((outward(guard.call),), (Var(0, type=type_of(end.outs[0])),), fixed)
    return _branches(planner, plan, plan.exits, fixed)
