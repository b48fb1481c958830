"""Ordinary large policies are planned at once, and their statements are of a length that can be read."""

import pytest

from checks.engine.sql.text import PostgreSQL, SQLite
from tests.checks.in_memory import Engine
from tests.checks.large_policies import Large, policies
from tests.yardstick import within

KINDS = ("authorize", "list", "actions")


@pytest.mark.parametrize("dialect", [SQLite(), PostgreSQL()], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("large", list(policies()), ids=lambda large: large.name)
def test_a_large_policy_is_planned_at_once_into_little_text(large: Large, dialect):
    def planned(engines: dict[str, Engine]):
        return [engine.compiled(kind, large.action, large.actor, large.resource) for kind, engine in engines.items()]

    def engines() -> dict[str, Engine]:  # none knows what another found out about the rules
        return {kind: Engine(large.text, dialect) for kind in KINDS}

    made = within(len(KINDS) * large.most_seconds, planned, engines)
    texts = (each.statement.sql.replace("authz_fact", "fact") for each in made if each.statement)
    assert max(map(len, texts)) <= large.most_text
