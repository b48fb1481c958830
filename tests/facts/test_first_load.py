"""The first facts of a PostgreSQL database are loaded without indexes, and nobody can tell afterwards."""

import sys
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection

from facts import loading, read
from facts.loading import LinesRejected, load
from policy.core.clock import now

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)

ODD = ["a\tb", "a\nb", "a\rb", "a\\b", "\\N", "\\.", "None", "NULL", "ä€", '"', "'", "%s", "{}"]


@pytest.fixture(autouse=True)
def untouched(db, monkeypatch):
    monkeypatch.setattr(loading, "LEAST", 1)
    monkeypatch.setattr(loading, "_TRIES", 2)
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 3))
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE authz_fact")


@pytest.fixture
def alone(monkeypatch) -> list[int]:
    """How many facts were moved without indexes, each time."""
    found: list[int] = []
    whole = loading.FirstLoad._moved_alone

    def noted(self) -> int:
        found.append(whole(self))
        return found[-1]

    monkeypatch.setattr(loading.FirstLoad, "_moved_alone", noted)
    return found


def roles(*ids: str, **more: object) -> list[dict]:
    def role(user: str) -> dict:
        args = [{"type": "User", "id": user}, {"type": "String", "id": "member"}, {"type": "Org", "id": "acme"}]
        return {"predicate": "has_role", "args": args, **more}

    return [role(each) for each in ids]


def loaded(environment, *facts: dict):
    return load(environment.id, list(enumerate(facts, 1)))


def users(environment) -> list[str]:
    return sorted(fact.args[0].id for fact in read.found(environment.id, None, ()).facts)


def indexes() -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'fact' ORDER BY indexname")
        found = cursor.fetchall()
        mine = "conrelid = 'authz_fact'::regclass"
        cursor.execute(f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE {mine}")
        return [*found, *sorted(cursor.fetchall())]


@contextmanager
def somebody_else():
    with psycopg.connect(connection.connection.info.dsn, password=connection.connection.info.password) as other:
        yield other


def test_the_facts_are_there_and_the_indexes_as_they_were(environment, alone):
    before = indexes()
    names = [f"user-{number}" for number in range(20)]
    assert loaded(environment, *roles(*names)).inserted == 20
    assert (alone, users(environment), indexes()) == ([20], sorted(names), before)
    assert loaded(environment, *roles("user-1", "eve")).inserted == 1
    assert alone == [20]  # the table has had rows now


def test_a_fact_that_is_said_twice_is_stored_once(environment, alone):
    before = indexes()
    assert loaded(environment, *roles("ann", "bob", "cy", "dan", "ann", "bob")).inserted == 4
    assert (alone, users(environment), indexes()) == ([], ["ann", "bob", "cy", "dan"], before)


def test_few_facts_let_nobody_wait(environment, alone, monkeypatch):
    monkeypatch.setattr(loading, "LEAST", 5)
    assert loaded(environment, *roles("ann", "bob", "cy", "dan")).inserted == 4
    assert (alone, len(users(environment))) == ([], 4)


def test_wrong_lines_leave_nothing_behind(environment, alone):
    before = indexes()
    with pytest.raises(LinesRejected):
        loaded(environment, *roles("ann", "bob", "cy", "dan"), {"predicate": 1})
    assert (alone, users(environment), indexes()) == ([], [], before)


def test_whoever_reads_the_table_all_the_time_holds_nothing_up(environment, alone):
    before = indexes()
    with somebody_else() as other:
        assert other.execute("SELECT count(*) FROM authz_fact").fetchone() == (0,)  # and keeps its lock
        assert loaded(environment, *roles("ann", "bob")).inserted == 2
    assert (alone, users(environment), indexes()) == ([], ["ann", "bob"], before)


def test_whoever_began_before_sees_no_facts_and_who_begins_after_sees_all(environment, alone):
    with somebody_else() as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM authz_environment")
        loaded(environment, *roles("ann", "bob"))
        by_index = "SELECT count(*) FROM authz_fact WHERE sig > 0 AND a0 = 'ann'"
        assert other.execute("SELECT count(*) FROM authz_fact").fetchone() == (0,)
        assert other.execute(by_index).fetchone() == (0,)
        other.execute("COMMIT")
        assert other.execute("SELECT count(*) FROM authz_fact").fetchone() == (2,)
        assert other.execute(by_index).fetchone() == (1,)
    assert alone == [2]


def test_facts_that_somebody_stores_meanwhile_stay(environment, alone, monkeypatch):
    whole = loading._lock

    def after_another() -> None:
        with somebody_else() as other:
            other.execute("INSERT INTO authz_fact (sig, a0) VALUES (987654, 'theirs')")
        whole()

    monkeypatch.setattr(loading, "_lock", after_another)
    before = indexes()
    assert loaded(environment, *roles("ann", "bob")).inserted == 2
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM authz_fact")
        assert cursor.fetchone() == (3,)
    assert (alone, users(environment), indexes()) == ([], ["ann", "bob"], before)


def test_a_role_that_may_not_drop_indexes_loads_all_the_same(environment, alone, monkeypatch):
    monkeypatch.setattr(loading, "_INDEXES", "SELECT 'no_such_index', 'SELECT 1'")
    before = indexes()
    assert loaded(environment, *roles("ann", "bob")).inserted == 2
    assert (alone, users(environment), indexes()) == ([], ["ann", "bob"], before)


def test_nobody_waits_for_a_file_that_is_still_read(environment, alone):
    """Once some of its facts may end, the others have come into the table, which is no load without indexes."""

    def lines():
        yield from roles("ann", "bob", "cy")
        yield from roles("dan", "eve", "fay", expires_at="2100-01-01T00:00:00Z")
        yield from roles("gus", "hal", "ida")
        with somebody_else() as other:
            other.execute("SET lock_timeout = 1000")
            assert other.execute("SELECT count(*) FROM authz_fact").fetchone() == (0,)

    assert load(environment.id, enumerate(lines(), 1)).inserted == 9
    assert (alone, len(users(environment))) == ([], 9)


def test_an_end_that_is_said_later_counts(environment):
    later = "2100-01-01T00:00:00Z"
    facts = [*roles("ann", "bob", "cy"), *roles("ann", expires_at=later), *roles("dan", "eve", "fay")]
    assert loaded(environment, *facts).inserted == 6
    ends = {fact.args[0].id: fact.expires_at for fact in read.found(environment.id, None, ()).facts}
    assert ends.pop("ann") > now()
    assert set(ends.values()) == {None} and len(ends) == 5


def test_ids_are_stored_as_they_are(environment, alone):
    assert loaded(environment, *roles(*ODD)).inserted == len(ODD)
    assert users(environment) == sorted(ODD)
    assert alone == [len(ODD)]
    more = [f"{each}!" for each in ODD]
    loaded(environment, *roles(*more))
    assert users(environment) == sorted([*ODD, *more])


def test_after_two_loads_at_once_threads_take_turns_as_before(monkeypatch):
    monkeypatch.setattr(loading, "is_due", lambda: False)
    usual, first, second = sys.getswitchinterval(), loading.loader_behind(), loading.loader_behind()
    first.__enter__()
    second.__enter__()
    assert sys.getswitchinterval() < usual
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
