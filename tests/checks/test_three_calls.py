"""Queries of three calls with everything open: answered in whatever form they fit a statement, or refused by name."""

import sqlite3
from random import Random

import pytest

from checks.engine import compile as forms
from checks.engine.compile import Root, Shape, answers_of, planned_in_rounds
from checks.engine.rules.clauses import Call, Var
from checks.engine.sql.rounds import statements_of
from policy.errors import AuthzError
from tests.checks.hard_policies import policies
from tests.checks.in_memory import NOW, Engine
from tests.checks.plan_questions import question_of
from tests.properties.plans_by_meaning import by_signature
from tests.properties.random_policies import Case, random_case
from tests.sampling import seeds

HARD = [(each, text) for each in policies() for text in each.questions if text.count(" and ") == 2]
PATIENCE = 5.0  # of a busy machine
FEW = 60  # tables that a statement has room for: then more questions need the forms that take fewer


@seeds(range(120), 10)
def test_answers_are_the_same_in_every_form(seed, monkeypatch):
    rng = Random(seed)
    try:
        case = random_case(rng, ["small_ladder"] if seed % 3 == 0 else [])
        engine = stored(case)
    except AuthzError:
        return
    shape = three_calls(case, rng)
    answers = {"in one statement": outcome(engine, shape)}
    with monkeypatch.context() as patched:
        patched.setattr(forms, "MOST_WEIGHT", FEW)
        answers["with room for few tables"] = outcome(stored(case), shape)
    monkeypatch.setattr(forms._Fitting, "planned", in_rounds)  # whatever there is room for
    by_rounds = outcome(stored(case), shape)
    for form, found in answers.items():
        if isinstance(found, set) and isinstance(by_rounds, set):
            assert found == by_rounds, f"{form}: {shape.roots[0]}\n{case.policy}"


@pytest.mark.parametrize(("hard", "text"), HARD, ids=lambda each: each if isinstance(each, str) else each.name)
def test_hard_ones_fit_statements_or_are_refused_by_name(hard, text):
    engine = Engine(hard.text, patience=PATIENCE)
    shape, slots = engine.shape([question_of(text)[0]])
    try:
        made = engine.compiled_for(shape)
    except AuthzError as refused:
        assert "combines in too many ways" in refused.message
        return
    assert made.rounds
    for statement in statements_of(made.rounds):
        assert_fits(engine, statement.sql, len(statement.parameters))
    assert engine.rows(made, slots) == []


def assert_fits(engine: Engine, sql: str, parameters: int) -> None:
    """SQLite prepares it, which it refuses for more than 65,535 tables."""
    try:
        engine.database.execute(f"EXPLAIN {sql}", ["[]"] * parameters)
    except sqlite3.OperationalError as error:
        raise AssertionError(f"{error}: {sql[:200]}") from error


def stored(case: Case) -> Engine:
    engine = Engine(case.policy, patience=PATIENCE)
    for signature, rows in by_signature(case.facts).items():
        engine.store_all(signature, rows)
    return engine


def three_calls(case: Case, rng: Random) -> Shape:
    """Goals of the policy, each argument a variable, most of one type shared."""
    calls, variables = [], []
    for predicate, row in rng.choices(case.goals, k=3):
        args = []
        for value in row:
            known = [each for each in variables if each.type == value.type and each not in args]
            if not known or rng.random() < 0.3:
                known = [Var(len(variables), type=value.type)]
                variables += known
            args.append(rng.choice(known))
        calls.append(Call(predicate, tuple(value.type for value in row), tuple(args)))
    return Shape((Root(tuple(calls)),), len(variables))


def in_rounds(fitting: forms._Fitting, root: Root) -> forms.PlannedRoot:
    return planned_in_rounds(fitting.rules, fitting.stores, root, fitting.width)


def outcome(engine: Engine, shape: Shape) -> set[tuple] | str:
    """The answers, but for those that another one stands for, or why there are none."""
    try:
        made = engine.compiled_for(shape)
        rows = engine.rows(made, {"now": NOW})
        found = set(map(tuple, answers_of(rows) if made.is_guarded else rows))
        return {row for row in found if not any(stands_for(other, row) for other in found - {row})}
    except AuthzError as refused:
        return str(refused)


def stands_for(general: tuple, row: tuple) -> bool:
    """Whether one answer says what another one does: None is every value."""
    return all(one is None or one == other for one, other in zip(general, row))
