"""Local SQL is made in one moment and by reading alone: of committed facts, without waiting for who changes them."""

import time

import pytest
from django.db import connection

from facts import history, loading
from facts.models import Signature
from localsql import asking
from policy.core import clock
from tests.checks.conftest import about, fact, publish, store
from tests.waiting import another_writer

POLICY = """
actor User {}
resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; "read" if is_public(resource); }
"""
BINDINGS = "facts: {'is_public(Doc:_)': {query: SELECT id FROM doc}}"


@pytest.fixture
def said(api):
    publish(api, POLICY)

    def say(context: list | None = None) -> str:
        query = {**about("User:ann", action="read", resource_type="Doc"), "context_facts": context or []}
        answer = api.post("/list_query", {"query": query, "data_bindings": BINDINGS, "column": "id"})
        assert answer.status_code == 200, answer.content
        return answer.json()["sql"]

    return say


def test_nothing_is_written_and_no_writer_is_waited_for(api, said):
    with another_writer(api.environment.pk):
        assert "stored" not in said()
        assert "'brought'" in said([fact("has_role", "User:ann", "reader", "Doc:brought")])
    assert Signature.objects.count() == 0


def test_a_first_fact_of_its_kind_counts_for_sql_made_after_it(api, said):
    context = [fact("has_role", "User:ann", "reader", "Doc:brought")]
    assert "'stored'" not in said() and "'brought'" in said(context)
    store(api, fact("has_role", "User:ann", "reader", "Doc:stored"))
    assert "'stored'" in said()
    assert "'stored'" in said(context) and "'brought'" in said(context)


@pytest.mark.parametrize("context", [[], [fact("has_role", "User:ann", "reader", "Doc:brought")]], ids=["", "context"])
@pytest.mark.parametrize("kind", ["has_role", "has_permission"])
def test_a_first_fact_that_is_stored_while_sql_is_made_counts(api, said, monkeypatch, kind, context):
    name = "reader" if kind == "has_role" else "read"
    first = [fact(kind, "User:ann", name, "Doc:stored")]
    plan = asking._shaped

    def storing_meanwhile(*args):
        shaped = plan(*args)
        if first:
            store(api, first.pop())
        return shaped

    monkeypatch.setattr(asking, "_shaped", storing_meanwhile)
    sql = said(context)
    assert not first and "'stored'" in sql
    assert ("'brought'" in sql) == bool(context)


@pytest.mark.parametrize("is_swept", [False, True])
def test_sql_has_loaded_facts_until_their_end(api, said, is_swept):
    """By the database's clock, swept or not; one that was loaded again without an end stays."""
    ending = {"expires_at": "2099-01-01T00:00:00Z"}
    facts = {name: fact("has_role", "User:ann", "reader", f"Doc:{name}") for name in ("ends", "stays", "again")}
    loading.load(api.environment.pk, enumerate([facts["ends"] | ending, facts["stays"], facts["again"] | ending]))
    loading.load(api.environment.pk, enumerate([facts["again"]]))
    assert all(f"'{name}'" in said() for name in facts)
    end = clock.now() + 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET expires_at = %s WHERE expires_at IS NOT NULL", [end])
    while clock.now() <= end:
        time.sleep(0.001)
    if is_swept:
        assert history.sweep(api.environment.pk) == 1
    assert [f"'{name}'" in said() for name in facts] == [False, True, True]
