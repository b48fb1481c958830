"""Waits for PostgreSQL end where the server does not end them; how many files are open makes no difference."""

import logging
import os
import resource
import threading
import time
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection, transaction

from authz_project import database
from authz_project.server import database_waits
from authz_project.server.database_waits import DatabaseHealth, Wait, answers

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)

MANY = 1_100  # more than `select` can take
LIMIT, GRACE = 0.2, 0.1  # seconds


@pytest.fixture
def many_files() -> Iterator[None]:
    """Open so many that the next one has a number from 1,024 on."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2 * MANY:
        pytest.skip("no process may open so many files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, 2 * MANY), most))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    try:
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


@pytest.fixture
def noted(monkeypatch) -> list[bool]:
    """What the process is told of silence."""
    found: list[bool] = []
    monkeypatch.setattr(database, "set_unresponsive", found.append)
    return found


@pytest.fixture
def waiting(db, settings, monkeypatch) -> Iterator[DatabaseHealth]:
    """This thread's connection has its limits, and the server has none: as one that hangs."""
    settings.STATEMENT_TIMEOUT = LIMIT
    monkeypatch.setattr(database_waits, "GRACE", GRACE)
    monkeypatch.setattr(database_waits, "health", DatabaseHealth())
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    connection.connection.wait = Wait(connection)
    yield database_waits.health
    connection.close()


def sleep(seconds: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


def test_the_client_ends_a_statement_that_the_server_does_not_end(waiting):
    before = connection.connection
    with pytest.raises(OperationalError, match="closed the connection"):
        sleep(600)
    assert before.closed and not connection.is_usable()
    connection.close()
    connection.ensure_connection()
    assert connection.is_usable()


def test_an_answer_in_time_is_taken_however_large(waiting, settings):
    settings.STATEMENT_TIMEOUT = 60
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s, repeat('x', 5000000)", ["y" * 5_000_000])
        assert list(map(len, cursor.fetchone())) == [5_000_000, 5_000_000]


def test_a_transaction_has_the_limits_that_it_sets(waiting):
    with transaction.atomic():
        sleep(2 * (LIMIT + GRACE))


def test_a_wait_of_a_silent_server_ends_and_so_do_those_of_other_threads(waiting, noted, monkeypatch):
    monkeypatch.setattr(database_waits, "LONG", 0.05)
    monkeypatch.setattr(database_waits, "answers", lambda raw: False)
    may_connect = threading.Event()
    monkeypatch.setattr(database_waits, "_can_connect", lambda: may_connect.wait(60))
    began = time.monotonic()
    with pytest.raises(OperationalError), transaction.atomic():
        sleep(600)
    assert noted == [True]
    assert waiting.is_unresponsive(None, began) and noted == [True], "without asking again"
    monkeypatch.setattr(database_waits, "answers", lambda raw: True)
    assert not waiting.is_unresponsive(None, time.monotonic()), "the next wait is another one"
    may_connect.set()
    while noted != [True, False]:
        time.sleep(0.01)


def test_a_long_wait_goes_on_while_the_server_answers(waiting, monkeypatch):
    asked = []
    monkeypatch.setattr(database_waits, "LONG", 0.05)
    monkeypatch.setattr(database_waits, "answers", lambda raw: asked.append(raw) or answers(raw))
    with transaction.atomic():
        sleep(1)
    assert len(asked) == 1, "one question in a while, of all threads"


def test_a_server_is_asked_however_many_files_are_open(waiting, many_files, caplog):
    assert answers(connection.connection)
    connection.close()
    connection.ensure_connection()
    connection.connection.wait = Wait(connection)
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        sleep(600)
    assert not caplog.records


def test_what_fails_is_no_silence(db, monkeypatch, caplog):
    def fail(**_: object) -> None:
        raise ValueError("filedescriptor out of range in select()")

    connection.ensure_connection()
    monkeypatch.setattr(database_waits.psycopg, "connect", fail)
    with caplog.at_level(logging.WARNING):
        assert answers(connection.connection)
    assert "cannot check whether the database responds" in caplog.text


def test_after_a_silence_each_thread_connects_anew(db, monkeypatch):
    """To test the connection that it has might mean to wait for the silent server again."""
    database.refresh_connection()
    connection.ensure_connection()
    before = connection.connection
    try:
        database.set_unresponsive(True)
        with pytest.raises(OperationalError, match="does not respond"):
            database.refresh_connection()
    finally:
        database.set_unresponsive(False)
    monkeypatch.setattr(connection, "is_usable", lambda: pytest.fail("waits for the server"))
    database.refresh_connection()
    assert before.closed and connection.connection is None
