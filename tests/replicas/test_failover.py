"""The primary is lost while a server is asked and told things; a standby takes over."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from threading import Event, Thread

import pytest
import requests

from tests.replicas.cluster import DATABASE, Cluster, cluster, promote, wait_for
from tests.replicas.conftest import POLICY, asked, role
from tests.service import Client, start_service

pytestmark = pytest.mark.long


@pytest.fixture
def durable():
    found = cluster(durable=True)
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no PostgreSQL can be started here")
    found.primary.asked("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
    found.primary.asked("SELECT pg_reload_conf()")
    yield found
    found.stop()


@pytest.fixture
def client(durable: Cluster, tmp_path):
    servers = (durable.primary, *durable.standbys)
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in servers)
    service = start_service(
        tmp_path, f"postgres://postgres@{hosts}/{DATABASE}", "--dev", "--workers", "1",
        SECRET_KEY="only for these tests " * 3, DATABASE_REPLICA_URL=durable.replica_urls, REPLICA_MAX_LAG="60",
    )  # fmt: skip
    found = service.fresh_client()
    assert found.post("/policy", {"src": POLICY}).status_code == 200
    yield found
    service.stop()


@dataclass
class Load:
    """Writers and readers, and what became of what they sent."""

    client: Client
    acknowledged: dict[str, int] = field(default_factory=dict)  # documents, and the positions of their facts
    refused: list[str] = field(default_factory=list)  # changes
    failed: list[str] = field(default_factory=list)  # questions
    wrong: list[str] = field(default_factory=list)
    asked: int = 0
    stop: Event = field(default_factory=Event)

    def write(self, writer: int) -> None:
        number = 0
        while not self.stop.is_set():
            document = f"{writer}-{number}"
            answer = self.sent("/facts", role("ann", document), {})
            if answer is None or answer.status_code != 200:
                self.refused.append("" if answer is None else answer.text)
                time.sleep(0.1)
                continue
            self.acknowledged[document] = int(answer.headers["OsoOffset"])
            number += 1
            time.sleep(0.01)

    def read(self, is_positioned: bool) -> None:
        while not self.stop.is_set():
            document, position = next(reversed(self.acknowledged.copy().items()), ("none", 0))
            headers = {"OsoOffset": str(position)} if is_positioned and position else {}
            answer = self.sent("/authorize", asked("ann", document), headers)
            self.asked += 1
            if answer is None or answer.status_code != 200:
                self.failed.append("" if answer is None else answer.text)
            elif headers and not answer.json()["allowed"]:
                self.wrong.append(document)
            time.sleep(0.005)

    def sent(self, path: str, body: dict, headers: dict) -> requests.Response | None:
        try:
            return self.client.post(path, body, headers=headers)
        except requests.RequestException:
            return None


def test_a_standby_takes_over_under_load(durable, client):
    load = Load(client)
    threads = [Thread(target=load.write, args=(number,)) for number in range(2)]
    threads += [Thread(target=load.read, args=(is_positioned,)) for is_positioned in (True, False)]
    for each in threads:
        each.start()
    try:
        wait_for(lambda: len(load.acknowledged) > 50 and load.asked > 50, "there is some load")
        wait_for(lambda: all(map(_is_asked, durable.standbys)), "replicas answer")
        before = dict(load.acknowledged)
        durable.primary.kill()
        time.sleep(1)
        during, failed = load.asked, len(load.failed)
        promote(durable)
        wait_for(lambda: len(load.acknowledged) > len(before) + 50, "changes go on")
        wait_for(lambda: load.asked > during + 50, "questions go on")
    finally:
        load.stop.set()
        for each in threads:
            each.join()
    assert load.wrong == []
    assert (failed, load.failed) == (0, [])
    lost = [each for each in load.acknowledged if not client.post("/authorize", asked("ann", each)).json()["allowed"]]
    assert lost == []


def _is_asked(server) -> bool:
    """Whether others than the one who looks at it are connected."""
    counted = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'authz' AND datname = '{DATABASE}'"
    return server.asked(counted)[0][0] > 1
