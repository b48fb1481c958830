"""Questions again and again to two servers that keep answers, while facts, policies and keys change under them.

    python -m tests.properties.kept_under_change --database postgres --questions 20000

Changes are made one after the other, by either server or by this process, and what is true after each is known here. An
answer is right if it was true at some time between its question and itself: so what was committed before a question was
asked must count. A key that was revoked before must be refused, one that was not must not.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import django
import orjson
from django.db import connection

USERS, DOCS, ROLES = ("ann", "ben", "eve"), ("a", "b"), ("reader", "writer")
TEXT = 'actor User {{}} resource Doc {{ roles = ["reader", "writer"]; permissions = ["read"]; "read" if "{}"; }}'
CLIENTS = 4
SECRET = "4 kept answers: 0123456789 abcdefgh ijklmno"
Fact = tuple[str, str, str]  # user, role, doc
Ask = tuple[str, object, Callable[["State"], object]]  # path, body, and the truth of a state


@dataclass(frozen=True)
class State:
    """What is true: which role reads, and who has which."""

    role: str
    facts: frozenset[Fact]

    def reads(self, user: str, doc: str) -> bool:
        return (user, self.role, doc) in self.facts


@dataclass
class History:
    """States, each with when its change was begun and when it was acknowledged; and keys, with when they ended."""

    states: list[tuple[State, float, float]]
    keys: list[tuple[str, float, float]]  # when revoking it was begun, and acknowledged
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now(self) -> State:
        return self.states[-1][0]

    def between(self, asked: float, answered: float) -> list[State]:
        """All that may have been true then."""
        with self.lock:
            states = list(self.states)
        found = []
        for place in range(len(states) - 1, -1, -1):
            state, begun, _ = states[place]
            if begun <= answered:
                found.append(state)
            if states[place][2] <= asked:
                break
        return found

    def note(self, state: State, change: Callable[[], object]) -> None:
        """Make the change, which may be seen from now on."""
        with self.lock:
            self.states.append((state, time.monotonic(), float("inf")))
        change()
        with self.lock:
            self.states[-1] = (state, self.states[-1][1], time.monotonic())


# ---- asking --------------------------------------------------------------------------------------------------------


def asks() -> list[Ask]:
    """Few, so that each is asked again and again."""
    found: list[Ask] = []
    pairs = [(user, doc) for user in USERS for doc in DOCS]
    for user, doc in pairs:
        who, what = {"actor_type": "User", "actor_id": user}, {"resource_type": "Doc", "resource_id": doc}
        found += [
            ("/authorize", who | what | {"action": "read"}, lambda s, u=user, d=doc: {"allowed": s.reads(u, d)}),
            ("/actions", who | what, lambda s, u=user, d=doc: {"results": ["read"] * s.reads(u, d)}),
        ]
    docs = [{"type": "Doc", "id": doc} for doc in DOCS]
    for user in USERS:
        body = {"actor_type": "User", "actor_id": user, "action": "read"}
        found += [
            ("/list", body | {"resource_type": "Doc", "page_size": 10_000},
             lambda s, u=user: {"results": [doc for doc in DOCS if s.reads(u, doc)], "next_page_token": None}),
            ("/authorize_resources", body | {"resources": docs},
             lambda s, u=user: {"results": [doc for doc in docs if s.reads(u, doc["id"])]}),
        ]  # fmt: skip
    checks = [
        {"actor": {"type": "User", "id": user}, "action": "read", "resource": {"type": "Doc", "id": doc}}
        for user, doc in pairs
    ]
    bodies = [
        {"actor_type": "User", "actor_id": user, "resource_type": "Doc", "resource_id": doc} for user, doc in pairs
    ]
    query = {
        "predicate": ["allow", ["u", "a", "d"]],
        "constraints": {"u": {"type": "User"}, "a": {"type": "String", "ids": ["read"]}, "d": {"type": "Doc"}},
    }
    return [
        *found,
        ("/authorize_each", {"checks": checks}, lambda s: {"results": [s.reads(*pair) for pair in pairs]}),
        ("/bulk_actions", bodies, lambda s: [{"results": ["read"] * s.reads(*pair)} for pair in pairs]),
        ("/evaluate_query", query,
         lambda s: {"results": [{"u": u, "a": "read", "d": d} for u, d in pairs if s.reads(u, d)]}),
    ]  # fmt: skip


@dataclass
class Client:
    """Asks one server on a connection that stays open."""

    port: int
    history: History
    rng: Random
    tally: Counter[str]
    wrong: list[str]

    def run(self, done: threading.Event) -> None:
        line, every = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30), asks()
        while not done.is_set():
            path, body, truth = self.rng.choice(every)
            key, revoking, _ = self.history.keys[self.rng.choice((-1, -1, -1, -2))]
            asked = time.monotonic()
            status, said = send(line, key, path, body)
            answered = time.monotonic()
            ended = next(end for each, _, end in self.history.keys if each == key)
            revoking = next(begun for each, begun, _ in self.history.keys if each == key)
            self.tally["asked"] += 1
            if status == 401:
                self.tally["refused"] += 1
                is_right = revoking <= answered
            else:
                states = self.history.between(asked, answered)
                is_right = status == 200 and ended > asked and any(said == truth(state) for state in states)
            if not is_right:
                self.wrong.append(f"{path} {body} at {self.port}: {status} {said}, {len(self.history.states)} changes")


def send(line: http.client.HTTPConnection, key: str, path: str, body: object) -> tuple[int, object]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    line.request("POST", f"/api{path}", orjson.dumps(body), headers)
    answer = line.getresponse()
    return answer.status, orjson.loads(answer.read())


# ---- changing ------------------------------------------------------------------------------------------------------


@dataclass
class Changer:
    """Changes what is true, by any way there is."""

    ports: Sequence[int]
    environment_id: int
    history: History
    rng: Random
    tally: Counter[str]

    def __post_init__(self):
        self.lines = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for port in self.ports]

    def run(self, done: threading.Event) -> None:
        changes = (self.facts, self.facts, self.facts, self.load, self.clear, self.policy, self.go_back, self.key)
        while not done.is_set():
            change = self.rng.choice(changes)
            change()
            self.tally[change.__name__] += 1
            time.sleep(self.rng.choice((0.0, 0.002, 0.02, 0.1)))
        connection.close()

    def post(self, path: str, body: object) -> None:
        status, said = send(self.rng.choice(self.lines), self.history.keys[-1][0], path, body)
        assert status in (200, 202), said

    def facts(self) -> None:
        state = self.history.now
        fact = self.rng.choice(USERS), self.rng.choice(ROLES), self.rng.choice(DOCS)
        kind = "deletes" if fact in state.facts else "inserts"
        new = State(state.role, state.facts ^ {fact})
        self.history.note(new, lambda: self.post("/batch", [{kind: [json_of(fact)]}]))

    def load(self) -> None:
        from facts import loading

        state = self.history.now
        facts = {(user, role, doc) for user in USERS for role in ROLES for doc in DOCS if self.rng.random() < 0.3}
        lines = [(number, json_of(fact)) for number, fact in enumerate(sorted(facts))]
        new = State(state.role, state.facts | facts)
        self.history.note(new, lambda: loading.load(self.environment_id, lines))

    def clear(self) -> None:
        self.history.note(State(self.history.now.role, frozenset()), lambda: self.post("/clear_data", None))

    def policy(self) -> None:
        role = self.rng.choice(ROLES)
        text = f"{TEXT.format(role)} # {self.rng.random()}"
        new = State(role, self.history.now.facts)
        self.history.note(new, lambda: self.post("/policy", {"src": text, "filename": ""}))

    def go_back(self) -> None:
        from policy.models import PolicyVersion
        from policy.publishing import activate

        versions = PolicyVersion.objects.filter(environment_id=self.environment_id).order_by("-number")
        version = self.rng.choice(versions[:5])
        role = next(role for role in ROLES if f'if "{role}"' in version.source)
        self.history.note(State(role, self.history.now.facts), lambda: activate(self.environment_id, version.number))

    def key(self) -> None:
        """A new key, and the end of the one before."""
        from authz_project.keys import create_key, revoke_key
        from authz_project.models import ApiKey
        from policy.models import Environment

        old = self.history.keys[-1][0]
        token = create_key(Environment.objects.get(pk=self.environment_id))[1]
        self.history.keys.append((token, float("inf"), float("inf")))
        place = len(self.history.keys) - 2
        self.history.keys[place] = (old, time.monotonic(), float("inf"))
        revoke_key(ApiKey.objects.get(prefix=old.rpartition("_")[0]))
        self.history.keys[place] = (old, self.history.keys[place][1], time.monotonic())


def json_of(fact: Fact) -> dict[str, object]:
    user, role, doc = fact
    args = [{"type": "User", "id": user}, {"type": "String", "id": role}, {"type": "Doc", "id": doc}]
    return {"predicate": "has_role", "args": args}


# ---- both -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    tally: Counter[str]
    wrong: list[str]


def outcome(ports: Sequence[int], seed: int, questions: int, seconds: float) -> Outcome:
    """Of so many questions, in so many seconds at most. Django is set up for the servers' database."""
    from authz_project.keys import create_key
    from policy.models import Environment

    environment = Environment.objects.create(slug=f"kept{time.time_ns()}", name="kept")
    keys = [(create_key(environment)[1], float("inf"), float("inf")) for _ in range(2)]
    history = History([(State("reader", frozenset()), 0.0, 0.0)], keys)
    tally: Counter[str] = Counter()
    wrong: list[str] = []
    changer = Changer(ports, environment.pk, history, Random(seed), tally)
    changer.post("/policy", {"src": TEXT.format("reader"), "filename": ""})
    clients = [
        Client(ports[number % len(ports)], history, Random(seed * 100 + number), tally, wrong)
        for number in range(CLIENTS)
    ]
    done = threading.Event()
    failures: list[BaseException] = []

    def watched(run: Callable[[threading.Event], None]) -> None:
        try:
            run(done)
        except BaseException as failure:
            failures.append(failure)
            done.set()

    threads = [threading.Thread(target=watched, args=(each.run,)) for each in (changer, *clients)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while tally["asked"] < questions and time.monotonic() < until and not wrong and not done.wait(0.05):
        pass
    done.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return Outcome(tally, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--questions", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        ports = list(servers(options.database, stack))
        found = outcome(ports, options.seed, options.questions, options.minutes * 60)
    for name, count in sorted(found.tally.items()):
        print(f"{count:8} {name}")
    for each in found.wrong[:10]:
        print(each)
    print(f"{len(found.wrong)} wrong of {found.tally['asked']}")
    return 1 if found.wrong else 0


def servers(kind: str, stack: ExitStack) -> Iterator[int]:
    """The ports of two servers of two workers each, over an empty database, which this process knows too."""
    from tests import postgresql  # which need the settings of a database, made below
    from tests.service import start_service

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    url = f"sqlite:///{folder / 'kept.sqlite3'}"
    if kind == "postgres":
        server = postgresql.start()
        if server is None:
            raise SystemExit("no PostgreSQL can be started here")
        stack.callback(server.stop)
        url = server.create("kept")
    os.environ |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings", "DATABASE_URL": url, "SECRET_KEY": SECRET}
    for number in range(2):
        place = folder / str(number)
        place.mkdir()
        service = start_service(place, url, "--workers", "2")
        stack.callback(service.stop)
        yield int(service.origin.rpartition(":")[2])
    with suppress(RuntimeError):
        django.setup()


if __name__ == "__main__":
    sys.exit(main())
