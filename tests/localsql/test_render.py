"""What the one renderer makes of plans over the caller's tables."""

import sqlite3

import pytest

from checks.engine.rules.clauses import Const, Slot
from localsql.dialects import SQLite
from localsql.errors import TooLargeStatement
from localsql.render import LocalRenderer, written


def test_sql_for_a_caller_is_text_alone():
    assert written(("SELECT ", "'alice'")) == "SELECT 'alice'"


@pytest.mark.parametrize("value", [Const("alice"), Slot("actor")])
def test_a_value_that_nobody_wrote_as_a_literal_does_not_pass_for_a_parameter(value):
    with pytest.raises(AssertionError, match="no parameters"):
        written(("SELECT ", value))


def test_a_recursion_has_any_number_of_first_rows():
    """SQLite takes 500 arms of one union."""
    first = [(f"SELECT {tag} AS tag",) for tag in range(1000)]
    step = ("SELECT tag + 1000 FROM g WHERE tag < 1000",)
    table = written(LocalRenderer(SQLite(), None, None).recursive("g", "p", ["tag"], first, [step]))
    assert sqlite3.connect(":memory:").execute(f"WITH RECURSIVE {table} SELECT count(*) FROM g").fetchall() == [(2000,)]


def test_more_steps_of_a_recursion_than_sqlite_takes_are_refused():
    steps = [(f"SELECT tag + {each} FROM g",) for each in range(500)]
    with pytest.raises(TooLargeStatement):
        LocalRenderer(SQLite(), None, None).recursive("g", "p", ["tag"], [("SELECT 1",)], steps)
