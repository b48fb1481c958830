"""`/readyz`: whether a load balancer should send requests here."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import psycopg
import pytest
import requests
from django.db import OperationalError, connection
from django.test import Client

from authz_project import database
from authz_project.database import DATABASE_AWAY, READY
from authz_project.server import readiness_probe
from authz_project.server.readiness_probe import WITHIN, ReadinessProbe
from tests import postgresql
from tests.authz_project.test_serve import SECRET
from tests.faults.limits import workers_of
from tests.service import Service, start_service

ANSWERS_WITHIN = 30  # seconds, of a busy machine
Found = tuple[int, object]


def asked(service: Service, path: str = "/readyz") -> Found:
    answer = requests.get(f"{service.origin}{path}", timeout=ANSWERS_WITHIN)
    assert answer.headers["X-Request-ID"]
    assert ("Retry-After" in answer.headers) == (answer.status_code == 503)
    return answer.status_code, answer.json()


def becomes(service: Service, status: int, reason: str = "") -> None:
    """Wait until it says so."""
    deadline = time.monotonic() + ANSWERS_WITHIN
    while True:
        found, body = asked(service)
        if found == status:
            assert body.get("reason", "") == reason
            return
        assert time.monotonic() < deadline, body
        time.sleep(0.1)


def unready(reason: str) -> dict[str, object]:
    return {"message": mock.ANY, "reason": reason}


@contextmanager
def migrations(*statements: str, back: str):
    """The table of what is applied, changed for a while."""
    with connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(back)


OF_LATER = (
    "INSERT INTO django_migrations (app, name, applied) VALUES ('authz_facts', '9999_later', '2026-11-22 00:00:00')"
)


# ---- what is looked at ----------------------------------------------------------------------------------------------


def test_it_needs_no_key(db):
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"message": "ready"})
    assert Client().post("/readyz").status_code == 405


def test_a_connection_that_cannot_even_be_closed_is_no_end(db, monkeypatch):
    monkeypatch.setattr(database, "_of_database", mock.Mock(side_effect=OperationalError("gone")))
    monkeypatch.setattr(connection, "close", mock.Mock(side_effect=OperationalError("gone")))
    assert database.current() is database.DATABASE_AWAY


def test_one_statement_is_all_it_costs(db, django_assert_num_queries):
    database.current()
    with django_assert_num_queries(1):
        assert database.current() is READY


def test_a_database_without_a_migration_is_not_ready(db):
    lacks = "UPDATE django_migrations SET name = '0002_numbers' WHERE app = 'authz_facts' AND name = '0002_statistics'"
    with migrations(lacks, back="UPDATE django_migrations SET name = '0002_statistics' WHERE name = '0002_numbers'"):
        answer = Client().get("/readyz")
        assert (answer.status_code, answer.json()) == (503, unready("form"))
        assert answer["Retry-After"] == "1"
    assert Client().get("/readyz").status_code == 200


def test_a_database_that_was_never_prepared_is_not_ready(db):
    with migrations("ALTER TABLE django_migrations RENAME TO x", back="ALTER TABLE x RENAME TO django_migrations"):
        assert database.current() is database.UNPREPARED


def test_a_database_of_a_later_version_is_not_ready(db):
    with migrations(OF_LATER, back="DELETE FROM django_migrations WHERE name = '9999_later'"):
        assert database.current() is database.NEWER


def test_a_migration_that_others_replaced_since_is_no_later_version(db):
    before = OF_LATER.replace("9999_later", "0001_before_it_was_squashed")
    with migrations(before, back="DELETE FROM django_migrations WHERE name = '0001_before_it_was_squashed'"):
        assert database.current() is READY


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_file_that_was_removed_or_replaced_is_not_ready(tmp_path, what):
    """Open connections go on with the file that was removed, and what they store in it is lost."""
    service = start_service(tmp_path, "", "--workers", "1", SECRET_KEY=SECRET)
    file = tmp_path / "authz.sqlite3"
    try:
        becomes(service, 200)
        kept = file.read_bytes()
        file.unlink()
        if what == "replaced":
            (tmp_path / "other").write_bytes(kept)
            (tmp_path / "other").rename(file)
        becomes(service, 503, "database")
        assert "removed or replaced" in asked(service)[1]["message"]
        assert str(file) not in str(asked(service)) and f"{file} was removed or replaced" in service.log.read_text()
    finally:
        service.stop()


def test_a_connection_that_was_lost_is_replaced(db):
    connection.ensure_connection()
    connection.connection.close()
    assert database.current() is READY


def test_nothing_is_told_of_the_database(db, caplog):
    secret = OperationalError('connection to "db.example.org" failed: password of "authz" is\nwrong')
    with mock.patch.object(database, "state_of_database", side_effect=secret):
        answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()) == (503, DATABASE_AWAY.body)
    (line,) = caplog.messages
    assert "db.example.org" in line and "\n" not in line


# ---- in time --------------------------------------------------------------------------------------------------------


def told(lookout: ReadinessProbe) -> object:
    found, arrived = [], threading.Event()
    lookout.call_with_readiness(lambda each: (found.append(each), arrived.set()))
    assert arrived.wait(ANSWERS_WITHIN)
    return found[0]


@pytest.fixture
def hanging():
    """A look that hangs until the test ends, or lets it go on; and how often it was begun."""
    begun, go_on = [], threading.Event()

    def look():
        begun.append(time.monotonic())
        go_on.wait(ANSWERS_WITHIN)
        return READY

    yield look, begun, go_on
    go_on.set()


def test_many_who_ask_at_once_cost_one_look():
    looks = []
    each = ReadinessProbe(lambda: looks.append(1) or READY)
    with mock.patch.object(readiness_probe, "FRESH", 3600), ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda _: told(each), range(200))} == {READY}
    assert len(looks) == 1


def test_what_was_found_does_not_count_for_long():
    answers = iter((DATABASE_AWAY, READY))
    each = ReadinessProbe(lambda: next(answers))
    with mock.patch.object(readiness_probe, "FRESH", 0.0):
        assert [told(each), told(each)] == [DATABASE_AWAY, READY]


def test_a_look_that_hangs_is_not_waited_for(hanging, caplog):
    look, begun, go_on = hanging
    each = ReadinessProbe(look)
    with mock.patch.object(readiness_probe, "WITHIN", 0.05), mock.patch.object(readiness_probe, "FRESH", 0.0):
        assert [told(each) for _ in range(3)] == [DATABASE_AWAY] * 3
        assert len(begun) == 1
        assert "has not responded for" in caplog.text
    go_on.set()
    deadline = time.monotonic() + ANSWERS_WITHIN
    while told(each) is DATABASE_AWAY:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_who_cannot_be_told_keeps_nobody_else_waiting(caplog):
    each = ReadinessProbe(lambda: READY)
    each.call_with_readiness(lambda _: 1 / 0)
    assert told(each) is READY
    assert "request failed" in caplog.text


@pytest.mark.parametrize("threads", [0, 1])
def test_where_no_thread_can_be_had_the_next_who_asks_tries_again(threads, monkeypatch):
    """Who is told of the failure at once is not told again later."""
    each, start, found = ReadinessProbe(lambda: READY), threading.Thread.start, []
    begun = iter([True] * threads)

    def start_few(thread: threading.Thread) -> None:
        if not next(begun, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched, mock.patch.object(readiness_probe, "FRESH", 0.0):
        patched.setattr(threading.Thread, "start", start_few)
        with pytest.raises(RuntimeError):
            each.call_with_readiness(found.append)
    with mock.patch.object(readiness_probe, "FRESH", 0.0):
        assert told(each) == READY
    assert found == []


# ---- the running server ---------------------------------------------------------------------------------------------


def test_a_server_is_ready(service):
    assert asked(service) == (200, {"message": "ready"})
    assert asked(service, "/healthcheck") == (200, {"message": "ready"})
    assert requests.head(f"{service.origin}/readyz", timeout=ANSWERS_WITHIN).status_code == 200
    assert requests.get(f"{service.origin}/readyz?wait=1", timeout=ANSWERS_WITHIN).status_code == 200


def test_it_answers_while_all_threads_are_busy(tmp_path, migrated_urls):
    url = migrated_urls("postgresql", "ready_when_busy")
    variables = {"SECRET_KEY": SECRET, "STATEMENT_TIMEOUT": "60"}
    service = start_service(tmp_path, url, "--dev", "--workers", "1", "--threads", "2", **variables)
    client = service.client()
    assert client.get("/stats").status_code == 200
    with psycopg.connect(url) as lock, ThreadPoolExecutor(12) as pool:
        lock.execute("LOCK TABLE authz_fact, authz_environment")
        answers = [pool.submit(client.get, "/facts") for _ in range(12)]
        time.sleep(1)
        for _ in range(3):
            assert asked(service) == (200, {"message": "ready"})
        assert not any(each.done() for each in answers)
        lock.rollback()
        assert {each.result().status_code for each in answers} == {200}
    assert service.stop() == 0


def test_it_drains_before_it_stops(tmp_path):
    service = start_service(tmp_path, "", "--workers", "2", "--drain", "4s")
    assert asked(service) == (200, {"message": "ready"})
    service.process.send_signal(signal.SIGTERM)
    becomes(service, 503, "draining")
    refused = requests.get(f"{service.origin}/api/facts", timeout=ANSWERS_WITHIN)
    assert refused.status_code == 401  # it still answers whoever comes
    assert asked(service, "/healthcheck") == (200, {"message": "ready"})
    assert service.process.wait(ANSWERS_WITHIN) == 0
    with pytest.raises(requests.ConnectionError):
        asked(service)


def test_by_hand_it_stops_at_once(tmp_path):
    service = start_service(tmp_path, "", "--workers", "1", "--drain", "10m")
    (worker,) = workers_of(service)
    for process in (service.process, worker):  # as a terminal does
        process.send_signal(signal.SIGINT)
    assert service.process.wait(ANSWERS_WITHIN) == 0


@pytest.mark.long
def test_a_database_that_hangs_hangs_nobody(tmp_path):
    server = postgresql.start()
    if server is None:
        pytest.skip("no PostgreSQL can be started here")
    service = start_service(tmp_path, server.create("ready"), "--dev", "--workers", "1", SECRET_KEY=SECRET)
    try:
        becomes(service, 200)
        server.stopped(True)
        becomes(service, 503, "database")
        started = time.monotonic()
        assert asked(service)[0] == 503
        assert time.monotonic() - started < WITHIN + 10
        assert asked(service, "/healthcheck")[0] == 200
        server.stopped(False)
        becomes(service, 200)
        server.halt()
        becomes(service, 503, "database")
        assert server.run()
        becomes(service, 200)
    finally:
        if server.process.poll() is None:
            server.stopped(False)
        service.stop()
        server.stop()
