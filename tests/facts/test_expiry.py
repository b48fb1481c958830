"""Sweeping: facts whose end has come become past facts, whoever looks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from facts import history, read, store
from facts.store import Inserts
from facts.table import execute
from policy.core import clock
from policy.core.journal import advance, changing, current_offset
from policy.models import Environment, Revision
from tests.facts.test_commands import run
from tests.facts.test_ends import SOON, as_fact, counted, fetched, insert, let_pass, member, past, shown, stored
from tests.waiting import another_writer


def filled(api, ended: int, lasting: int = 2) -> None:
    facts = [as_fact(f"u{n}", SOON) for n in range(ended)]
    store.apply(api.environment.pk, [Inserts([*facts, *[as_fact(f"v{n}", SOON) for n in range(lasting)]])])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET expires_at = %s WHERE a0 LIKE %s", (clock.now() - 1, "u%"))


def test_what_has_ended_becomes_past(api):
    insert(api, member("ann", SOON), member("ben", SOON), member("cleo"))
    let_pass("ann")
    assert run("prune").startswith("1 fact expired\n")
    offset = current_offset(api.environment.pk)
    assert [(row[0], row[2]) for row in past()] == [("ann", offset)]
    assert [row[0] for row in stored()] == ["ben", "cleo"]
    made = Revision.objects.get(environment=api.environment, number=offset)
    assert (made.kind, made.author, made.inserted, made.deleted) == ("expiry", "expiry", 0, 1)
    assert run("prune").startswith("0 facts expired\n")
    assert current_offset(api.environment.pk) == offset


def test_what_has_ended_in_a_copy_is_left_to_the_service_that_it_follows(api):
    insert(api, member("ann", SOON))
    let_pass("ann")
    Environment.objects.filter(pk=api.environment.pk).update(follows="https://example.org")
    assert run("prune").startswith("0 facts expired\n")
    assert history.sweep(api.environment.pk) == 0
    assert len(stored()) == 1


def test_where_nothing_ends_nothing_is_written(api):
    insert(api, member("ann"), member("ben", SOON))
    moment = fetched('SELECT "offset", moment FROM authz_environment')
    history.sweep_all()
    assert fetched('SELECT "offset", moment FROM authz_environment') == moment


def test_a_sweep_goes_batch_by_batch(api, monkeypatch):
    monkeypatch.setattr(history, "SWEPT_AT_ONCE", 4)
    filled(api, 10)
    assert history.sweep(api.environment.pk) == 10
    assert counted(api.environment)[1:] == [("expiry", 0, 4), ("expiry", 0, 4), ("expiry", 0, 2)]
    assert sorted(shown(api)) == ["v0", "v1"]


def test_what_is_stored_again_in_time_is_not_swept(api):
    insert(api, member("ann", SOON), member("ben", SOON))
    let_pass("ann", "ben")
    insert(api, member("ann"), member("ben", SOON))
    assert history.sweep(api.environment.pk) == 0
    assert shown(api) == {"ann": None, "ben": SOON}


def test_environments_are_swept_each(new_api):
    apis = [new_api(slug) for slug in ("one", "other", "third")]
    for api in apis[:2]:
        store.apply(api.environment.pk, [Inserts([as_fact(f"of{api.environment.pk}", SOON)])])
        let_pass(f"of{api.environment.pk}")
    assert history.sweep(apis[0].environment.pk) == 1
    assert [counted(api.environment)[-1:] for api in apis] == [[("expiry", 0, 1)], [("facts", 1, 0)], []]
    history.sweep_all()
    assert [counted(api.environment)[-1:] for api in apis] == [[("expiry", 0, 1)], [("expiry", 0, 1)], []]


def test_sweepers_and_writers_at_once_do_no_harm(api, monkeypatch):
    monkeypatch.setattr(history, "SWEPT_AT_ONCE", 7)
    filled(api, 60)

    def swept(_: int) -> int:
        try:
            return history.sweep(api.environment.pk)
        finally:
            connection.close()

    def written(number: int) -> int:
        try:
            return insert(api, member(f"w{number}", SOON)).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        sweeps, writes = pool.map(swept, range(3)), pool.map(written, range(12))
        assert sum(sweeps) == 60
        assert set(writes) == {200}
    assert len(shown(api)) == 2 + 12 and len(past()) == 60
    expiries = [each for each in counted(api.environment) if each[0] == "expiry"]
    assert sum(each[2] for each in expiries) == 60 and all(each[2] for each in expiries)


def test_another_sweeper_that_was_faster_leaves_no_revision(api, monkeypatch):
    filled(api, 1)
    usual, looks = history._expired, []

    def beaten(environment_id: int, most: int):
        looks.append(most)
        return usual(environment_id, most) if len(looks) == 1 else []

    before = current_offset(api.environment.pk)
    monkeypatch.setattr(history, "_expired", beaten)
    assert history.sweep(api.environment.pk) == 0
    assert looks == [1, history.SWEPT_AT_ONCE]
    assert current_offset(api.environment.pk) == before


def test_who_writes_for_long_keeps_one_environment_from_being_swept_and_no_other(new_api, settings, caplog):
    one, other = new_api("one"), new_api("other")
    for api in (one, other):
        store.apply(api.environment.pk, [Inserts([as_fact(f"of{api.environment.pk}", SOON)])])
        let_pass(f"of{api.environment.pk}")
    if connection.vendor == "sqlite":
        pytest.skip("the whole file has one writer")
    settings.WRITE_TIMEOUT = 0.3
    with another_writer(one.environment.pk):
        history.sweep_all()
    assert "cannot delete expired facts of environment" in caplog.text
    assert counted(other.environment)[-1] == ("expiry", 0, 1)
    assert counted(one.environment)[-1] == ("facts", 1, 0)
    history.sweep_all()
    assert counted(one.environment)[-1] == ("expiry", 0, 1)


def test_an_environment_that_is_deleted_meanwhile_is_none_to_sweep(api, monkeypatch):
    filled(api, 1)
    monkeypatch.setattr(history, "advance", lambda number: advance(-1))
    assert history.sweep(api.environment.pk) == 0
    with changing():
        assert advance(api.environment.pk).offset == 2


# ---- at what price -----------------------------------------------------------------------------------------------


def plans(act) -> list[str]:
    """How the database goes about what `act` reads of the facts."""
    with CaptureQueriesContext(connection) as asked:
        act()
    statements = [each["sql"] for each in asked if each["sql"].startswith("SELECT sig,")]
    assert statements
    explained = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    return ["\n".join(str(row[-1]) for row in fetched(f"{explained} {each}")) for each in statements]


@pytest.mark.parametrize("ended", [0, 3, 300])
def test_what_has_ended_is_found_by_the_index_of_ends(api, ended):
    if connection.vendor == "postgresql":
        execute("TRUNCATE authz_fact")  # else the planner counts empty pages that other tests have left
    store.apply(api.environment.pk, [Inserts([as_fact(f"w{n}") for n in range(3000)])])
    filled(api, ended, lasting=200)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE authz_fact")
    for plan in plans(lambda: history._expired(api.environment.pk, 10)):
        assert "fact_expires_at" in plan and "SCAN fact" not in plan and "Seq Scan" not in plan, plan
    (plan,) = plans(lambda: read.stats(api.environment.pk))
    assert "fact_expires_at" in plan, plan
    assert read.stats(api.environment.pk)["num_facts"] == 3200
