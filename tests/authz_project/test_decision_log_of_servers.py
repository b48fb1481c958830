"""The decision log of a server: of several processes, whole, to its end."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
import requests

from tests.service import ROOT, Service, start_service

SECRET = "only for these tests " * 3
BODY = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Repo", "resource_id": "a"}


def asked(service: Service, key: str, number: int, name: str) -> list[str]:
    """Ask so many questions at once, each under an id of its own; those that were answered."""

    def ask(place: int) -> str:
        headers = {"Authorization": f"Bearer {key}", "X-Request-ID": f"{name}-{place}"}
        body = BODY | {"resource_id": f"{place}", "note": "x" * 5_000 if place % 10 == 0 else ""}
        try:
            answer = requests.post(f"{service.origin}/api/authorize", json=body, headers=headers, timeout=60)
        except requests.ConnectionError:
            return ""
        return headers["X-Request-ID"] if answer.status_code == 200 else ""

    with ThreadPoolExecutor(8) as threads:
        return [each for each in threads.map(ask, range(number)) if each]


def ids_in(*paths: Path) -> list[str]:
    """Of each line; that each is whole is part of reading it."""
    texts = [path.read_bytes() for path in paths if path.exists()]
    assert all(text.endswith(b"\n") for text in texts if text)
    return [orjson.loads(line)["request_id"] for text in texts for line in text.splitlines()]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_share_a_file_and_leave_nothing_out(tmp_path, migrated_urls, kind):
    path = tmp_path / "decisions.jsonl"
    url = migrated_urls(kind, "decisions")
    service = start_service(tmp_path, url, "--dev", "--workers", "2", SECRET_KEY=SECRET, DECISION_LOG=str(path))
    try:
        key = service.fresh_client().key
        told = asked(service, key, 300, "before")
        path.rename(tmp_path / "decisions.1")  # as logrotate does
        told += asked(service, key, 100, "between")
        os.kill(service.process.pid, signal.SIGHUP)
        time.sleep(1)
        told += asked(service, key, 300, "after")
    finally:
        assert service.stop() == 0
    found = ids_in(tmp_path / "decisions.1", path)
    assert len(told) == 700
    assert set(told) <= set(found) and len(found) == len(set(found))
    assert "after-0" in ids_in(path)
    assert key.rpartition("_")[2] not in path.read_text()


def test_the_standard_output_has_it(tmp_path, migrated_urls):
    url = migrated_urls("sqlite", "decisions")
    service = start_service(tmp_path, url, "--dev", "--workers", "1", SECRET_KEY=SECRET, DECISION_LOG="-")
    told = asked(service, service.fresh_client().key, 20, "out")
    assert service.stop() == 0
    lines = [orjson.loads(line) for line in service.log.read_bytes().splitlines() if line.startswith(b"{")]
    assert {line["request_id"] for line in lines} == set(told)
    assert len(lines) == 20


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DECISION_LOG": "/nowhere/at/all"}, "Cannot write DECISION_LOG `/nowhere/at/all`: No such file"),
        ({"DECISION_LOG_SAMPLE": "1.5"}, "DECISION_LOG_SAMPLE must be a share from 0 to 1, not '1.5'"),
        ({"DECISION_LOG_SAMPLE": "some"}, "DECISION_LOG_SAMPLE must be a share from 0 to 1, not 'some'"),
        ({"DECISION_LOG_DENIED": "yes"}, "DECISION_LOG_DENIED must be 0, 1, false or true, not 'yes'"),
        ({"DECISION_LOG_CONTEXT": "no"}, "DECISION_LOG_CONTEXT must be 0, 1, false or true, not 'no'"),
    ],
)
def test_what_is_wrong_with_the_settings_is_told_at_the_start(tmp_path, variables, said):
    environment = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path / 'x.sqlite3'}", **variables}
    command = [sys.executable, ROOT / "manage.py", "serve", "--dev", "--port", "1"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode and said in done.stderr
