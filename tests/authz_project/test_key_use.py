"""On which day a key was last used: once a day, and never in a request's way."""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from django.db import OperationalError, connection

from authz_project import keys
from authz_project.models import ApiKey
from policy.core.clock import now, time_of
from policy.errors import Busy, Unavailable

DAY = timedelta(days=1)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def key_of(api) -> ApiKey:
    return ApiKey.objects.get(environment=api.environment)


def today() -> datetime:
    return datetime.combine(time_of(now()).date(), datetime.min.time(), UTC)


@pytest.fixture(autouse=True)
def nothing_noted(api):
    """As in a process that has just started."""
    keys._noted.clear()
    with mock.patch.multiple(keys, SHORTEST_PAUSE=0.01, LONGEST_PAUSE=0.05):
        yield
        wait_until(lambda: not keys._is_writing)


def test_the_day_of_the_last_use_is_written_down(api):
    api.get("/facts")
    wait_until(lambda: key_of(api).last_used_at == today())


def test_once_a_day_a_key(api):
    with mock.patch.object(keys, "write") as write:
        for _ in range(3):
            api.get("/facts")
            api.post("/batch", [])
        wait_until(lambda: not keys._is_writing)
        assert write.call_count == 1
        with mock.patch.object(keys.time, "time", return_value=time.time() + 86_400):
            api.get("/facts")
            api.get("/facts")
        wait_until(lambda: not keys._is_writing)
        assert write.call_count == 2


def test_who_finds_the_day_written_takes_nobodys_turn(api):
    hashes = [key_of(api).hash]
    keys.write(hashes)
    with mock.patch.object(keys, "changing", side_effect=AssertionError):
        keys.write(hashes)
    ApiKey.objects.update(last_used_at=today() - DAY)
    keys.write(hashes)
    assert key_of(api).last_used_at == today()


def test_a_day_is_not_moved_back(api):
    later = today() + DAY
    ApiKey.objects.update(last_used_at=later)
    keys.write([key_of(api).hash])
    assert key_of(api).last_used_at == later


def test_a_revoked_key_is_not_used(api):
    api.get("/stats")
    wait_until(lambda: not keys._is_writing)
    ApiKey.objects.update(revoked_at=time_of(now()), last_used_at=None)
    keys._noted.clear()
    assert api.get("/facts").status_code == 401
    wait_until(lambda: not keys._is_writing)
    assert key_of(api).last_used_at is None


@pytest.mark.parametrize("failure", [Busy(1), OperationalError("the database is away"), ValueError("odd")])
def test_no_request_fails_or_waits_for_what_cannot_be_written(api, failure):
    """What was in nobody's hands is tried again; what is our mistake is logged, and left."""
    really, failing = keys.write, threading.Event()
    failing.set()

    def written(hashes: list[str]) -> None:
        if failing.is_set():
            raise failure
        really(hashes)

    with mock.patch.object(keys, "write", written):
        for _ in range(3):
            assert api.get("/facts").status_code == 200
        failing.clear()
        if not isinstance(failure, ValueError):
            wait_until(lambda: key_of(api).last_used_at == today())


def test_a_space_that_cannot_be_used_holds_up_no_other(api):
    """Here, the space `z` is the home database, and `a` is on a server that is gone."""

    @contextmanager
    def entered(space: str):
        if space == "a":
            raise Unavailable("its server is gone")
        yield

    with mock.patch.object(keys.spaces, "entered", entered):
        keys._waiting.update({("a", "another key"), ("z", key_of(api).hash)})
        keys.note_use("a third key")  # which starts the thread
        wait_until(lambda: key_of(api).last_used_at == today())
    with mock.patch.object(keys, "_is_written", return_value=True):  # else it would be tried for ever
        wait_until(lambda: not keys._is_writing)


def test_a_thread_that_cannot_be_had_fails_no_request(api):
    with mock.patch.object(keys.threading.Thread, "start", side_effect=RuntimeError("no more threads")):
        assert api.get("/facts").status_code == 200
    assert api.get("/facts").status_code == 200
    wait_until(lambda: key_of(api).last_used_at == today())


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_while_another_process_writes_to_the_file_requests_are_answered(api):
    with somebody_writing():
        for _ in range(5):
            assert api.get("/facts").status_code == 200
        assert key_of(api).last_used_at is None
    wait_until(lambda: key_of(api).last_used_at == today())


@contextmanager
def somebody_writing():
    """On a connection of their own."""
    begun, over = threading.Event(), threading.Event()

    def write() -> None:
        connection.ensure_connection()
        connection.connection.execute("BEGIN IMMEDIATE")
        begun.set()
        over.wait(60)
        connection.connection.execute("COMMIT")
        connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()
