"""A server that is killed at any moment leaves whole batches, and all that it acknowledged."""

import os
import random
import signal
import threading
import time

import psutil
import pytest
import requests

from tests.service import Client, start_service

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("CRASH_KILLS", "3"))  # 200 in the long run, by hand
BATCH = 40  # facts


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, database_urls):
    return database_urls(request.param, "crash")


def batch(number: int) -> list[dict]:
    """Every fact of it names the batch, so that a part of one shows."""
    args = [{"type": "Batch", "id": f"b{number}"}]
    return [{"inserts": [{"predicate": "part", "args": [*args, {"type": "T", "id": f"{n}"}]} for n in range(BATCH)]}]


def send_until_it_dies(client: Client, numbers, acknowledged: set[int]) -> None:
    try:
        for number in numbers:
            if client.post("/batch", batch(number), timeout=20).status_code == 200:
                acknowledged.add(number)
    except requests.RequestException:
        pass


def kill(process_id: int) -> None:
    """The server and its workers, at once and without notice."""
    parent = psutil.Process(process_id)
    for process in [parent, *parent.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)


def test_killed_servers_leave_whole_batches(tmp_path, url):
    acknowledged: set[int] = set()
    service = start_service(tmp_path, url, "--dev", "--workers", "1")
    key = service.fresh_client().key
    for turn in range(KILLS):
        numbers = [range(turn * 100_000 + start, (turn + 1) * 100_000, 4) for start in range(4)]
        senders = [
            threading.Thread(target=send_until_it_dies, args=(service.client(key), mine, acknowledged))
            for mine in numbers
        ]
        for sender in senders:
            sender.start()
        time.sleep(random.uniform(0.05, 0.8))
        kill(service.process.pid)
        service.process.wait()
        for sender in senders:
            sender.join()
        service = start_service(tmp_path, url, "--dev", "--workers", "1")
    parts: dict[str, int] = {}
    for fact in service.client(key).get("/facts").json():
        name = fact["args"][0]["id"]
        parts[name] = parts.get(name, 0) + 1
    service.stop()
    assert set(parts.values()) <= {BATCH}
    assert {f"b{number}" for number in acknowledged} <= set(parts)
