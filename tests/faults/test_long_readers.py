"""Readers that hold on to a moment of an SQLite file, one after the other without a gap, while others write."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from authz_project import database as sqlite_log
from authz_project.server.upkeep import TASKS
from authz_project.system_checks import disk_findings

SMALL = 256 << 10  # bytes
READS = 0.3  # seconds that a reader takes
WITHIN = 30  # seconds


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "a.sqlite3"
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE account (name PRIMARY KEY, money, ballast)")
        made.executemany("INSERT INTO account VALUES (?, 100, ?)", [(n, "x" * 3000) for n in range(20)])
        made.commit()
    return path


class Crowd:
    """Threads that write, and that read for long, until it is over; what went wrong in them."""

    def __init__(self, database: Path):
        self.database, self.is_over = database, threading.Event()
        self.wrong: list[object] = []
        self.written = self.read = 0

    def run(self, work: Callable[[sqlite3.Connection], None], delay: float = 0.0) -> threading.Thread:
        def go_on() -> None:
            time.sleep(delay)
            with closing(sqlite3.connect(self.database, timeout=WITHIN, isolation_level=None)) as own:
                while not self.is_over.is_set():
                    try:
                        work(own)
                    except Exception as reason:
                        self.wrong.append(reason)
                        return

        thread = threading.Thread(target=go_on)
        thread.start()
        return thread

    def write(self, own: sqlite3.Connection) -> None:
        """Move money, of which there is always as much."""
        own.execute("BEGIN IMMEDIATE")
        for place, amount in ((self.written, -1), (self.written + 7, 1)):
            change = "UPDATE account SET money = money + ?, ballast = ballast || 'y' WHERE name = ?"
            own.execute(change, (amount, place % 20))
        own.execute("COMMIT")
        self.written += 1
        time.sleep(0.001)  # as between our own writers: who never lets go has the file for as long as it likes

    def look(self, own: sqlite3.Connection) -> None:
        """At one moment, for long."""
        own.execute("BEGIN")
        first = own.execute("SELECT name, money FROM account").fetchall()
        self.is_over.wait(READS)
        if own.execute("SELECT name, money FROM account").fetchall() != first or sum(m for _, m in first) != 2000:
            self.wrong.append(first)
        own.execute("COMMIT")
        self.read += 1


@pytest.fixture
def crowd(database) -> Iterator[Crowd]:
    found = Crowd(database)
    threads = [found.run(found.write), *(found.run(found.look, READS * place / 3) for place in range(3))]
    yield found
    found.is_over.set()
    for each in threads:
        each.join()
    assert found.wrong == []


def wait_for(holds: Callable[[], object]) -> None:
    until = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_log_is_begun_anew_though_there_is_always_somebody_who_reads(database, crowd):
    wait_for(lambda: sqlite_log.size_of_log(database) > 20 * SMALL)  # by itself, it grows and grows
    for _ in range(3):
        wait_for(lambda: sqlite_log.size_of_log(database) > SMALL)
        written, read = crowd.written, crowd.read
        assert sqlite_log.is_begun_anew(database, WITHIN)
        assert sqlite_log.size_of_log(database) < 20 * SMALL
        wait_for(lambda: crowd.written > written and crowd.read > read)  # noqa: B023  it is waited for here


def test_who_reads_for_very_long_is_told_of_and_let_be(database, crowd, monkeypatch, caplog):
    of_here = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": database})
    monkeypatch.setattr(sqlite_log, "connection", of_here)
    monkeypatch.setattr(sqlite_log, "LARGE", SMALL)
    monkeypatch.setattr(sqlite_log, "A_MOMENT", 0.2)
    with closing(sqlite3.connect(database, isolation_level=None)) as slow:
        slow.execute("BEGIN")
        (before,) = slow.execute("SELECT sum(length(ballast)) FROM account").fetchone()
        wait_for(lambda: sqlite_log.size_of_log(database) > 4 * SMALL)
        written = crowd.written
        sqlite_log.keep_small()
        assert "cannot be reset: a long-running read" in caplog.text
        wait_for(lambda: crowd.written > written)  # nobody waits for it any longer
        assert slow.execute("SELECT sum(length(ballast)) FROM account").fetchone() == (before,)
    crowd.is_over.set()
    size = sqlite_log.size_of_log(database)
    wait_for(lambda: sqlite_log.keep_small() or sqlite_log.size_of_log(database) < min(size, SMALL))


def test_who_writes_for_long_is_not_called_a_reader(database, monkeypatch, caplog):
    of_here = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": database})
    monkeypatch.setattr(sqlite_log, "connection", of_here)
    monkeypatch.setattr(sqlite_log, "LARGE", 0)
    monkeypatch.setattr(sqlite_log, "A_MOMENT", 0.1)
    with closing(sqlite3.connect(database, isolation_level=None)) as slow:
        slow.execute("BEGIN IMMEDIATE")
        assert sqlite_log.is_begun_anew(database, 0.1) is None
        sqlite_log.keep_small()
    assert caplog.text == ""


def test_who_reads_on_and_on_is_waited_for_once_and_told_of_once(database, monkeypatch, caplog):
    of_here = SimpleNamespace(vendor="sqlite", settings_dict={"NAME": database})
    monkeypatch.setattr(sqlite_log, "connection", of_here)
    waits, sizes = [], iter([100, 101, 199, 200, 201])
    monkeypatch.setattr(sqlite_log, "LARGE", 50)
    monkeypatch.setattr(sqlite_log, "VERY_LARGE", 100)
    monkeypatch.setattr(sqlite_log, "patience", lambda size: 11.0)
    monkeypatch.setattr(sqlite_log, "size_of_log", lambda of: next(sizes))
    keeper = sqlite_log._Keeper()
    found = iter([False, False, False, False, True])
    monkeypatch.setattr(sqlite_log, "is_begun_anew", lambda of, wait: (waits.append(wait), next(found))[1])
    for _ in range(5):
        keeper.keep_small()
    assert waits == [11.0, 1.0, 1.0, 11.0, 1.0]
    assert caplog.text.count("a long-running read") == 1


def test_the_larger_it_is_the_longer_others_wait(settings):
    settings.STATEMENT_TIMEOUT, settings.WRITE_TIMEOUT = 5, 30
    assert sqlite_log.patience(sqlite_log.LARGE) == 1
    assert sqlite_log.patience(sqlite_log.VERY_LARGE) == 11
    settings.WRITE_TIMEOUT = 10
    assert sqlite_log.patience(sqlite_log.VERY_LARGE) == 5
    settings.STATEMENT_TIMEOUT, settings.WRITE_TIMEOUT = 0, 0
    assert sqlite_log.patience(sqlite_log.VERY_LARGE) == 1


def test_a_server_does_it_and_a_check_tells_of_it(tmp_path):
    assert sqlite_log.keep_small in [each.do for each in TASKS]
    (told,) = disk_findings({}, sqlite_log.LARGE)
    assert told.id == "authz.W012" and "write-ahead log of the database has 64 MiB" in told.msg
