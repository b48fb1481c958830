"""The look at a database that does not answer: it goes on under load, and what it found ends again."""

import logging
import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from django.db import connection

from authz_project import connections
from authz_project.server import silence
from authz_project.server.silence import Silence, answers, server_of
from policy import database_waits

MANY = 1_100  # more than `select` can take


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


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_server_is_asked_however_many_files_are_open(db, many_files, caplog):
    connection.ensure_connection()
    assert answers(server_of(connection.connection))
    assert not caplog.records


@pytest.fixture
def noted(monkeypatch) -> list[bool]:
    """What the process is told of silence."""
    found: list[bool] = []
    monkeypatch.setattr(connections, "note_silence", found.append)
    return found


def test_what_fails_is_no_silence(monkeypatch, noted, caplog):
    """Neither is a server taken for silent that could not be asked, nor does one stay so."""

    def fail(**_: object) -> None:
        raise ValueError("filedescriptor out of range in select()")

    monkeypatch.setattr(silence.psycopg, "connect", fail)
    look = Silence()
    look._silent["one"] = look._silent["other"] = {}
    with caplog.at_level(logging.WARNING):
        look.look()
    assert noted == [False] and "was not found out" in caplog.text and caplog.text.count("answers again") == 2


def test_one_server_that_cannot_be_looked_after_keeps_no_other_from_it(monkeypatch, noted, caplog):
    class Raw:
        """A connection of the driver, as far as it is asked."""

    one, other = Raw(), Raw()
    names = {one: "one", other: "other"}
    hung_up: list[str] = []

    def hang_up_on(name: str) -> None:
        hung_up.append(name)
        if name == "one":
            raise RuntimeError

    monkeypatch.setattr(database_waits, "waiting", dict.fromkeys(names, time.monotonic() - 100))
    monkeypatch.setattr(silence, "name_of", names.get)
    monkeypatch.setattr(silence, "server_of", lambda raw: {})
    monkeypatch.setattr(silence, "answers", lambda server: False)
    monkeypatch.setattr(silence, "hang_up_on", hang_up_on)
    look = Silence()
    with suppress(RuntimeError):
        look.look()
    assert hung_up == ["one", "other"] and "was not looked after" in caplog.text
    monkeypatch.setattr(silence, "answers", lambda server: True)
    look.look()
    assert noted[-1] is False
