"""What a server does by itself from time to time."""

import threading
import time
from itertools import pairwise

import pytest
from django.db import InterfaceError

from authz_project.server import upkeep
from authz_project.server.upkeep import PeriodicTask, start_upkeep
from facts.wire import fact_from_json
from policy.errors import Busy
from tests.authz_project.test_serve import SECRET, new_url  # noqa: F401  a fixture
from tests.facts.test_ends import member
from tests.service import start_service

WITHIN = 60  # seconds


@pytest.mark.parametrize("reason", [None, Busy(30), InterfaceError("lost"), KeyError("ours")])
def test_chores_are_done_again_and_again_whatever_becomes_of_them(db, caplog, reason):
    done, enough, rare = [], threading.Event(), []

    def do() -> None:
        done.append(time.monotonic())
        if len(done) == 4:
            enough.set()
        if enough.is_set():  # the thread has no other end than the process's
            time.sleep(3600)
        if reason is not None:
            raise reason

    start_upkeep((PeriodicTask("often", 0.02, do), PeriodicTask("seldom", 3600, lambda: rare.append(1))))
    assert enough.wait(20)
    assert len(rare) == 1
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(done))
    assert caplog.text.count("often: ") == (0 if reason is None else 3)


def test_facts_are_swept_every_minute():
    assert ("deletion of expired facts", 60) in [(task.name, task.every) for task in upkeep.TASKS]


def test_a_server_sweeps_what_has_ended(tmp_path, new_url):  # noqa: F811
    """At once where it starts, in one of its processes."""
    service = start_service(tmp_path, new_url, "--dev", "--workers", "2", SECRET_KEY=SECRET)
    client = service.client()
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    assert fact_from_json(member("ann", end), "").expires_at
    body = [{"inserts": [member("ann", end), member("ben")]}]
    answer = client.post("/batch", body)
    offset = int(answer.headers["OsoOffset"])
    deadline = time.monotonic() + WITHIN
    while len(client.get("/facts").json()) == 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert service.stop() == 0
    service = start_service(tmp_path, new_url, "--dev", "--workers", "2", SECRET_KEY=SECRET)
    try:
        client = service.client()
        deadline = time.monotonic() + WITHIN  # for the sweep alone: a server may take long to start
        while (now := int(client.post("/batch", []).headers["OsoOffset"])) == offset + 1:
            offset = now
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert now == offset + 2
        assert client.get("/stats").json()["num_facts"] == 1
    finally:
        service.stop()
