"""Ordinary large policies are planned at once, and their statements are of a length that can be read."""

import pytest

from checks.engine.sql.dialects import PostgreSQL, SQLite
from tests.checks.in_memory import Engine
from tests.checks.large_policies import Large, policies
from tests.yardstick import seconds_at_most

KINDS = ("authorize", "list", "actions")


@pytest.mark.parametrize("dialect", [SQLite(), PostgreSQL()], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("large", list(policies()), ids=lambda large: large.name)
def test_a_large_policy_is_planned_at_once_into_little_text(large: Large, dialect):
    engines = [Engine(large.text, dialect) for _ in KINDS]  # none knows what another found out about the rules
    with seconds_at_most(len(KINDS) * large.most_seconds):
        made = [
            engine.compiled(kind, large.action, large.actor, large.resource) for engine, kind in zip(engines, KINDS)
        ]
    assert max(len(each.statement.sql) for each in made if each.statement) <= large.most_text
