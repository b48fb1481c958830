"""Record what two servers and their replicas answer while everything fails, and check that it is consistent.

    python -m tests.faults.consistency --minutes 10 [--keep history.jsonl]

Each round has a primary with two synchronous replicas, a server that asks the primary alone, and one that asks the
replicas. Clients change facts, many at once or one, publish policies, and ask through either server. Meanwhile servers
are killed or paused, replication is paused, and once a round the primary is lost and a replica takes over. What was
sent and answered is checked by `tests.faults.history_checker`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests
from urllib3.exceptions import NewConnectionError

from tests import standalone
from tests.faults import history_checker
from tests.faults.history_checker import MODE, Operation, Value
from tests.faults.kills import _kill
from tests.faults.marks import Mark, none_of, printed
from tests.faults.pauses import paused
from tests.faults.worlds import fact, port_of
from tests.service import DEV_KEY, Client, Service, start_service

MODES = ("reader", "editor")
POLICY = """# {number}
actor User {{}}
resource Doc {{ roles = ["reader", "editor"]; permissions = ["read"]; "read" if "{mode}"; }}
"""
ASKED = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
DATABASE = "replicated"
ANSWER_WITHIN = 8  # seconds that a client waits
ANSWERED_WITHIN = 60.0  # seconds for as many answers as are wanted
BEHIND = 15.0  # seconds that an answer of a replica may be old; usually it is about one
KEYS = 12  # that are changed at a time; after each fault, these are others
SERVER_OPTIONS = ("--dev", "--workers", "1")


@dataclass
class Place:
    """Two servers over a primary and its replicas: the first asks the primary alone."""

    folder: Path
    databases: Any  # whose primary is lost
    url: str
    replica_urls: str | None  # without them, the second server asks the primary, too
    servers: list[Service] = field(default_factory=list)
    keys: tuple[str, ...] = ()
    all_keys: list[str] = field(default_factory=list)
    round: int = 0
    key: str = DEV_KEY
    variables: Mapping[str, str] = field(default_factory=dict)  # of the servers

    def start(self, number: int, port: int = 0) -> Service:
        is_replicated = number and self.replica_urls
        replicas = {"DATABASE_REPLICA_URL": self.replica_urls, "REPLICA_MAX_LAG": "60"} if is_replicated else {}
        return start_service(
            self.folder, self.url, *SERVER_OPTIONS, port=port,
            SECRET_KEY="only for these tests " * 3, LOG_LEVEL="ERROR", **replicas, **self.variables,
        )  # fmt: skip

    def restart(self, number: int) -> None:
        self.servers[number] = self.start(number, port_of(self.servers[number]))

    def take_new_keys(self) -> None:
        """Changes that nobody answered may still happen later; then there are few of them for each key."""
        self.round += 1
        self.keys = tuple([f"k{self.round}-{number}" for number in range(KEYS)])
        self.all_keys = [*self.all_keys, *self.keys]


@contextmanager
def place(standbys: int) -> Iterator[Place]:
    from tests.replicas.cluster import cluster

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        databases = cluster(standbys, durable=True)
        if databases is None:
            raise SystemExit("no PostgreSQL can be started here")
        stack.callback(databases.stop)
        for each in (databases.primary, *databases.standbys):  # processes are killed, and not the machine
            each.asked("ALTER SYSTEM SET fsync = off")
            each.asked("SELECT pg_reload_conf()")
        if standbys > 1:
            databases.primary.asked("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            databases.primary.asked("SELECT pg_reload_conf()")
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in (databases.primary, *databases.standbys))
        url = f"postgres://postgres@{hosts}/{DATABASE}"
        found = Place(folder, databases, url, databases.replica_urls)
        found.take_new_keys()
        for number in range(2):
            found.servers.append(found.start(number))
        stack.callback(lambda: [_kill(each) for each in found.servers if each.process.poll() is None])
        yield found


# ---- clients ---------------------------------------------------------------------------------------------------------


class NotSent(Exception):
    """The server took no connection, so the request has not been sent."""


@dataclass
class Recorder:
    """A client that writes down what it sends, and what it is answered."""

    place: Place
    random: random.Random
    history: list[Operation] = field(default_factory=list)
    position: int = 0  # as clients keep it: of the last change that was acknowledged
    refused: list[str] = field(default_factory=list)  # with a status that says that the service is at fault
    policies: int = 0

    def ask(self) -> None:
        number = self.random.randrange(2)
        header = {"OsoOffset": str(self.position)} if self.position and self.random.random() < 0.7 else {}
        key = self.random.choice(self.place.keys)
        known = list(self.place.all_keys)
        is_list = self.random.random() < 0.2
        body = {**ASKED, **({"page_size": 10_000} if is_list else {"resource_id": key})}
        sent = Operation(
            time.monotonic(), at_least=int(header.get("OsoOffset", 0)), staleness=BEHIND if number else 0.0
        )
        answer = None
        with suppress(NotSent):
            answer = self._sent(number, "POST", "/list" if is_list else "/authorize", body, header)
        if answer is None or answer.status_code != 200:
            return
        said = answer.json()
        answers = (
            {each: each in said["results"] for each in {*known, *said["results"]}}
            if is_list
            else {key: said["allowed"]}
        )
        self.history.append(
            replace(sent, completed=time.monotonic(), revision=int(answer.headers["OsoOffset"]), answers=answers)
        )

    def change(self) -> None:
        changes: dict[str, Value] = {}
        for _ in range(self.random.choice((1, 1, 4))):
            changes[f"{self.random.choice(MODES)}/{self.random.choice(self.place.keys)}"] = self.random.random() < 0.6
        parts = {
            "inserts": [role(name) for name, is_there in changes.items() if is_there],
            "deletes": [role(name) for name, is_there in changes.items() if not is_there],
        }
        body = [{kind: facts} for kind, facts in parts.items() if facts]
        self._changed("/batch", body, changes)

    def publish(self) -> None:
        self.policies += 1
        mode = self.random.choice(MODES)
        number = f"{id(self)} {self.policies}"  # each is a text of its own, and so a change
        self._changed("/policy", {"src": POLICY.format(mode=mode, number=number)}, {MODE: mode})

    def _changed(self, path: str, body: object, changes: Mapping[str, Value]) -> None:
        sent = Operation(time.monotonic(), changes=changes)
        try:
            answer = self._sent(self.random.randrange(2), "POST", path, body, {})
        except NotSent:
            return
        if answer is None or answer.status_code >= 500:
            self.history.append(sent)
            time.sleep(0.05)
            return
        assert answer.status_code == 200, answer.text
        revision = int(answer.headers["OsoOffset"])
        self.history.append(replace(sent, completed=time.monotonic(), revision=revision))
        self.position = revision

    def _sent(self, number: int, method: str, path: str, body: object, headers: dict) -> requests.Response | None:
        client = Client(self.place.servers[number].origin, self.place.key)
        try:
            answer = client.request(method, path, json=body, headers=headers, timeout=ANSWER_WITHIN)
        except requests.RequestException as error:
            if isinstance(getattr(error.args[0], "reason", None), NewConnectionError):
                time.sleep(0.05)
                raise NotSent from error
            return None
        if answer.status_code >= 500 and answer.status_code != 503:
            self.refused.append(answer.text)
        return answer


def role(register: str) -> dict:
    mode, _, key = register.partition("/")
    return fact("has_role", ("User", "ann"), mode, ("Doc", key))


# ---- faults ----------------------------------------------------------------------------------------------------------


def kill_a_server(where: Place, number: int) -> None:
    _kill(where.servers[number])
    where.restart(number)


def pause_a_server(where: Place, number: int) -> None:
    with paused(where.servers[number].process.pid):
        time.sleep(1.5)


def pause_replication(where: Place, number: int) -> None:
    from tests.replicas.cluster import pause, resume

    standby = where.databases.standbys[number % len(where.databases.standbys)]
    with suppress(Exception):  # where it is the primary by now
        pause(standby)
        time.sleep(2.0)
        resume(standby)


def lose_the_primary(where: Place, number: int) -> None:
    from tests.replicas.cluster import promote

    where.databases.primary.kill()
    time.sleep(0.5)
    promote(where.databases)
    time.sleep(3)


FAULTS = (kill_a_server, pause_a_server, pause_replication)


@dataclass
class Recorded:
    history: list[Operation]
    problems: list[str]
    refused: list[str]
    faults: int


def recorded(where: Place, faults: list, seed: int, calm: float = 1.5, pace: float = 0.0, answers: int = 0) -> Recorded:
    """Have clients at work while these faults come one after the other, and check what they wrote down.

    `calm`: seconds before each fault; `pace`: seconds between a client's requests. After the last fault, they go on
    until there are so many more `answers`, but no longer than `ANSWERED_WITHIN`.
    """
    over = threading.Event()
    clients = [Recorder(where, random.Random(f"{seed} {number}")) for number in range(6)]
    clients[0].publish()
    assert clients[0].position, "the first policy is published"

    def work(number: int) -> None:
        client = clients[number]
        while not over.is_set():
            if number == 0:
                client.publish()
                time.sleep(0.15)
            elif number <= 2:
                client.change()
                time.sleep(0.01)
            client.ask()
            time.sleep(pace)

    with ThreadPoolExecutor(len(clients)) as threads:
        working = [threads.submit(work, number) for number in range(len(clients))]
        try:
            for number, fault in enumerate(faults):
                time.sleep(calm)
                if any(each.done() for each in working):
                    break  # a client has failed
                fault(where, number % 2)
                where.take_new_keys()
            time.sleep(calm)
            wanted, until = _answers(clients) + answers, time.monotonic() + ANSWERED_WITHIN
            while _answers(clients) < wanted and time.monotonic() < until and not any(each.done() for each in working):
                time.sleep(0.1)
        finally:
            over.set()
        for each in working:
            each.result()
    history = [each for client in clients for each in client.history]
    refused = [each for client in clients for each in client.refused]
    return Recorded(history, history_checker.problems(history), refused, len(faults))


def _answers(clients: list[Recorder]) -> int:
    return sum(bool(each.answers) for client in clients for each in tuple(client.history))


def marks(found: Recorded) -> list[Mark]:
    changes = [each for each in found.history if each.changes]
    answers = len(found.history) - len(changes)
    lost = sum(not each.is_acknowledged for each in changes)
    return [
        none_of("inconsistencies", len(found.problems), len(found.history)),
        none_of("answers of 500 and the like, but 503", len(found.refused), len(found.history)),
        Mark("changes, answers, faults", "any", f"{len(changes)}, {answers}, {found.faults}", answers > 100),
        Mark("changes without an acknowledgement", "any", str(lost), True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", type=Path, help="write the history of the last round to this file")
    options = parser.parse_args()
    standalone.set_up()
    until, failed, seed = time.monotonic() + options.minutes * 60, 0, options.seed
    while time.monotonic() < until and not failed:
        some = random.Random(seed)
        faults: list = [some.choice(FAULTS) for _ in range(6)]
        faults.insert(some.randrange(2, 6), lose_the_primary)
        with place(standbys=2) as where:
            found = recorded(where, faults, seed)
        if options.keep:
            history_checker.write(options.keep, found.history)
        failed |= printed(marks(found), f"\nseed {seed}: {', '.join(each.__name__ for each in faults)}")
        print(*found.problems[:20], *found.refused[:5], sep="\n")
        seed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
