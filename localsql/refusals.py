"""Refusals of recursion that a dialect cannot express."""

from __future__ import annotations

import re

from checks.engine.plan.plan import Branch, DerivedTable, Holds, Plan
from localsql.dialects import Dialect
from localsql.errors import CannotSay
from localsql.semijoins import Semijoin


def check_correlation(dialect: Dialect, plan: Plan) -> None:
    """Refuse a plan that mentions a row of an outer select, if the dialect has no tables that may do that."""
    if not dialect.can_correlate and plan.outer_columns:
        predicate = re.split("[. ]", plan.states[0].call.predicate if plan.states else plan.name)[0]
        raise CannotSay(
            f"a rule tests `{predicate}`, which is recursive, for each row: this dialect cannot say that;"
            f" store the facts that `{predicate}` recurses over, or use PostgreSQL or SQLite"
        )


def check_whole(dialect: Dialect, plan: Plan) -> None:
    """Refuse to negate a recursion that the dialect may cut short without an error: `not` might then be wrong."""
    if not dialect.fails_when_cut and _recurses(plan):
        raise CannotSay(
            "a rule says `not` of what is recursive, and MariaDB stops following recursion after a number of steps"
            " without an error; store the facts that it recurses over, or use PostgreSQL, MySQL or SQLite"
        )


def _recurses(plan: Plan) -> bool:
    """Say whether anything that the plan reads is recursive."""
    return bool(plan.seeds or plan.answers) or any(_has_recursion(branch) for branch in plan.branches())


def _has_recursion(branch: Branch) -> bool:
    for each in (*branch.sources, *branch.conditions):
        match each:
            case DerivedTable(plan=plan) | Holds(plan):
                if _recurses(plan):
                    return True
            case Semijoin(branch=inner):
                if _has_recursion(inner):
                    return True
    return False
