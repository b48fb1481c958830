"""Plans as text, the SQL of a few of them, and what they cost: read the difference when they change.

    pytest tests/checks/test_golden_plans.py --rewrite      # writes texts and budgets anew

The SQL is kept for the policies of `WITH_SQL`, which together have every form of statement. That the SQL of the others
is right is shown by random questions, and that it is quick by budgets (see `measured`).
"""

import re

import pytest

from checks.engine.compile import Compiled
from checks.engine.sql.text import PostgreSQL
from checks.management.commands.ask import shown_plan
from tests.checks.in_memory import Engine
from tests.checks.measured import Measure, budget_path, budgets_of, is_dear, text_of
from tests.checks.plan_questions import GOLDEN, QUESTIONS, brought_for, numbered, policy_of, question_of

# Of each form of statement one: recursion, lists and many ids; negation; both; no arguments; rounds.
WITH_SQL = {"groups", "every_required_role", "inherit_unless_overridden", "no_arguments", "rounds"}

# ---- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_plans_are_as_they_were_read(name, golden):
    on_sqlite, on_postgresql = Engine(policy_of(name)), Engine(policy_of(name), PostgreSQL())
    texts = [plan_text(on_sqlite, on_postgresql, text, name in WITH_SQL) for text in QUESTIONS[name]]
    golden(GOLDEN / name, "\n".join(texts))


def plan_text(on_sqlite: Engine, on_postgresql: Engine, text: str, with_sql: bool) -> str:
    """Return the plan as `ask --plan` prints it (for PostgreSQL too where it differs), and each database's SQL."""
    plan, _, sql = shown_plan(compiled(on_sqlite, text)).partition("\n\n")
    other_plan, _, other_sql = shown_plan(compiled(on_postgresql, text)).partition("\n\n")
    again = [] if numbered(other_plan) == numbered(plan) else ["-- PostgreSQL", "", numbered(other_plan), ""]
    parts = [f"==== {text}", "", numbered(plan), "", *again]
    if with_sql:
        parts += ["-- SQLite", "", laid_out(sql), "", "-- PostgreSQL", "", laid_out(other_sql), ""]
    return "\n".join(parts)


def compiled(engine: Engine, text: str) -> Compiled:
    question, signatures = question_of(text)
    return engine.compiled_for(engine.shape([question], brought_for(engine.rules.program, signatures))[0])


def laid_out(text: str) -> str:
    """SQL in lines that differences can be read in; only spaces have changed."""
    words = r" (?=(?:UNION ALL|UNION|SELECT|FROM|WHERE|AND EXISTS|AND NOT EXISTS|CROSS JOIN)\b)"
    return "\n".join(indented(re.sub(words, "\n", line)) for line in text.splitlines())


def indented(text: str) -> str:
    """Each line by the parentheses that are open before it."""
    depth, lines = 0, []
    for line in text.splitlines():
        lines.append("  " * depth + line)
        depth += line.count("(") - line.count(")")
    return "\n".join(lines)


# ---- costs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_plans_cost_no_more_than_they_did(name, rewrite):
    path, measure = budget_path(name), Measure(name)
    costs = {text: measure.cost(text) for text in QUESTIONS[name]}
    if rewrite:
        path.write_text(text_of(costs), encoding="utf-8")
    budgets = budgets_of(name)
    assert list(budgets) == QUESTIONS[name], "the questions are others; see --rewrite"
    dear = [f"{costs[each]} {each}, may cost {budgets[each]}" for each in costs if is_dear(costs[each], budgets[each])]
    assert not dear, "\n".join(dear)
