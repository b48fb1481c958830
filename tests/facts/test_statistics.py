"""PostgreSQL knows how many facts there are as soon as many are stored."""

import json

import pytest
from django.core.management import call_command
from django.db import connection

from facts import table, together
from facts.table import fetch
from tests.checks.conftest import fact, publish, store

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)  # SQLite has no statistics, on purpose
POLICY = """
actor User {} resource Folder {} resource Doc { permissions = ["read"]; relations = { folder: Folder }; }
has_permission(u: User, "read", d: Doc) if has_relation(d, "folder", f) and opens(u, f);
"""


@pytest.fixture(autouse=True)
def nothing_counted(db):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM authz_fact")
        cursor.execute("ANALYZE authz_fact, authz_revision")  # as the database does by itself now and then
    table._stored.number, table._stored.due = 0, table.FEWEST


def in_folders(number: int) -> list[dict]:
    return [fact("has_relation", f"Doc:{each}", "folder", f"Folder:{each % 50}") for each in range(number)]


def counted() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reltuples FROM pg_class WHERE oid = 'authz_fact'::regclass")
        return int(cursor.fetchone()[0])


def test_a_large_batch_is_counted(api):
    publish(api, POLICY)
    store(api, *in_folders(1000))
    assert counted() == 1000


def test_small_changes_are_counted_when_they_come_to_something(api):
    publish(api, POLICY)
    facts = in_folders(600)
    for start in range(0, 600, 100):
        store(api, *facts[start : start + 100])
        assert counted() == (0 if start < 400 else 500)


def test_a_loaded_file_is_counted(api, tmp_path):
    publish(api, POLICY)
    lines = tmp_path / "facts.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in in_folders(2000)))
    call_command("load_facts", str(lines), environment=api.environment.slug, verbosity=0)
    assert counted() == 2000


def test_a_change_does_not_read_all_revisions_by_a_plan_that_was_made_while_there_were_few(api, monkeypatch):
    def read() -> int:
        fetch("SELECT pg_stat_force_next_flush()")
        return fetch("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'authz_revision'")[0][0]

    monkeypatch.setattr(together, "_runs", lambda *group: None)  # as if they could not be stored in one round trip
    publish(api, POLICY)
    facts = in_folders(table.FEWEST + 50)
    for each in facts[:-20]:
        store(api, each)
    before = read()
    for each in facts[-20:]:
        store(api, each)
    assert read() == before


def test_a_write_is_acknowledged_whatever_becomes_of_the_statistics(api, monkeypatch):
    publish(api, POLICY)

    def broken(stored: int) -> None:
        raise RuntimeError("no statistics today")

    monkeypatch.setattr(table, "_look", broken)
    store(api, *in_folders(1000))
    assert len(api.get("/facts?predicate=has_relation").json()) == 1000
