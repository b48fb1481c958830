"""Each call into the database fails once, in turn, in each endpoint: nothing is half done, and nothing wrong is kept.

The requests are those of `tests/test_revocation.py`, which has one for each endpoint at the least. Before each one all
caches are cleared, so that the calls that fill them fail, too.
"""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from unittest import mock

import orjson
import psycopg
import pytest
from django.db import connection
from django.db.backends.sqlite3.base import SQLiteCursorWrapper

from authz_project import route, wsgi
from authz_project.log_formats import OncePerSecond
from checks import views
from checks.asking import postgresql
from checks.compare import review_walk
from policy.core.clock import timeline
from tests.conftest import Api, whole
from tests.contract import SOURCE
from tests.faults.worlds import fact
from tests.test_revocation import REQUESTS

POLICY = f"{SOURCE}\n"  # another text than the one that is published
FACTS = [fact("has_role", ("User", name), "member", ("Organization", "acme")) for name in ("u", "v")]
MOST = 60  # calls of one request: more would be a mistake of this test
ONE_EACH = list({request[:2]: request for request in reversed(REQUESTS)}.values())[::-1]  # of each endpoint
CHANGES = {"/policy", "/batch", "/facts", "/bulk", "/bulk_load", "/bulk_delete", "/clear_data"}


class Faults:
    """Counts the calls into the database, and has one of them fail."""

    def __init__(self) -> None:
        self.count = 0
        self.failing = 0  # the number of the call that fails; 0: none does

    def call(self) -> bool:
        """Count a call, and say whether it fails."""
        self.count += 1
        return self.count == self.failing

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        self.count, self.failing = 0, number
        try:
            yield
        finally:
            self.failing = 0


@pytest.fixture
def faults(db) -> Iterator[Faults]:
    found = Faults()
    with (of_sqlite if db == "sqlite" else of_postgresql)(found):
        connection.close()  # the next one is made by what is patched
        yield found
    connection.close()


def disk_error() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@contextmanager
def of_sqlite(faults: Faults) -> Iterator[None]:
    """Statements fail as if the disk did, before anything of them is done."""

    def failing(method: Callable) -> Callable:
        def called(self: object, *arguments: object, **options: object) -> object:
            if faults.call():
                raise disk_error()
            return method(self, *arguments, **options)

        return called

    class Connection(sqlite3.Connection):
        execute = failing(sqlite3.Connection.execute)
        commit = failing(sqlite3.Connection.commit)

    options = connection.settings_dict["OPTIONS"]
    cursors = {name: failing(getattr(SQLiteCursorWrapper, name)) for name in ("execute", "executemany")}
    with mock.patch.dict(options, factory=Connection), mock.patch.multiple(SQLiteCursorWrapper, **cursors):
        yield


@contextmanager
def of_postgresql(faults: Faults) -> Iterator[None]:
    """The connection is lost before an answer, or before the statement is sent; whether it was made is then unknown."""
    wait = psycopg.Connection.wait

    def called(self: psycopg.Connection, steps: Generator, *arguments: object, **options: object) -> object:
        if steps.__name__ != "_set_autocommit_gen" and faults.call():  # that one sends nothing
            self.pgconn.finish()  # not shut down: an answer that has come already would still be read
            raise psycopg.OperationalError("the connection is lost")
        return wait(self, steps, *arguments, **options)

    def flushed(raw: psycopg.Connection) -> None:
        if faults.call():
            raw.pgconn.finish()
            raise psycopg.OperationalError("the connection is lost")
        flush(raw)

    flush = postgresql._flush
    with mock.patch.object(psycopg.Connection, "wait", called), mock.patch.object(postgresql, "_flush", flushed):
        yield


@pytest.fixture
def filled(api: Api, faults: Faults) -> Api:
    restore(api)
    return api


def restore(api: Api) -> None:
    for path, body in (("/clear_data", None), ("/policy", {"src": POLICY}), ("/batch", [{"inserts": FACTS}])):
        assert ask(api, "POST", path, body)[0] in (200, 202)


def ask(api: Api, method: str, path: str, body: object) -> tuple[int, object]:
    """The status and the body, as servers answer."""
    content = b"" if body is None else orjson.dumps(body)
    environ = {
        "REQUEST_METHOD": method, "PATH_INFO": whole(path), "QUERY_STRING": query_of(method, path),
        "SERVER_NAME": "x", "SERVER_PORT": "80",
        "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(content), "CONTENT_LENGTH": str(len(content)),
        "CONTENT_TYPE": "application/json", "HTTP_AUTHORIZATION": f"Bearer {api.key}",
    }  # fmt: skip
    statuses: list[str] = []
    answered = b"".join(wsgi.application(environ, lambda status, headers: statuses.append(status)))
    return int(statuses[0][:3]), orjson.loads(answered) if answered else None


def query_of(method: str, path: str) -> str:
    """Return the parameters that a request without any needs."""
    return "at=3" if (method, path) == ("GET", "/api/review_access") else ""


def stored(api: Api) -> object:
    """All that a change may change: the facts, in no order, and the policy."""
    status, facts = ask(api, "GET", "/facts", None)
    assert status == 200
    return sorted(map(str, facts)), ask(api, "GET", "/policy", None)[1]


def forget() -> None:
    """Know as little as a process that has just begun."""
    for each in timeline._forgetting:
        each()


@pytest.mark.parametrize(("method", "path", "body"), ONE_EACH, ids=lambda part: part if isinstance(part, str) else "")
def test_each_call_that_fails_leaves_all_as_before_or_as_after(filled, faults, monkeypatch, method, path, body):
    monkeypatch.setattr(route, "_once", OncePerSecond())
    monkeypatch.setattr(review_walk, "SECONDS", 60.0)  # else a page may end anywhere on a busy machine
    monkeypatch.setattr(views, "PREVIEW_SECONDS", 60.0)  # else a preview may compare a sample
    is_change = method != "GET" and path.removeprefix("/api") in CHANGES
    before = stored(filled)
    right = ask(filled, method, path, body)
    if right[0] == 404:
        pytest.skip("not served")
    after = stored(filled)
    assert right[0] == 200 and (is_change or before == after)
    for number in range(1, MOST):
        forget()
        with faults.of(number):
            status, told = ask(filled, method, path, body)
            has_failed = faults.count >= number
        where = f"call {number}: {status} {told}"
        assert status == 200 or (status == 503 and "message" in told), where
        if is_change:
            now = stored(filled)
            assert now == after or (status == 503 and now == before), where
            if now != before:
                restore(filled)
        else:
            assert status == 503 or told == right[1], where
            assert ask(filled, method, path, body) == right, where
        if not has_failed:  # there were no more calls
            assert number > 1 and status == 200, where
            assert is_change or stored(filled) == before
            return
    pytest.fail(f"more than {MOST} calls")
