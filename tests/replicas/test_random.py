"""Random writers and readers, over replicas that are paused and resumed: each answer is true of the revision that it
says, and that is no older than the reader has seen."""

import random
import time
from threading import Event, Lock, Thread
from typing import NamedTuple

import pytest
from django.db import connections

from policy.endpoint import OFFSET
from policy.replicas import reading
from tests.replicas.cluster import pause, resume
from tests.replicas.conftest import answers, asked, role

pytestmark = pytest.mark.long
SECONDS = 8
LONGEST = 60  # seconds more, for replicas to answer often enough to see anything
DOCUMENTS = [f"doc{number}" for number in range(6)]


class Read(NamedTuple):
    document: str
    position: int
    revision: int
    allowed: bool


class World:
    def __init__(self, api):
        self.api = api
        self.stop = Event()
        self.writing = Lock()
        self.truth: dict[int, frozenset[str]] = {}  # of each revision
        self.newest = 0
        self.reads: list[Read] = []
        self.failed: list[str] = []

    def write(self, seed: int) -> None:
        rolled = random.Random(seed)
        while not self.stop.is_set():
            document = rolled.choice(DOCUMENTS)
            with self.writing:  # so that the order is known
                held = self.truth[self.newest]
                send = self.api.delete if document in held else self.api.post
                held ^= {document}
                answer = send("/facts", role("ann", document))
                assert answer.status_code == 200, answer.json()
                self.truth[int(answer[OFFSET])] = held
                self.newest = int(answer[OFFSET])
            time.sleep(rolled.choice((0, 0.01, 0.1)))
        connections.close_all()

    def read(self, seed: int) -> None:
        rolled, last = random.Random(seed), 0
        while not self.stop.is_set():
            position = rolled.choice((0, last, self.newest))
            document = rolled.choice(DOCUMENTS)
            headers = {"OsoOffset": str(position)} if position else {}
            answer = self.api.post("/authorize", asked("ann", document), **headers)
            if answer.status_code != 200:
                self.failed.append(answer.content.decode())
                continue
            last = int(answer[OFFSET])
            self.reads.append(Read(document, position, last, answer.json()["allowed"]))
        connections.close_all()

    def disturb(self, seed: int, standbys) -> None:
        rolled = random.Random(seed)
        while not self.stop.is_set():
            one = rolled.choice(standbys)
            pause(one)
            time.sleep(rolled.uniform(0, 1.5))
            resume(one)
            time.sleep(rolled.uniform(0, 0.3))


@pytest.mark.parametrize("knows_its_changes", [True, False])
def test_answers_are_true_and_new_enough(api, watching, cluster, monkeypatch, knows_its_changes):
    if not knows_its_changes:
        monkeypatch.setattr("policy.core.journal.note_change", lambda *_: None)
    world = World(api)
    world.newest = int(api.post("/facts", role("ben", "doc0"))[OFFSET])
    world.truth[world.newest] = frozenset()
    before, seed = answers(watching), random.randrange(2**32)
    threads = [Thread(target=world.write, args=(seed + place,)) for place in range(2)]
    threads += [Thread(target=world.read, args=(seed + 10 + place,)) for place in range(3)]
    threads.append(Thread(target=world.disturb, args=(seed, cluster.standbys)))
    for each in threads:
        each.start()
    time.sleep(SECONDS)
    until = time.monotonic() + LONGEST
    while answers(watching) <= before + 50 and time.monotonic() < until:  # on a busy machine
        time.sleep(0.2)
    world.stop.set()
    for each in threads:
        each.join()
    assert world.failed == [], seed
    first = min(world.truth)
    checked = [each for each in world.reads if each.revision >= first]
    assert [each for each in checked if each.revision < each.position] == [], seed
    assert [each for each in checked if each.allowed != (each.document in world.truth[each.revision])] == [], seed
    for each in random.Random(seed).sample(checked, 40):  # and by the service's own memory
        then = api.post("/authorize", asked("ann", each.document) | {"as_of": each.revision})
        assert then.json()["allowed"] == each.allowed, (seed, each)
    assert answers(watching) > before + 50
    assert reading.watch() is watching
