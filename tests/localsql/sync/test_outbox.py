"""Changes out of an application's outbox: each once, none lost, whoever commits when and whatever breaks."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import orjson
import psycopg
import pytest
from django.db import connection

from facts import read, store
from facts.store import changes_from_json
from localsql.models import OutboxRow
from localsql.sync import outbox as draining
from localsql.sync.config import ConfigContext, Outbox, SourceFailed, config_from_text
from localsql.sync.outbox import Drained, DrainedElsewhere, OutboxTable, RowRejected, drain, forget, turn_of
from policy.core.journal import current_offset
from policy.errors import NotFound
from tests.localsql.sync.sources import MariadbStaff, PostgresqlStaff, SqliteStaff

KINDS = ("postgres", "mysql", "sqlite")
TABLES = {
    "postgres": "(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, changes jsonb NOT NULL)",
    "mysql": "(id bigint AUTO_INCREMENT PRIMARY KEY, changes longtext NOT NULL) ENGINE=InnoDB",
    "sqlite": "(id INTEGER PRIMARY KEY AUTOINCREMENT, changes TEXT NOT NULL)",
}
ONE_BY_ONE = 3  # writers


@pytest.fixture(params=KINDS)
def app(request, staff_of):
    staff = staff_of(request.param)
    staff.execute("DROP TABLE IF EXISTS authz_outbox")
    staff.execute(f"CREATE TABLE authz_outbox {TABLES[request.param]}")
    return staff


def connected(app) -> Any:
    """As the application is: in a transaction from the first statement on."""
    match app:
        case PostgresqlStaff():
            return psycopg.connect(app.connection_string)
        case MariadbStaff():
            connection = app.connect()
            connection.autocommit(False)
            return connection
        case SqliteStaff():
            return sqlite3.connect(app.path, timeout=60)


def write(connection, *changes: dict | str) -> None:
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    cursor = connection.cursor()
    for each in changes:
        text = each if isinstance(each, str) else orjson.dumps([each]).decode()
        cursor.execute(f"INSERT INTO authz_outbox (changes) VALUES ({mark})", (text,))


def fact(who: str) -> dict:
    args = [("User", who), ("String", "member"), ("Org", "acme")]
    return {"predicate": "has_role", "args": [{"type": name, "id": text} for name, text in args]}


def inserting(*names: str) -> dict:
    return {"inserts": [fact(name) for name in names]}


def deleting(*names: str) -> dict:
    return {"deletes": [fact(name) for name in names]}


def outbox_of(app, name: str = "app", table: str = "authz_outbox") -> Outbox:
    text = f"dbs: {{{name}: {{connection_string: '{app.connection_string}'}}}}\noutbox: {{table: {table}}}"
    found = config_from_text(text, ConfigContext(Path())).outbox
    assert found is not None
    return found


def drained(environment, app, skips_bad: bool = False, told: list | None = None) -> Drained:
    done = Drained()
    drain(environment.pk, outbox_of(app), skips_bad, (told if told is not None else []).append, done)
    return done


def members(environment) -> set[str]:
    return {each.args[0].id for each in read.found(environment.pk, "has_role", ()).facts}


def left_in(app) -> int:
    with closing(connected(app)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT COUNT(*) FROM authz_outbox")
        return cursor.fetchone()[0]


def test_changes_are_made_in_order_and_taken_out(published, app):
    with closing(connected(app)) as connection:
        write(connection, inserting("ann", "ben"), deleting("ann"), inserting("ß 'x"))
        write(connection, inserting("ann"), deleting("ben"))
        connection.commit()
    before = current_offset(published.pk)
    assert drained(published, app) == Drained(rows=5, revisions=1)
    assert members(published) == {"ann", "ß 'x"}
    assert (left_in(app), OutboxRow.objects.count(), current_offset(published.pk)) == (0, 0, before + 1)
    assert drained(published, app) == Drained()
    assert current_offset(published.pk) == before + 1


def test_what_commits_late_is_not_lost(published, app):
    """The lower number is seen after the higher one was drained."""
    if isinstance(app, SqliteStaff):
        pytest.skip("has one writer at a time")
    with closing(connected(app)) as early, closing(connected(app)) as late:
        write(late, inserting("late"))
        write(early, inserting("early"))
        early.commit()
        assert drained(published, app).rows == 1
        assert members(published) == {"early"}
        late.commit()
    assert drained(published, app).rows == 1
    assert members(published) == {"early", "late"}


def test_what_is_rolled_back_is_not_made(published, app):
    with closing(connected(app)) as connection:
        write(connection, inserting("nobody"))
        connection.rollback()
        write(connection, inserting("somebody"))
        connection.commit()
    drained(published, app)
    assert members(published) == {"somebody"}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", ["remove", "forget", "apply"])
def test_a_drainer_that_is_killed_loses_nothing_and_does_nothing_twice(published, app, at, monkeypatch):
    """A change that is made twice would show: between the two, what it inserts is deleted."""
    with closing(connected(app)) as connection:
        write(connection, *[inserting(f"user{number}") for number in range(5)])
        connection.commit()

    def killed(*args: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        place: tuple[Any, str] = {
            "remove": (OutboxTable, "remove"), "forget": (draining, "forget"), "apply": (store, "apply"),
        }[at]  # fmt: skip
        patched.setattr(*place, killed)
        with suppress(Killed):
            drained(published, app)
    is_made = at != "apply"
    assert len(members(published)) == (5 if is_made else 0)
    if is_made:
        from_elsewhere(published, "user3")
    done = drained(published, app)
    assert done.rows == (0 if is_made else 5)
    assert members(published) == {f"user{number}" for number in range(5)} - ({"user3"} if is_made else set())
    assert (left_in(app), OutboxRow.objects.count()) == (0, 0)


@pytest.mark.parametrize("at", ["remove", "forget", "apply"])
@pytest.mark.parametrize("calls", range(4))
def test_a_drainer_that_is_killed_among_wrong_rows_and_ends_makes_the_rest_once(published, app, at, calls, monkeypatch):
    """Killed before the first, second, … call of each step, and started again."""
    past = {**fact("ann"), "expires_at": "2001-01-01T00:00:00Z"}
    ending = {**fact("eve"), "expires_at": "2096-12-01T00:00:00Z"}
    soon = {"inserts": [{**fact("ben"), "expires_at": "soon"}]}
    wrong: list[dict | str] = ["{}", {"inserts": [{"predicate": "no_such", "args": []}]}, soon]
    with closing(connected(app)) as connection:
        write(connection, inserting("ann", "cat"), wrong[0], {"inserts": [past]}, wrong[1], inserting("dan"))
        write(connection, {"inserts": [ending]}, wrong[2], deleting("cat"), inserting("fay"))
        connection.commit()
    place: tuple[Any, str] = {
        "remove": (OutboxTable, "remove"), "forget": (draining, "forget"), "apply": (store, "apply"),
    }[at]  # fmt: skip
    usual, done = getattr(*place), []

    def killed(*args: object, **options: object) -> object:
        if len(done) == calls:
            raise Killed
        done.append(1)
        return usual(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(*place, killed)
        with pytest.raises(Killed):
            drained(published, app, skips_bad=True)
    drained(published, app, skips_bad=True)
    ends = {each.args[0].id: each.expires_at is not None for each in read.found(published.pk, "has_role", ()).facts}
    assert ends == {"dan": False, "eve": True, "fay": False}
    assert (left_in(app), OutboxRow.objects.count()) == (0, 0)


def from_elsewhere(environment, name: str) -> None:
    """Somebody deletes the fact by another way."""
    store.apply(environment.pk, changes_from_json([deleting(name)], ""))


def test_a_number_that_is_given_again_is_another_row(published, app, monkeypatch):
    """As some databases do after a restart. What is remembered of the first is not said of the second."""
    with closing(connected(app)) as connection:
        write(connection, inserting("first"))
        connection.commit()
        with monkeypatch.context() as patched, suppress(Killed):
            patched.setattr(draining, "forget", raise_killed)
            drained(published, app)
        assert OutboxRow.objects.count() == 1
        number = OutboxRow.objects.get().number
        cursor = connection.cursor()
        overriding = "OVERRIDING SYSTEM VALUE" if isinstance(app, PostgresqlStaff) else ""
        text = orjson.dumps([inserting("second")]).decode()
        mark = "?" if isinstance(app, SqliteStaff) else "%s"
        cursor.execute(f"INSERT INTO authz_outbox (id, changes) {overriding} VALUES ({mark}, {mark})", (number, text))
        connection.commit()
    assert drained(published, app).rows == 1
    assert members(published) == {"first", "second"}


def raise_killed(*args: object) -> None:
    raise Killed


SCHEMAS = {PostgresqlStaff: "public", MariadbStaff: "synced", SqliteStaff: "MAIN"}


def test_however_a_file_spells_it_an_outbox_is_the_same(published, app, monkeypatch):
    with closing(connected(app)) as connection:
        write(connection, inserting("ann"))
        connection.commit()
    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(OutboxTable, "remove", raise_killed)
        drained(published, app)
    from_elsewhere(published, "ann")
    other = outbox_of(app, "another", f"{SCHEMAS[type(app)]}.authz_outbox")
    done = Drained()
    drain(published.pk, other, False, pytest.fail, done)
    assert (done, left_in(app), members(published)) == (Drained(), 0, set())


def test_a_table_of_the_same_name_in_another_place_is_another_outbox(published, app):
    with draining.opened(outbox_of(app)) as table:
        one = table.identity
    match app:
        case PostgresqlStaff():
            app.execute("DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other")
        case MariadbStaff():
            app.execute("DROP DATABASE IF EXISTS other; CREATE DATABASE other")
        case SqliteStaff():
            app.path.rename(app.path.with_name("other.sqlite3"))
            app.path = app.path.with_name("other.sqlite3")
    if not isinstance(app, SqliteStaff):
        app.execute("CREATE TABLE other.authz_outbox (id bigint PRIMARY KEY, changes text)")
    table_name = "authz_outbox" if isinstance(app, SqliteStaff) else "other.authz_outbox"
    with draining.opened(outbox_of(app, table=table_name)) as table:
        assert table.identity != one


def test_a_row_that_is_wrong_stops_those_behind_it(published, app):
    with closing(connected(app)) as connection:
        write(connection, inserting("ann"), '[{"inserts": [{"predicate": "no_such", "args": []}]}]', inserting("ben"))
        connection.commit()
    with pytest.raises(RowRejected, match=r"row \d+ of the outbox, .*no_such.*changes\[0\].inserts\[0\].args"):
        drained(published, app)
    assert members(published) == {"ann"}
    told: list[str] = []
    done = drained(published, app, skips_bad=True, told=told)
    assert (done.rows, done.skipped, left_in(app)) == (1, 1, 0)
    assert len(told) == 1 and "skipped: row" in told[0] and "no_such" in told[0]
    assert members(published) == {"ann", "ben"}


def test_a_fact_that_ended_while_its_row_waited_is_deleted(published, app):
    """The rows behind it are made; of facts that differ only in their end, the last one counts."""
    past, later = "2001-01-01T00:00:00Z", "2096-12-01T00:00:00Z"
    until = {name: {**fact(name), "expires_at": past} for name in ("ann", "ben", "cat", "dan", "eve")}
    with closing(connected(app)) as connection:
        write(connection, inserting("ann", "fired"), {"inserts": [{**fact("ben"), "expires_at": later}]})
        connection.commit()
    assert drained(published, app).rows == 2
    with closing(connected(app)) as connection:
        ends = [until["ann"], until["ben"], fact("cat"), until["cat"], until["dan"], fact("dan")]
        write(connection, {"inserts": ends})
        write(connection, {"inserts": [until["eve"]]}, inserting("eve"), inserting("fay"), deleting("fired"))
        connection.commit()
    assert drained(published, app) == Drained(rows=5, revisions=1)
    assert members(published) == {"dan", "eve", "fay"}
    with closing(connected(app)) as connection:
        write(connection, {"inserts": [until["eve"]]})
        connection.commit()
    assert drained(published, app) == Drained(rows=1, revisions=1)
    assert (members(published), left_in(app)) == ({"dan", "fay"}, 0)


def test_what_is_no_fault_of_a_row_takes_nothing_out(published, app, monkeypatch):
    with closing(connected(app)) as connection:
        write(connection, inserting("ann"))
        connection.commit()

    def gone(*args: object) -> None:
        raise NotFound("the environment no longer exists")

    with monkeypatch.context() as patched:
        patched.setattr(store, "apply", gone)
        with pytest.raises(NotFound):
            drained(published, app, skips_bad=True)
    assert left_in(app) == 1
    assert drained(published, app).rows == 1


@pytest.mark.parametrize("text", ["not JSON", "", "\u00fc \U0001f600 'x", "a" * 70_000])
def test_a_row_that_is_corrected_meanwhile_is_not_taken_out(published, app, monkeypatch, text):
    if isinstance(app, PostgresqlStaff):
        app.execute("ALTER TABLE authz_outbox ALTER changes TYPE text")
    with closing(connected(app)) as connection:
        write(connection, text)
        connection.commit()
    told: list[str] = []

    def correct(row, reason: str) -> str:
        if not told:
            with closing(connected(app)) as connection:
                mark = "?" if isinstance(app, SqliteStaff) else "%s"
                right = orjson.dumps([inserting("ann")]).decode()
                connection.cursor().execute(f"UPDATE authz_outbox SET changes = {mark}", (right,))
                connection.commit()
        return reason

    with monkeypatch.context() as patched:
        patched.setattr(draining, "sentence", correct)
        assert drained(published, app, skips_bad=True, told=told).rows == 1
    assert members(published) == {"ann"} and len(told) == 1
    with closing(connected(app)) as connection:
        write(connection, text)
        connection.commit()
    assert drained(published, app, skips_bad=True).skipped == 1
    assert left_in(app) == 0


@pytest.mark.parametrize("changes", ["null", "[7]", "{}", '[{"inserts": 7}]', '[{"inserts": [], "deletes": []}]'])
def test_what_is_no_change_is_said(published, app, changes):
    with closing(connected(app)) as connection:
        write(connection, changes)
        connection.commit()
    with pytest.raises(RowRejected, match="must"):
        drained(published, app)
    assert left_in(app) == 1


def test_a_table_that_is_not_there_is_said(published, app):
    app.execute("DROP TABLE authz_outbox")
    with pytest.raises(SourceFailed, match="authz_outbox"):
        drained(published, app)


@pytest.mark.long
def test_writers_and_drainers_at_once(published, app):
    """Each writer's transactions commit in whatever order, some are rolled back; two processes drain."""
    expected: set[str] = set()
    stop = threading.Event()
    failures: list[BaseException] = []
    before = current_offset(published.pk)

    def writing(number: int) -> None:
        random = Random(number)
        for step in range(25):
            name = f"user{number}-{step}"
            with closing(connected(app)) as mine:
                write(mine, inserting(name))
                stop.wait(random.random() * 0.01)
                if random.random() < 0.3:
                    mine.rollback()
                    continue
                write(mine, *([deleting(name)] if step % 5 == 0 else []))
                mine.commit()
            if step % 5:
                expected.add(name)

    def keep_draining(done: Drained) -> None:
        try:
            while not stop.is_set():
                drain(published.pk, outbox_of(app), False, failures.append, done)
            drain(published.pk, outbox_of(app), False, failures.append, done)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    counts = [Drained(), Drained()]
    drainers = [threading.Thread(target=keep_draining, args=(each,)) for each in counts]
    writers = [threading.Thread(target=writing, args=(number,)) for number in range(ONE_BY_ONE)]
    for each in (*drainers, *writers):
        each.start()
    for each in writers:
        each.join()
    stop.set()
    for each in drainers:
        each.join()
    assert failures == []
    assert members(published) == expected
    assert (left_in(app), OutboxRow.objects.count()) == (0, 0)
    assert current_offset(published.pk) == before + sum(each.revisions for each in counts)


def test_a_turn_ends_once(environment):
    """Whoever wakes up in the middle of one that another has ended forgets no rows of the next."""
    turn = turn_of(environment.pk, "orders")
    forget(turn)
    with pytest.raises(DrainedElsewhere):
        forget(turn)
