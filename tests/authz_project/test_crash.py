"""A server that is killed at any moment leaves whole batches, and all that it acknowledged."""

import os
import random
import signal
import threading
import time

import psutil
import pytest
import requests

from tests.facts.changes import answers, plain, replayed, together
from tests.service import Client, start_service

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("CRASH_KILLS", "3"))  # 200 in the long run, by hand
BATCH = 40  # facts


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, migrated_urls):
    return migrated_urls(request.param, f"crash_{request.function.__name__}"[:60])


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


def single(number: int) -> dict:
    return {"predicate": "single", "args": [{"type": "T", "id": f"s{number}"}]}


def send_singles_until_it_dies(client: Client, numbers, acknowledged: dict[int, int]) -> None:
    """Each with the offset that it was told."""
    try:
        for number in numbers:
            answer = client.post("/facts", single(number), timeout=20)
            if answer.status_code == 200:
                acknowledged[number] = int(answer.headers["OsoOffset"])
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


def test_killed_servers_lose_no_single_change_that_they_acknowledged(tmp_path, url):
    """Eight writers in two processes, whose commits they share."""
    acknowledged: dict[int, int] = {}
    service = start_service(tmp_path, url, "--dev", "--workers", "2")
    key = service.fresh_client().key
    for turn in range(KILLS):
        numbers = [range(turn * 100_000 + start, (turn + 1) * 100_000, 8) for start in range(8)]
        senders = [
            threading.Thread(target=send_singles_until_it_dies, args=(service.client(key), mine, acknowledged))
            for mine in numbers
        ]
        for sender in senders:
            sender.start()
        time.sleep(random.uniform(0.3, 1.2))
        kill(service.process.pid)
        service.process.wait()
        for sender in senders:
            sender.join()
        service = start_service(tmp_path, url, "--dev", "--workers", "2")
    client = service.client(key)
    stored = {fact["args"][0]["id"] for fact in client.get("/facts").json()}
    last = int(client.post("/facts", single(-1)).headers["OsoOffset"])
    service.stop()
    assert acknowledged
    assert {f"s{number}" for number in acknowledged} <= stored
    assert len(set(acknowledged.values())) == len(acknowledged)
    assert max(acknowledged.values()) < last
    assert last == len(stored) + 1  # every offset is of a change that is stored, and every change has one


def change(number: int) -> list[dict]:
    """Batches that insert, and that delete what others inserted, so that history has all kinds of rows."""
    deletes = [{"deletes": [{"predicate": "part", "args": [{"type": "Batch", "id": f"b{number % 7}"}, None]}]}]
    return [*(deletes if number % 3 == 0 else []), *batch(number % 7)]


def change_until_it_dies(client: Client, numbers, told: list[int]) -> None:
    try:
        for number in numbers:
            answer = client.post("/batch", change(number), timeout=20)
            if answer.status_code == 200:
                told.append(int(answer.headers["OsoOffset"]))
            client.delete("/facts", single(number - 1), timeout=20)
            client.post("/facts", single(number), timeout=20)
    except requests.RequestException:
        pass


def test_killed_servers_leave_changes_that_agree_with_the_facts(tmp_path, url):
    """Read before and after each kill, and on from where the reader was, the changes give what is stored."""
    service = start_service(tmp_path, url, "--dev", "--workers", "2")
    key = service.fresh_client().key
    found: list[dict] = []
    told: list[int] = []
    for turn in range(KILLS):
        numbers = [range(turn * 100_000 + start, (turn + 1) * 100_000, 4) for start in range(4)]
        senders = [
            threading.Thread(target=change_until_it_dies, args=(service.client(key), mine, told)) for mine in numbers
        ]
        for sender in senders:
            sender.start()
        time.sleep(random.uniform(0.3, 1.2))
        kill(service.process.pid)
        service.process.wait()
        for sender in senders:
            sender.join()
        service = start_service(tmp_path, url, "--dev", "--workers", "2")
        client = service.client(key)
        found += answers(lambda path, client=client: client.get(path).json(), found[-1]["next"] if found else 0, 7)
    revisions = together(found, 7)
    stored = {plain(fact) for fact in client.get("/facts").json()}
    anew = together(answers(lambda path: client.get(path).json(), 0))
    service.stop()
    assert told and [each.revision for each in revisions] == list(range(1, len(revisions) + 1)), "without gaps"
    assert set(told) <= {each.revision for each in revisions}
    assert replayed(revisions) == replayed(anew) == stored
