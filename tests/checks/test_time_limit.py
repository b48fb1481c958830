"""A question that takes too long is refused, in words; nothing else notices."""

import importlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connection

from checks.asking import limits, run
from checks.asking.ask import LiveSession, Trusted, confirmed, rules_of
from checks.asking.limits import DeadlineLock
from tests.checks.conftest import about, fact, publish, store
from tests.conftest import Api

SLOW = """
actor User {}
resource Doc { permissions = ["read", "look"]; }
has_permission(user: User, "look", doc: Doc) if likes(user, doc);
has_permission(user: User, "read", doc: Doc) if
  number(a) and number(b) and number(c) and number(d) and a < b and b < c and c < d and d < a and likes(user, doc);
"""


NUMBERS = [fact("number", f"Integer:{number}") for number in range(300)]


@pytest.fixture
def slow(api, settings):
    """An action that takes for ever to decide, and a limit of a second."""
    with endless(api, settings, 1):
        yield api


@contextmanager
def endless(api: Api, settings, seconds: float) -> Iterator[None]:
    """Have one that takes for ever to decide, with a limit meanwhile."""
    publish(api, SLOW)
    store(api, *NUMBERS, fact("likes", "User:ann", "Doc:d"))
    settings.STATEMENT_TIMEOUT = seconds
    if connection.vendor == "postgresql":
        limit(str(int(1000 * seconds)))
    yield
    if connection.vendor == "postgresql":
        limit("DEFAULT")


def limit(setting: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {setting}")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/authorize", about("User:ann", "Doc:d", action="read")),
        ("/actions", about("User:ann", "Doc:d")),
        ("/list", about("User:ann", action="read", resource_type="Doc", page_size=10000)),
        ("/bulk_actions", [about("User:ann", "Doc:d"), about("User:bob", "Doc:d")]),
    ],
)
def test_a_question_that_takes_too_long_is_a_bad_request(slow, path, body):
    answer = slow.post(path, body)
    assert answer.status_code == 400
    assert "STATEMENT_TIMEOUT" in answer.json()["message"]
    assert slow.post("/authorize", about("User:ann", "Doc:d", action="look")).json() == {"allowed": True}


def test_other_requests_go_on_meanwhile(slow):
    def look() -> bool:
        try:
            return slow.post("/authorize", about("User:ann", "Doc:d", action="look")).json()["allowed"]
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        looking = other.submit(lambda: [look() for _ in range(10)])
        assert slow.post("/authorize", about("User:ann", "Doc:d", action="read")).status_code == 400
        assert looking.result() == [True] * 10


def test_the_limit_can_be_lifted(slow, settings):
    settings.STATEMENT_TIMEOUT = 0
    if connection.vendor == "postgresql":
        limit("0")
    assert slow.post("/authorize", about("User:ann", "Doc:d", action="look")).json() == {"allowed": True}


# ---- one clock for all that a question does ------------------------------------------------------------------------


@pytest.fixture
def late(monkeypatch):
    """Sets the clock on by so many seconds as soon as a function is called."""
    now, ahead = time.monotonic, []
    monkeypatch.setattr(limits, "monotonic", lambda: now() + sum(ahead))

    def after(place: str, seconds: float) -> None:
        module, _, name = place.rpartition(".")
        act = getattr(importlib.import_module(module), name)

        def acted(*args, **kwargs):
            ahead.append(seconds)
            return act(*args, **kwargs)

        monkeypatch.setattr(place, acted)

    return after


LOOK = about("User:ann", "Doc:d", action="look")
LIST = {
    "query": about("User:ann", action="look", resource_type="Doc"),
    "data_bindings": "facts: {'likes(User:_, Doc:_)': {query: 'SELECT u, d FROM likes'}}",
    "column": "id",
}


@pytest.mark.parametrize(
    ("place", "path", "body"),
    [
        ("checks.asking.ask.compiled", "/authorize", LOOK),
        ("checks.asking.by_rows.expression_of", "/bulk_actions", [about("User:ann", f"Doc:{name}") for name in "de"]),
        ("checks.explain.explain.question_of_goal", "/explain", LOOK),
        ("policy.yaml_text._plain", "/list_query", LIST),
        ("localsql.binding_queries.problem_of", "/list_query", LIST),
        ("localsql.asking.planned", "/list_query", LIST),
        ("localsql.fold.pruned", "/list_query", LIST),
        ("localsql.asking.Layouts", "/list_query", LIST),
    ],
)
def test_whatever_takes_long_counts(api, settings, late, place, path, body):
    settings.STATEMENT_TIMEOUT = 5
    publish(api, f"{SLOW} # {place} {path}")  # planned anew
    store(api, fact("likes", "User:ann", "Doc:d"))
    if isinstance(body, dict) and "data_bindings" in body:
        body = {**body, "data_bindings": f"{body['data_bindings']} # {api.environment.pk} {place}"}  # read anew
    late(place, 100)
    answer = api.post(path, body)
    assert answer.status_code == 400, answer.content
    assert "took longer than 5 seconds (STATEMENT_TIMEOUT)" in answer.json()["message"]


def test_a_statement_has_no_more_than_its_question_has_left(slow, settings, late):
    settings.STATEMENT_TIMEOUT = 100
    if connection.vendor == "postgresql":
        limit("100000")
    late("checks.asking.ask.compiled", 99)
    started = time.monotonic()
    answer = slow.post("/authorize", about("User:ann", "Doc:d", action="read"))
    assert (answer.status_code, "longer than 100 seconds" in answer.json()["message"]) == (400, True)
    assert time.monotonic() - started < 50
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW statement_timeout")
            assert cursor.fetchone() == ("100s",)


@pytest.mark.parametrize("are_same", [True, False])
def test_nobody_waits_longer_for_another_to_compile_than_the_question_may_take(slow, monkeypatch, are_same):
    """Neither for the same question to be compiled, nor for another one about the same policy."""
    lock = DeadlineLock() if are_same else rules_of(confirmed(Trusted(slow.environment.pk)).version).lock
    if are_same:
        monkeypatch.setattr(LiveSession.statements, "_making", (lock,))
    is_held, is_answered = threading.Event(), threading.Event()

    def hold() -> bool:
        with lock:
            is_held.set()
            return is_answered.wait(30)

    with ThreadPoolExecutor() as another:
        holding = another.submit(hold)
        is_held.wait()
        answer = slow.post("/authorize", LOOK)
        is_answered.set()
        assert holding.result(), "the answer came while the other one was compiling"
    assert (answer.status_code, "STATEMENT_TIMEOUT" in answer.json()["message"]) == (400, True)
    assert slow.post("/authorize", LOOK).json() == {"allowed": True}


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)  # SQLite has nobody to cancel a statement
def test_a_question_that_somebody_cancels_may_be_asked_again(slow, settings):
    settings.STATEMENT_TIMEOUT = 20
    limit("200")  # ends before the question's time does: the server cannot tell that from being cancelled
    answer = slow.post("/authorize", about("User:ann", "Doc:d", action="read"))
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "cancelled" in answer.json()["message"]


def test_an_explanation_whose_time_ends_after_the_decision_is_answered_as_far_as_it_got(slow, settings, late):
    settings.STATEMENT_TIMEOUT = 5
    late("checks.explain.explain.proof_of", 100)
    said = slow.post("/explain", LOOK).json()
    assert (said["allowed"], said["complete"]) == (True, False)
    assert said["message"] == "the explanation is incomplete: it takes longer than 4 seconds"
    assert said["proof"]["kind"] == "unexplained"


def test_what_is_explained_ends_before_the_questions_time_does(slow, monkeypatch):
    monkeypatch.setattr("checks.asking.snapshot._MOST", 0.0)
    proof = slow.post("/explain", LOOK).json()["proof"]
    assert (proof["kind"], proof["note"]) == ("unexplained", "it takes longer than 0 seconds")


@pytest.mark.parametrize("table", ["inline_fact", "g1", "q1a2", "r0g1", "w3"])
def test_a_table_of_its_own_that_a_large_statement_lost_is_no_lost_database(table):
    assert run._TOO_LARGE.search(f"no such table: {table}")
    assert not run._TOO_LARGE.search("no such table: fact")
