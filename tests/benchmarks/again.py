"""Many checks at once, and the same questions again: processor time of an answer, of the server and of PostgreSQL.

    python -m tests.benchmarks.again --facts 100000 --database postgres [--seconds 2] [--rounds 5] [--clients 8]

Two servers over the same facts take turns, one that remembers answers and one that does not (`ANSWER_CACHE=0`). New
questions are new to both. Every answer of those that are asked again is compared with what the statement by hand says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from statistics import median

import orjson
import psutil
import psycopg

from tests.benchmarks.clients import END_OF_HEAD, Clients, Request, request
from tests.benchmarks.generate import Size, entity
from tests.benchmarks.kinds import asked, kinds
from tests.benchmarks.served import VARIABLES, Served, served
from tests.service import Service, start_service

AT_ONCE = 50
AGAIN = 100
BATCHES = 40
THINGS = {"Project": "read", "Repo": "write", "Doc": "edit", "Issue": "close"}


def main() -> int:
    options = parsed()
    with served(options.database, Size(options.facts)) as server, forgetting(server) as other:
        sides = Side(server.service, server.url, options.clients), Side(other, server.url, options.clients)
        for name, asking in cells(server):
            taken: list[list[float]] = [[], []]
            for turn in range(options.rounds + 1):
                for place in (0, 1) if turn % 2 else (1, 0):
                    taken[place].append(sides[place].milliseconds(asking(place), options.seconds))
            on, off = (median(each[1:]) for each in taken)  # the first is to warm up
            print(f"{name:44}{on:9.3f} ms{off:12.3f} ms without memory{on / off:9.2f}", flush=True)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2)
    return parser.parse_args()


@contextmanager
def forgetting(server: Served) -> Iterator[Service]:
    """Another server over the same database, which remembers no answers."""
    folder = server.folder / "forgetting"
    folder.mkdir()
    service = start_service(folder, server.url, **VARIABLES | {"ANSWER_CACHE": "0"})
    try:
        yield service
    finally:
        service.stop()


# ---- processor time --------------------------------------------------------------------------------------------


@dataclass
class Side:
    service: Service
    url: str
    clients: int = 2

    def milliseconds(self, requests: Sequence[Request], seconds: float) -> float:
        """Of a processor, for each answer."""
        with closing(Clients(int(self.service.origin.rpartition(":")[2]), self.clients)) as clients:
            clients.ask(requests[: self.clients], 0)
            before, others = self.used(), self.used_by_database()
            answers = len(clients.ask(requests[self.clients :], seconds).times)
            return (self.used() - before + self.used_by_database() - others) / answers / 1e6

    def used(self) -> int:
        parent = psutil.Process(self.service.process.pid)
        return sum(nanoseconds(each.pid) for each in (parent, *parent.children(recursive=True)))

    def used_by_database(self) -> int:
        if not self.url.startswith("postgres"):
            return 0
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
        return sum(nanoseconds(pid) for (pid,) in rows)


def nanoseconds(pid: int) -> int:
    """What all threads of the process have used of a processor."""
    used = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        used += int(task.read_text().split()[0])
    return used


# ---- what is asked -----------------------------------------------------------------------------------------------


def cells(server: Served) -> Iterator[tuple[str, object]]:
    rng = Random(3)
    checks = [each for kind in kinds(server) if kind.path == "/authorize" and "context" not in kind.name
              for each in kind.requests]  # fmt: skip
    rng.shuffle(checks)
    batches = [rng.sample(checks, AT_ONCE) for _ in range(BATCHES)]
    each = [batch_of(server, batch) for batch in batches]
    actions = [actions_of(server, batch) for batch in batches]
    again, numbers = checks[:AGAIN], count()
    yield f"{AT_ONCE} checks by /authorize_each", lambda place: each
    yield f"{AT_ONCE} times all actions, by /bulk_actions", lambda place: actions
    pools: dict[int, list[Request]] = {}

    def new(place: int) -> list[Request]:
        """The same for both sides, one after the other."""
        if place in pools:
            return pools.pop(place)
        made = list(new_questions(server, rng, 10_000, next(numbers)))
        pools[1 - place] = made
        return made

    yield "new questions", new
    yield f"{AGAIN} questions again and again", lambda place: again
    for kind in kinds(server):
        if kind.path in ("/authorize", "/list") and "context" not in kind.name:
            asked_again = kind.requests[:AGAIN]
            yield f"again: {kind.name}", lambda place, requests=asked_again: requests


def body_of(asked: Request) -> dict:
    body: dict = orjson.loads(asked.sent.partition(END_OF_HEAD)[2])
    return body


def batch_of(server: Served, batch: Iterable[Request]) -> Request:
    bodies = [body_of(each) for each in batch]
    checks = [
        {
            "actor": {"type": body["actor_type"], "id": body["actor_id"]},
            "action": body["action"],
            "resource": {"type": body["resource_type"], "id": body["resource_id"]},
        }
        for body in bodies
    ]
    truth = [each.is_right({"allowed": True}) for each in batch]
    return request(server.key, "/authorize_each", {"checks": checks}, lambda said: said == {"results": truth})


def actions_of(server: Served, batch: Iterable[Request]) -> Request:
    pairs = [(body_of(each), each.is_right({"allowed": True})) for each in batch]

    def is_right(said) -> bool:
        return all((body["action"] in each["results"]) == truth for (body, truth), each in zip(pairs, said))

    return request(server.key, "/bulk_actions", [body for body, _ in pairs], is_right)


def new_questions(server: Served, rng: Random, number: int, turn: int) -> Iterator[Request]:
    size = server.size
    many = {"Project": size.projects, "Repo": size.repos, "Doc": size.docs, "Issue": size.issues}
    for place in range(number):
        kind = rng.choice(list(THINGS))
        resource = entity(kind, rng.randrange(many[kind])).id
        body = asked(entity("User", rng.randrange(size.users)).id, THINGS[kind])
        body |= {"resource_type": kind, "resource_id": resource, "nonce": f"{turn}-{place}"}
        yield request(server.key, "/authorize", body, lambda said: True)


if __name__ == "__main__":
    sys.exit(main())
