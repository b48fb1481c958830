"""Servers that are killed without notice while they store facts, again and again: is anything lost, or half there?

    python -m tests.faults.kills --times 200 --database sqlite
    python -m tests.faults.kills --times 200 --database postgres

Each time the server and its workers are killed at once, in the middle of single changes and of batches, and started
again. What was acknowledged has to be stored, batches have to be whole, and no revision may be missing.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from typing import NamedTuple

import orjson
import psutil

from tests.faults.load import How, Load, Told, request_of
from tests.faults.marks import Mark, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Changes, Questions, World, fact, port_of, world
from tests.service import Client, Service

BATCH = 20  # facts
SHORTEST, LONGEST = 0.1, 1.0  # seconds of load before a server is killed


class Batches(Changes):
    """Each stores facts that name its number; a part of them would show."""

    def __call__(self, number: int) -> bytes:
        inserts = [fact("part", ("Number", f"{self.name}{number}"), f"{part}") for part in range(BATCH)]
        return request_of(self.key, "POST", "/batch", orjson.dumps([{"inserts": inserts}]))


class Killed(NamedTuple):
    """Of one turn."""

    told: int
    lost: int
    halves: int
    wrong: int


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            found, gaps = killed(place, options.times)
            failed |= printed(marks(found, gaps), f"\n{kind}, killed {options.times} times")
    return failed


def marks(found: list[Killed], gaps: int) -> list[Mark]:
    told = sum(each.told for each in found)
    return [
        none_of("acknowledged, and lost", sum(each.lost for each in found), told),
        none_of("batches of which a part is stored", sum(each.halves for each in found), told),
        none_of("questions answered wrong", sum(each.wrong for each in found), told),
        none_of("revisions that are missing", gaps, told),
    ]


def killed(place: World, times: int) -> tuple[list[Killed], int]:
    service = place.started("--workers", "2")
    place.filled(service)
    found = []
    for turn in range(times):
        done, service = _turn(place, service, turn)
        found.append(done)
        if sys.stdout.isatty():
            print(f"\r{turn + 1}", end="", flush=True)
    gaps = _gaps(service.client(place.key))
    service.stop()
    return found, gaps


def _turn(place: World, service: Service, turn: int) -> tuple[Killed, Service]:
    singles, batches = Changes(place.key, f"s{turn}n"), Batches(place.key, f"b{turn}n")
    questions = Questions(place.key)
    how, ports = How(connections=4, keeps_bodies=True), [port_of(service)]
    loads = [Load(ports, each, how) for each in (singles, batches, questions)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for each in threads:
        each.start()
    time.sleep(random.uniform(SHORTEST, LONGEST))
    _kill(service)
    for load, thread in zip(loads, threads):
        load.is_over = True
        thread.join()
    service = place.started("--workers", "2")
    client = service.client(place.key)
    parts = _parts(client, batches.name)
    lost = _acknowledged(loads[0].told) - singles.made(client), _acknowledged(loads[1].told) - set(parts)
    wrong = sum(each.status == 200 and not questions.is_right(each.number, each.body) for each in loads[2].told)
    told = sum(len(_acknowledged(load.told)) for load in loads)
    _forget(client)
    return Killed(told, sum(map(len, lost)), sum(number != BATCH for number in parts.values()), wrong), service


def _kill(service: Service) -> None:
    parent = psutil.Process(service.process.pid)
    for process in [parent, *parent.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
    service.process.wait()


def _acknowledged(told: list[Told]) -> set[int]:
    return {each.number for each in told if each.status == 200}


def _parts(client: Client, name: str) -> dict[int, int]:
    """How many facts there are of each batch."""
    found: dict[int, int] = {}
    for each in client.get("/facts", params={"predicate": "part"}).json():
        batch = each["args"][0]["id"]
        if batch.startswith(name):
            number = int(batch[len(name) :])
            found[number] = found.get(number, 0) + 1
    return found


def _forget(client: Client) -> None:
    """What this turn stored, so that the last takes no longer than the first."""
    patterns = [{"predicate": "part", "args": [None, None]}, {"predicate": "change", "args": [None]}]
    client.post("/batch", [{"deletes": patterns}]).raise_for_status()


def _gaps(client: Client) -> int:
    """Revisions from the first to the last that are not there. A large one comes in parts."""
    numbers, after = [], 0
    while True:
        page = client.get("/changes", params={"after": after}).json()
        numbers += [each["revision"] for each in page["changes"]]
        if page["next"] == after or not page["changes"]:
            break
        after = page["next"]
    assert numbers, "there are changes"
    return len(set(range(1, max(numbers) + 1)) - set(numbers))


if __name__ == "__main__":
    sys.exit(main())
