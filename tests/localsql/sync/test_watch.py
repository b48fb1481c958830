"""Again and again: as a process that is told to end, loses its source, is killed, and is woken by PostgreSQL."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from io import StringIO

import pytest
import requests
from django.core.management.base import CommandError, OutputWrapper
from django.db import connection
from django.db.models import Max

from localsql.sync.config import Config, ConfigContext, config_from_text
from localsql.sync.watch import (
    Metrics,
    NotificationListener,
    SyncCommand,
    WatchStopped,
    again_and_again,
    seconds,
    served,
)
from policy.models import Revision
from tests.localsql.sync.sources import PostgresqlStaff, config_of
from tests.localsql.sync.test_in_step import insert, passed, stored
from tests.service import ROOT

PATIENCE = 90  # seconds


def until(holds: Callable[[], object], every: float = 0.05) -> None:
    limit = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < limit
        time.sleep(every)


@pytest.fixture
def started(db):
    """Starts commands as processes over the database of the test."""
    running: list[subprocess.Popen] = []

    def start(*words: str) -> subprocess.Popen:
        settings = connection.settings_dict
        if db == "sqlite":
            url = f"sqlite:///{settings['NAME']}"
        else:
            url = f"postgres://{settings['USER']}@{settings['HOST']}:{settings['PORT']}/{settings['NAME']}"
        variables = os.environ | {"DATABASE_URL": url, "SECRET_KEY": "only for these tests " * 3}
        variables |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, str(ROOT / "manage.py"), *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running.append(subprocess.Popen(command, env=variables, **pipes))
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.wait()


@pytest.mark.long
def test_it_goes_on_until_it_is_told_to_end(published, staff_of, tmp_path, started):
    """While its source is away and back, and with numbers of it all."""
    staff = staff_of("sqlite")
    (tmp_path / "sync.yaml").write_text(config_of(staff, "sqlite"))
    process = started("sync_facts", str(tmp_path / "sync.yaml"), "--apply", "--watch", "0.2s", "--metrics-port", "0")
    assert process.stdout is not None
    address = re.fullmatch(r"metrics at (\S+)\n", process.stdout.readline())[1]
    staff.fill([("ann", "member", "acme")])
    until(lambda: stored(published) == {("ann", "member", "acme")})
    hidden = staff.path.rename(tmp_path / "hidden")
    until(lambda: 'authz_sync_passes_total{outcome="failed"}' in requests.get(address, timeout=PATIENCE).text)
    hidden.rename(staff.path)
    staff.fill([("ben", "owner", "acme")])
    until(lambda: stored(published) == {("ben", "owner", "acme")})
    numbers = requests.get(address, timeout=PATIENCE).text
    assert re.search(r'^authz_sync_facts_changed_total\{change="added",pattern=".*"\} 2\.0$', numbers, re.MULTILINE)
    assert "# TYPE authz_sync_last_success_timestamp_seconds gauge" in numbers
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "`dbs.app`: cannot open" in out and "Traceback" not in out


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres", "csv"])
def test_killed_while_it_applies_the_next_run_finds_the_rest(published, staff_of, tmp_path, started, kind):
    staff = staff_of(kind)
    (tmp_path / "sync.yaml").write_text(config_of(staff, kind))
    insert(published, [(f"gone{number}", "member", "acme") for number in range(9_000)])

    def is_killed_on_its_way(attempt: int) -> bool:
        staff.fill(sorted(rows_of(attempt)))
        before = revision_of(published)
        process = started("sync_facts", str(tmp_path / "sync.yaml"), "--apply", "--max-deletes", "100%")
        until(lambda: revision_of(published) != before or process.poll() is not None, every=0.002)
        process.kill()
        process.wait()
        return bool(rows_of(attempt) - stored(published))

    killed = next((each for each in range(10) if is_killed_on_its_way(each)), None)
    assert killed is not None, "it was done each time before it was killed"
    assert passed(published, config_of(staff, kind), applies=True).is_in_step
    assert stored(published) == rows_of(killed)
    assert passed(published, config_of(staff, kind)).is_in_step


def rows_of(attempt: int) -> set[tuple[str, str, str]]:
    """Others at each attempt, in several batches, so that there is always much to store."""
    return {(f"user{attempt}-{number}", "member", "acme") for number in range(40_000)}


def revision_of(environment) -> int:
    return Revision.objects.filter(environment_id=environment.pk).aggregate(Max("number"))["number__max"] or 0


def test_postgresql_wakes_it(staff_of):
    staff = staff_of("postgres")
    bell = bell_of(staff)
    try:
        bell.listen()
        assert not bell.wait(0.05)
        staff.execute("NOTIFY authz_sync")
        assert bell.wait(PATIENCE)
        assert not bell.wait(0.05)
        staff.execute("NOTIFY something_else")
        staff.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'authz sync'")
        assert not bell.wait(0.5)
        bell.listen()
        staff.execute("NOTIFY authz_sync")
        assert bell.wait(PATIENCE)
    finally:
        bell.close()


def bell_of(staff: PostgresqlStaff) -> NotificationListener:
    return NotificationListener(config_from_text(config_of(staff, "postgres"), ConfigContext()).databases)


def test_what_fails_is_tried_again_later_and_later():
    pauses: list[float] = []

    class Recording(NotificationListener):
        def wait(self, pause: float) -> bool:
            pauses.append(pause)
            if len(pauses) == 7:
                raise WatchStopped
            return False

    outcomes = iter([True, True, True, True, False, False, True])
    again_and_again(lambda: next(outcomes), 5.0, Recording(()))
    assert pauses == [1, 2, 4, 5, 5, 5, 1]


@pytest.mark.parametrize(("text", "value"), [("60s", 60), ("5m", 300), ("1h", 3600), ("0.5", 0.5), ("90", 90)])
def test_times(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["0", "0s", "-1s", "1d", "", "s", "169h", "1e3", "\u0661s"])
def test_what_is_no_time(text):
    with pytest.raises(ArgumentTypeError):
        seconds(text)


def test_what_the_system_refuses_is_a_failure_that_may_pass():
    def full() -> bool:
        raise OSError(28, "No space left on device")

    command, err = SyncCommand(), StringIO()
    command.stderr = OutputWrapper(err)
    assert command._kept_going(full, Metrics("x"))
    assert "error: [Errno 28] No space left on device" in err.getvalue()


def test_a_port_that_is_taken_is_said():
    metrics = Metrics("x")
    with served(metrics, 0) as port, pytest.raises(CommandError, match=f"Cannot serve metrics on port {port}: Address"):
        SyncCommand().keep(lambda: False, Config(()), 1.0, metrics, port)
