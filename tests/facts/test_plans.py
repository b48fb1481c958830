"""Every way to look facts up is an index search on both databases, whatever the database thinks of its numbers."""

import pytest
from django.db import connection

from facts.models import COLUMNS
from facts.store import id_conditions
from facts.wire import Argument
from tests.sampling import together

ARITIES = range(1, 6)
ROWS = 2_000  # of each arity
ONE = [(arity, position) for arity in ARITIES for position in range(arity)]
TWO = [(3, (0, 1)), (3, (1, 2)), (3, (0, 2)), (4, (1, 2)), (4, (2, 3)), (5, (3, 4)), (3, (0, 1, 2))]


@pytest.fixture
def filled(db):
    """Enough rows that scanning them would look dear."""
    with connection.cursor() as cursor:
        for number, arity in enumerate(ARITIES, 1):
            ids = [f"'{column}-' || (n % {97 + place}) || '-' || n" for place, column in enumerate(COLUMNS[:arity])]
            empty = ["''"] * (len(COLUMNS) - arity)
            cursor.execute(
                f"INSERT INTO authz_fact (sig, {', '.join(COLUMNS)}) WITH RECURSIVE rows(n) AS"
                f" (SELECT 0 UNION ALL SELECT n + 1 FROM rows WHERE n < {ROWS - 1})"
                f" SELECT {number}, {', '.join([*ids, *empty])} FROM rows"
            )
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE authz_fact")
    return db


@together("arity, position", ONE)
def test_any_one_argument_is_searched_by_index(filled, arity, position):
    plan = plan_of_look_up(arity, (position,))
    assert is_search(plan, f"a{position}"), plan


@together("arity, positions", TWO)
def test_more_arguments_are_searched_by_index(filled, arity, positions):
    plan = plan_of_look_up(arity, positions)
    assert any(is_search(plan, f"a{position}") for position in positions), plan


@together("given", ["a0", "a2"])
def test_a_list_of_names_next_to_the_entity_stays_in_the_index(filled, given):
    plan = plan_of(
        f"SELECT a0, a2 FROM authz_fact f WHERE f.sig = 3 AND f.{given} = %s AND f.a1 IN (%s, %s)", ("x", "y", "z")
    )
    assert is_search(plan, given), plan
    assert "COVERING" in plan or "PRIMARY KEY" in plan or "Index Only" in plan or "Index Cond" in plan, plan


def plan_of_look_up(arity: int, bound: tuple[int, ...]) -> str:
    args = [Argument("T", "x") if position in bound else Argument() for position in range(arity)]
    conditions, ids = id_conditions(args)
    return plan_of(f"SELECT a0, a1, a2 FROM authz_fact f WHERE f.sig = {arity}{conditions}", ids)


def plan_of(statement: str, ids: tuple[str, ...]) -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", ids)
            return "\n".join(row[3] for row in cursor.fetchall())
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE asked AS {statement.replace('%s', '$%d') % tuple(range(1, len(ids) + 1))}")
        try:
            cursor.execute("EXPLAIN EXECUTE asked ({})".format(", ".join(f"'{text}'" for text in ids)))
            return "\n".join(row[0] for row in cursor.fetchall())
        finally:
            cursor.execute("DEALLOCATE asked")


def is_search(plan: str, column: str) -> bool:
    """SQLite names the columns that it searches by; PostgreSQL the condition on the index."""
    conditions = [line for line in plan.splitlines() if "SEARCH" in line or "Index Cond" in line]
    return any(f"{column}=" in line or f"{column} =" in line for line in conditions)
