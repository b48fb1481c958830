"""Which queries the thread that receives requests answers itself, and which go to a thread of the pool."""

import sqlite3
import threading
from types import SimpleNamespace

import pytest
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections

from authz_project.route import refusal_of
from authz_project.server.workers import PAUSE, ReceivingThread
from policy.core import journal


@pytest.fixture
def receiving():
    """A `ReceivingThread`, and the pool that it leaves queries to."""
    pool = SimpleNamespace(busy=0)
    made = ReceivingThread(pool)
    made.ident, made._connection = threading.get_ident(), connections[DEFAULT_DB_ALIAS]
    return made, pool


def test_it_answers_while_no_other_thread_is_busy(receiving):
    made, pool = receiving
    done = []
    assert made.answers("/api/authorize", done.append, threading.get_ident()) is True
    pool.busy = 1
    assert made.answers("/api/authorize", done.append, "another") is False
    assert done == [threading.get_ident()]


def test_what_takes_longer_goes_to_the_pool_and_so_do_the_next_ones(receiving):
    made, _ = receiving
    done = []
    assert made.answers("/api/list", journal.give_up_slot) is False
    assert [made.answers("/api/list", done.append, 1) for _ in range(PAUSE + 1)] == [False] * PAUSE + [True]
    assert done == [1]
    assert made.answers("/api/authorize", done.append, 2) is True


def test_after_a_slow_answer_the_next_ones_go_to_the_pool(receiving):
    made, _ = receiving
    assert made.answers("/api/list", threading.Event().wait, 0.01) is True
    assert made.answers("/api/list", print) is False


def test_no_other_thread_answers_by_itself(receiving):
    """Such as one whose request gave memory back for which the body of the query waited."""
    made, _ = receiving
    found = []
    other = threading.Thread(target=lambda: found.append(made.answers("/api/authorize", found.append, "answered")))
    other.start()
    other.join()
    assert found == [False]


def test_an_error_is_logged_and_ends_the_request(receiving, caplog):
    made, _ = receiving
    assert made.answers("/api/authorize", lambda: 1 / 0) is True
    assert "request failed" in caplog.text
    assert journal.thread.give_up is None


def test_it_does_not_wait_for_a_lock(receiving):
    made, _ = receiving
    locked = sqlite3.OperationalError("database is locked")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
    error = OperationalError("database is locked")
    error.__cause__ = locked
    assert made.answers("/api/authorize", refusal_of, error, "1") is False
    assert refusal_of(error, "1").status == 503


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_its_connection_waits_for_no_lock(db):
    found = []

    def work() -> None:
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            found.append(cursor.execute("PRAGMA busy_timeout").fetchone()[0])

    def thread() -> None:
        made = ReceivingThread(SimpleNamespace(busy=0))
        made.ident = threading.get_ident()
        found.append(made.answers("/api/authorize", work))
        connections.close_all()

    one = threading.Thread(target=thread)
    one.start()
    one.join()
    assert found == [0, True]
