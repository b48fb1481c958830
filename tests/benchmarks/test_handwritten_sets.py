"""The statements by hand that have several answers agree with the oracle, since they are what answers are held to."""

import orjson
import pytest
from django.db import connection

from facts.loading import load
from facts.wire import Fact
from tests.benchmarks import handwritten_sets as sets
from tests.benchmarks.allowed import FACTS, allowed_with
from tests.benchmarks.database import Database

ACTIONS = {"Repo": sets.on_a_repository, "Doc": sets.on_a_document}
AMONG = {"Repo": sets.repositories_among, "Doc": sets.documents_among}


@pytest.fixture(scope="module")
def allowed() -> set[tuple[str, str, str, str]]:
    """Which user may do what on which resource, by type and id."""
    return {(who.id, what.id, on.type, on.id) for who, what, on in allowed_with() if who.type == "User"}


@pytest.fixture
def database(environment) -> Database:
    load(environment.id, enumerate(Fact(*each) for each in FACTS))
    return Database(connection.vendor, connection.connection)


def ids(kind: str) -> list[str]:
    return sorted({value.id for _, row in FACTS for value in row if value.type == kind})


def column(rows: list[tuple]) -> list[str]:
    return sorted(row[0] for row in rows)


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions(database, allowed, kind):
    rows = database.prepared(ACTIONS[kind]())
    for user in ids("User"):
        for thing in ids(kind):
            wanted = sorted(what for who, what, *on in allowed if who == user and on == [kind, thing])
            assert column(rows({"actor": user, "resource": thing})) == wanted


@pytest.mark.parametrize("kind", AMONG)
def test_resources_that_are_given(database, allowed, kind):
    rows, given = database.prepared(AMONG[kind](database.vendor)), ids(kind)[::2]
    for user in ids("User"):
        wanted = [thing for thing in given if (user, "read", kind, thing) in allowed]
        assert column(rows({"actor": user, "action": "read", "ids": orjson.dumps(given).decode()})) == wanted


def test_who_closes_an_issue(database, allowed):
    closers, closes = database.prepared(sets.CLOSERS), database.prepared(sets.CLOSES)
    for issue in ids("Issue"):
        wanted = [user for user in ids("User") if (user, "close", "Issue", issue) in allowed]
        assert column(closers({"resource": issue})) == wanted
        assert [user for user in ids("User") if closes({"resource": issue, "actor": user})[0][0]] == wanted


def test_where_in_an_organisation(database, allowed):
    rows = database.prepared(sets.IN_ORGANISATION)
    for repo, org in [(row[0].id, row[-1].id) for _, row in FACTS if row[-1].type == "Org" and row[0].type == "Repo"]:
        for user in ids("User"):
            is_there = repo in column(rows({"actor": user, "org": org}))
            assert is_there == ((user, "write", "Repo", repo) in allowed)
