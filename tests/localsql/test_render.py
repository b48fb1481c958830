"""What the one renderer makes of plans over the caller's tables."""

import pytest

from checks.engine.rules.clauses import Const, Slot
from localsql.render import written


def test_sql_for_a_caller_is_text_alone():
    assert written(("SELECT ", "'alice'")) == "SELECT 'alice'"


@pytest.mark.parametrize("value", [Const("alice"), Slot("actor")])
def test_a_value_that_nobody_wrote_as_a_literal_does_not_pass_for_a_parameter(value):
    with pytest.raises(AssertionError, match="no parameters"):
        written(("SELECT ", value))
