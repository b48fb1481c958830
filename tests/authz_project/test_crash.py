"""A server that is killed at any moment leaves whole batches, and all that it acknowledged."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import pytest
import requests

from tests.facts.changes import answers, plain, replayed, together
from tests.service import Client, Service, start_service

pytestmark = pytest.mark.long

KILLS = int(os.environ.get("CRASH_KILLS", "3"))  # 200 in the long run, by hand
BATCH = 40  # facts


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
        with suppress(psutil.NoSuchProcess):  # workers may end by themselves once their server is gone
            process.send_signal(signal.SIGKILL)


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


@dataclass
class Crashed:
    """What writers were told whose server was killed again and again, and the server that was started last."""

    service: Service
    batches: Client  # of an environment for each kind of writer
    singles: Client
    changes: Client
    acknowledged: set[int] = field(default_factory=set)  # batches
    offsets: dict[int, int] = field(default_factory=dict)  # of single changes
    told: list[int] = field(default_factory=list)  # offsets of changes
    answers: list[dict] = field(default_factory=list)  # of a reader of the changes


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def crashed(request, migrated_urls, tmp_path_factory) -> Iterator[Crashed]:
    """Sixteen writers in two processes, whose commits they share: all are killed with their server, some times."""
    folder, url = tmp_path_factory.mktemp("crash"), migrated_urls(request.param, "crash")
    service = start_service(folder, url, "--dev", "--workers", "2")
    found = Crashed(service, *(service.fresh_client() for _ in range(3)))
    kinds = [
        (send_until_it_dies, found.batches, found.acknowledged, 4),
        (send_singles_until_it_dies, found.singles, found.offsets, 8),
        (change_until_it_dies, found.changes, found.told, 4),
    ]
    for turn in range(KILLS):
        senders = [
            threading.Thread(
                target=send, args=(client, range(turn * 100_000 + start, (turn + 1) * 100_000, writers), noted)
            )
            for send, client, noted, writers in kinds
            for start in range(writers)
        ]
        for sender in senders:
            sender.start()
        time.sleep(random.uniform(0.3, 1.2))
        kill(found.service.process.pid)
        found.service.process.wait()
        for sender in senders:
            sender.join()
        found.service = start_service(folder, url, "--dev", "--workers", "2")
        for client in (found.batches, found.singles, found.changes):
            client.origin = found.service.origin
        after = found.answers[-1]["next"] if found.answers else 0
        found.answers += answers(lambda path: found.changes.get(path).json(), after, 7)
    yield found
    found.service.stop()


def test_killed_servers_leave_whole_batches(crashed):
    parts: dict[str, int] = {}
    for fact in crashed.batches.get("/facts").json():
        name = fact["args"][0]["id"]
        parts[name] = parts.get(name, 0) + 1
    assert crashed.acknowledged and set(parts.values()) <= {BATCH}
    assert {f"b{number}" for number in crashed.acknowledged} <= set(parts)


def test_killed_servers_lose_no_single_change_that_they_acknowledged(crashed):
    offsets = crashed.offsets
    stored = {fact["args"][0]["id"] for fact in crashed.singles.get("/facts").json()}
    last = int(crashed.singles.post("/facts", single(-1)).headers["OsoOffset"])
    assert offsets
    assert {f"s{number}" for number in offsets} <= stored
    assert len(set(offsets.values())) == len(offsets)
    assert max(offsets.values()) < last
    assert last == len(stored) + 1  # every offset is of a change that is stored, and every change has one


def test_killed_servers_leave_changes_that_agree_with_the_facts(crashed):
    """Read before and after each kill, and on from where the reader was, the changes give what is stored."""
    revisions = together(crashed.answers, 7)
    stored = {plain(fact) for fact in crashed.changes.get("/facts").json()}
    anew = together(answers(lambda path: crashed.changes.get(path).json(), 0))
    assert crashed.told and [each.revision for each in revisions] == list(range(1, len(revisions) + 1)), "without gaps"
    assert set(crashed.told) <= {each.revision for each in revisions}
    assert replayed(revisions) == replayed(anew) == stored
