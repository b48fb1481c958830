"""A question that takes too long is refused, in words; nothing else notices."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from tests.checks.conftest import about, fact, publish, store

SLOW = """
actor User {}
resource Doc { permissions = ["read", "look"]; }
has_permission(user: User, "look", doc: Doc) if likes(user, doc);
has_permission(user: User, "read", doc: Doc) if
  number(a) and number(b) and number(c) and number(d) and a < b and b < c and c < d and d < a and likes(user, doc);
"""


@pytest.fixture
def slow(api, settings):
    """An action that takes for ever to decide, and a limit of a tenth of a second."""
    publish(api, SLOW)
    store(api, *(fact("number", f"Integer:{number}") for number in range(300)), fact("likes", "User:ann", "Doc:d"))
    settings.STATEMENT_TIMEOUT = 0.1
    if connection.vendor == "postgresql":
        limit("100")
    yield api
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
    started = time.monotonic()
    answer = slow.post(path, body)
    assert answer.status_code == 400
    assert "STATEMENT_TIMEOUT" in answer.json()["message"]
    assert time.monotonic() - started < 2
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
