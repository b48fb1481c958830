"""What is measured once and not in a row: changes, chains of folders, starts, memory.

`python -m tests.benchmarks.service --moments` prints the targets beside it. Answers are checked here too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median

import orjson

from tests.benchmarks.clients import Clients, Request, request
from tests.benchmarks.generate import BOSS, POLICY
from tests.benchmarks.kinds import asked, kinds, of
from tests.benchmarks.served import Served

Verdict = tuple[str, str, bool]  # a target, what was measured, and whether it is met
BATCH = 1000  # facts
BATCHES = 10
LENGTHS = (10, 100, 1000)  # of chains


def moments(server: Served) -> Iterator[Verdict]:
    for measure in (loading, batches, chains, policy_changes, starts, memory):
        yield from measure(server)


def allows(said: object) -> bool:
    return said == {"allowed": True}


def told(said: object) -> bool:
    return isinstance(said, dict) and "message" in said


def boss_reads(key: str, repo: str = "repo-0") -> Request:
    return request(key, "/authorize", asked(BOSS, "read") | {"resource_type": "Repo", "resource_id": repo}, allows)


def one_by_one(clients: Clients, requests: list[Request]) -> list[float]:
    """The seconds of each."""
    return [time for each in requests for time in clients.ask([each], 0).times]


# ---- changes ---------------------------------------------------------------------------------------------------


def loading(server: Served) -> Iterator[Verdict]:
    stored = server.database.prepared("SELECT count(*) FROM authz_fact")({})[0][0]
    rate, rate_of_processor = (stored / each for each in server.loading)
    said = f"{rate:,.0f} facts/s of {stored:,} ({rate_of_processor:,.0f} in a second of its processor)"
    yield "load_facts >= 100,000 facts/s, with its start", said, rate >= 100_000


def batches(server: Served) -> Iterator[Verdict]:
    requests = [request(server.key, "/batch", [{"inserts": new_facts(turn)}], told) for turn in range(BATCHES)]
    with closing(Clients(server.port, 1)) as clients:
        times = one_by_one(clients, requests)
    number = server.database.number("has_role_User_Repo")
    rows = f"SELECT {number}, a0, a1, a2, '', '' FROM ({ROLES[server.database.vendor]}) x"
    insert = f"INSERT INTO authz_fact (sig, a0, a1, a2, a3, a4) {rows}"
    insert = server.database.prepared(f"{insert} WHERE true ON CONFLICT DO NOTHING")
    floor = []
    for turn in range(BATCHES, 2 * BATCHES):
        started = time.perf_counter()
        insert({"facts": orjson.dumps([[arg["id"] for arg in each["args"]] for each in new_facts(turn)]).decode()})
        floor.append(time.perf_counter() - started)
    rate = BATCH / median(times)
    said = f"{rate:,.0f} facts/s (one INSERT by hand: {BATCH / median(floor):,.0f})"
    yield "/batch of 1,000 facts >= 30,000 facts/s", said, rate >= 30_000


ROLES = {
    "sqlite": "SELECT value ->> 0 AS a0, value ->> 1 AS a1, value ->> 2 AS a2 FROM json_each(:facts)",
    "postgresql": "SELECT value ->> 0 AS a0, value ->> 1 AS a1, value ->> 2 AS a2"
    " FROM jsonb_array_elements(CAST(:facts AS jsonb))",
}


def new_facts(turn: int) -> list[dict]:
    """In no order."""
    spread = [(turn * BATCH + index) * 7919 % 100_003 for index in range(BATCH)]
    return [role(f"guest-{number}", "reader", "Repo", f"repo-{number % 1000}") for number in spread]


def role(user: str, name: str, kind: str, resource: str) -> dict:
    return {"predicate": "has_role", "args": [of("User", user), of("String", name), of(kind, resource)]}


# ---- chains of folders -----------------------------------------------------------------------------------------


def chains(server: Served) -> Iterator[Verdict]:
    """A document at the bottom of each chain, and a viewer of the folder at the top."""
    facts = [fact for length in LENGTHS for fact in chain(length)]
    times: dict[int, list[float]] = {length: [] for length in LENGTHS}
    with closing(Clients(server.port, 1)) as clients:
        clients.ask([request(server.key, "/batch", [{"inserts": facts}], told)], 0)
        questions = {
            length: request(
                server.key,
                "/authorize",
                asked("climber", "read") | {"resource_type": "Doc", "resource_id": f"deep-{length}"},
                allows,
            )
            for length in LENGTHS
        }
        for _ in range(10):
            for length, question in questions.items():
                times[length] += clients.ask([question], 0.1).times
    short, middle, long = (median(times[length]) * 1e6 for length in LENGTHS)
    step, most = (long - middle) / 900, 30 if server.database.vendor == "postgresql" else 10
    said = f"{step:.1f} us; p50 {short:,.0f}, {middle:,.0f}, {long:,.0f} us"
    yield f"chains of 10, 100, 1,000 folders: a step <= {most} us", said, step <= most
    linear = step <= 1.5 * max((middle - short) / 90, 1)
    yield "chains: linear", f"{step:.1f} us a step after 100, {(middle - short) / 90:.1f} before", linear


def chain(length: int) -> Iterator[dict]:
    def relation(kind: str, below: str, name: str, above: int) -> dict:
        args = [of(kind, below), of("String", name), of("Folder", f"deep-{length}-{above}")]
        return {"predicate": "has_relation", "args": args}

    yield relation("Doc", f"deep-{length}", "folder", 0)
    for place in range(length - 1):
        yield relation("Folder", f"deep-{length}-{place}", "parent", place + 1)
    yield role("climber", "viewer", "Folder", f"deep-{length}-{length - 1}")


# ---- the policy, and starts ------------------------------------------------------------------------------------


def policy_changes(server: Served) -> Iterator[Verdict]:
    """The longest of the questions that follow a change, by clients of all processes; and those of others meanwhile."""
    other = server.new_key("other")
    first, others = [], []
    with closing(Clients(server.port, 8)) as clients, closing(Clients(server.port, 1)) as bystander:
        upload(bystander, other, POLICY)
        mine = role(BOSS, "reader", "Repo", "repo-0")
        bystander.ask([request(other, "/batch", [{"inserts": [mine]}], told)], 0)
        clients.ask([boss_reads(server.key)], 0.5)
        before = bystander.ask([boss_reads(other)], 1).times
        for turn in range(5):
            stop = threading.Event()
            asking = threading.Thread(target=ask_until, args=(bystander, boss_reads(other), stop, others))
            asking.start()
            upload(clients, server.key, f"{POLICY}\n# {turn}\n")
            first.append(max(clients.ask([boss_reads(server.key)], 0.2).times))
            stop.set()
            asking.join()
    worst = max(first) * 1000
    yield "the first question after a policy change <= 100 ms", f"{worst:,.0f} ms, worst of 5 changes", worst <= 100
    shares = [sorted(each)[int(len(each) * 0.99)] * 1000 for each in (before, others)]
    said = f"p99 {shares[1]:.1f} ms, {shares[0]:.1f} before"
    yield "other environments meanwhile: p99 <= 100 ms", said, shares[1] <= 100


def upload(clients: Clients, key: str, text: str) -> None:
    one = next(iter(clients.connections.values()))
    one.send(request(key, "/policy", {"src": text, "filename": "main.polar"}, told))
    while one.receive() is None:
        pass


def ask_until(clients: Clients, question: Request, stop: threading.Event, times: list[float]) -> None:
    while not stop.is_set():
        times += clients.ask([question], 0).times


def starts(server: Served) -> Iterator[Verdict]:
    seconds = server.restart()
    with closing(Clients(server.port, 1)) as clients:
        seconds += clients.ask([boss_reads(server.key)], 0).seconds
    yield "from start to the first answer <= 2 s", f"{seconds:.1f} s", seconds <= 2


def memory(server: Served) -> Iterator[Verdict]:
    """After every kind of question by eight clients, which keep all threads of the processes busy."""
    with closing(Clients(server.port, 8)) as clients:
        for kind in kinds(server):
            clients.ask(kind.requests, 0.5)
    sizes = [each.memory_full_info() for each in server.workers]
    own = max(each.rss - each.shared for each in sizes) / 1e6
    resident = max(each.rss for each in sizes) / 1e6
    said = f"{resident:,.0f} MB, {own:,.0f} of them its own"
    yield "resident memory of a worker <= 120 MB", said, resident <= 120
