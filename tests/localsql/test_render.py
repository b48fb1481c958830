"""What the one renderer makes of plans over the caller's tables."""

import pytest

from checks.engine.rules.clauses import Const, Slot
from localsql.bindings import bindings_from_text
from localsql.layouts import Layouts
from localsql.relations import CallerTables
from localsql.render import TOP, LocalRenderer, written


def test_sql_for_a_caller_is_text_alone():
    assert written(("SELECT ", "'alice'")) == "SELECT 'alice'"


@pytest.mark.parametrize("value", [Const("alice"), Slot("actor")])
def test_a_value_that_nobody_wrote_as_a_literal_does_not_pass_for_a_parameter(value):
    with pytest.raises(AssertionError, match="no parameters"):
        written(("SELECT ", value))


def test_a_number_that_is_compared_by_size_is_a_literal_too():
    bindings = bindings_from_text("dialect: sqlite\nfacts: {}")
    renderer = LocalRenderer(bindings.dialect, CallerTables(bindings), Layouts(bindings))
    assert renderer.number(Const("-7"), TOP) == ("-7",)
    with pytest.raises(AssertionError):
        renderer.number(Const("1 OR 1 = 1"), TOP)
