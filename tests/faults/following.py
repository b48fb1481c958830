"""Compare a follower with its main service while both are killed, pruned, restored from backups, and changed.

    python -m tests.faults.following --minutes 10 --seed 1 --database postgres
    python -m tests.faults.following --facts 1000000 --followers 100

Prints what happens, and each difference; exits with 1 if there is any. The second form measures: the copy of so many
facts, how late changes are, and what so many followers cost the main service.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlencode

import orjson
import psutil
import requests

from tests import postgresql
from tests.benchmarks import generate
from tests.service import ROOT, Client, Service, start_service

POLICY = """
actor User {}
resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; relations = { parent: Doc };
  "read" if "reader"; "reader" if "writer"; "reader" if "reader" on "parent"; }
"""
WITHIN = 120  # seconds until a follower must be up to date
ROLES = ("reader", "writer")


def fact(predicate: str, *args: tuple[str, str]) -> dict:
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in args]}


def role(user: str, name: str, doc: str) -> dict:
    return fact("has_role", ("User", user), ("String", name), ("Doc", doc))


class Servers:
    """A main service, and a follower of it."""

    def __init__(self, folder: Path, main_url: str, lot: random.Random, *options: str):
        self.folder, self.main_url, self.lot, self.options = folder, main_url, lot, options
        self.main_port, self.port = postgresql.free_port(), postgresql.free_port()
        self.file = folder / "follower.sqlite3"
        self.variables = {"SECRET_KEY": secrets.token_urlsafe(48)}
        self.main: Service = self.start_main()
        self.key = re.search(r"e_default_\w+", self.main.log.read_text()).group()
        self.follow_key = self.manage("api_keys", "create", "follower", "--scope", "follow").strip()
        self.follower: Service | None = None
        self.differences: list[str] = []

    # ---- processes ---------------------------------------------------------------------------------------------

    def start_main(self) -> Service:
        self.main = start_service(self.folder, self.main_url, "--workers", "1", port=self.main_port, **self.variables)
        return self.main

    def start_follower(self, *options: str) -> Service:
        self.follower = start_service(
            self.folder, f"sqlite:///{self.file}", "--workers", "1", "--follow", self.main.origin, *self.options,
            *options, port=self.port, FOLLOW_KEY=self.follow_key, **self.variables,
        )  # fmt: skip
        return self.follower

    def kill(self, service: Service) -> None:
        service.process.kill()
        service.process.wait()

    def end(self) -> None:
        for each in (self.main, self.follower):
            if each is not None:
                self.kill(each)

    def manage(self, *command: str) -> str:
        """Run a command of the main service."""
        variables = self.variables | {"DATABASE_URL": self.main_url, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        program = [sys.executable, ROOT / "manage.py", *command]
        ended = subprocess.run(program, env=variables, cwd=self.folder, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    # ---- what is asked -----------------------------------------------------------------------------------------

    @property
    def at_main(self) -> Client:
        return self.main.client(self.key)

    @property
    def at_follower(self) -> Client:
        assert self.follower is not None
        return self.follower.client(self.key)

    def stored(self) -> dict:
        """Return the follower's state, from its file."""
        with sqlite3.connect(self.file, timeout=60) as own:
            ((text, offset, horizon),) = own.execute(
                'SELECT follows, "offset", horizon FROM authz_environment'
            ).fetchall()
        return orjson.loads(text) | {"offset": offset, "horizon": horizon}

    def await_stored(self, is_so: Callable[[dict], bool], within: float = WITHIN) -> dict:
        until = time.monotonic() + within
        while time.monotonic() < until:
            try:
                if is_so(found := self.stored()):
                    return found
            except (sqlite3.Error, orjson.JSONDecodeError, ValueError):
                pass
            time.sleep(0.005)
        raise AssertionError(f"the follower is not up to date after {within} s: {self.stored()}, {self.log()}")

    def log(self) -> str:
        return self.follower.log.read_text()[-3000:] if self.follower else ""

    @property
    def newest(self) -> int:
        return int(self.at_main.get("/facts?predicate=none").headers["OsoOffset"])

    def catch_up(self, since: float = 0.0) -> None:
        """Wait until the follower has what the main service has, and has heard so since a time."""
        newest = self.newest
        self.await_stored(
            lambda found: found["is_complete"] and found["offset"] == newest and found["current_at"] >= since
        )

    def compare(self, questions: int = 30) -> None:
        """Ask the follower at random, and the main service as of the same revision. Then compare all changes."""
        for _ in range(questions):
            path, body = self._question()
            told = self.at_follower.post(path, body)
            until = time.monotonic() + WITHIN
            while told.status_code == 503 and time.monotonic() < until:  # until there is a copy again
                time.sleep(0.1)
                told = self.at_follower.post(path, body)
            wanted = self.at_main.post(path, body | {"as_of": int(told.headers.get("OsoOffset", 0))})
            self._same(f"{path} {body}", told, wanted)

    def compare_all(self) -> None:
        self.catch_up()
        horizon = max(self.stored()["horizon"], self.at_main.get("/history?page_size=1").json()["horizon"])
        for path in (f"/changes?{urlencode({'after': horizon, 'limit': 10_000})}", "/facts", "/policy"):
            self._same(path, self.at_follower.get(path), self.at_main.get(path))

    def _same(self, what: str, told: requests.Response, wanted: requests.Response) -> None:
        if (told.status_code, told.json()) != (wanted.status_code, wanted.json()):
            self.differences.append(f"{what}: {told.status_code} {told.text[:500]} is not {wanted.text[:500]}")
            print(self.differences[-1][:1_000], flush=True)

    def _question(self) -> tuple[str, dict]:
        user, doc = self.lot.choice("abcdef"), self.lot.choice("123456")
        who = {"actor_type": "User", "actor_id": user}
        what = {"resource_type": "Doc", "resource_id": doc}
        return self.lot.choice([
            ("/authorize", {**who, "action": "read", **what}),
            ("/list", {**who, "action": "read", "resource_type": "Doc", "page_size": 10_000}),
            ("/actions", {**who, **what}),
        ])  # fmt: skip

    # ---- what changes ------------------------------------------------------------------------------------------

    def publish(self, client: Client | None = None) -> None:
        made = (client or self.at_main).post("/policy", {"src": f"{POLICY}# {self.lot.random()}", "filename": ""})
        assert made.status_code == 200, made.text

    def change(self, client: Client | None = None) -> requests.Response:
        steps = []
        for _ in range(self.lot.randint(1, 3)):
            facts = [self._fact() for _ in range(self.lot.randint(1, 6))]
            steps.append({self.lot.choice(["inserts", "inserts", "deletes"]): facts})
        return (client or self.at_main).post("/batch", steps)

    def _fact(self) -> dict:
        if self.lot.random() < 0.3:
            parent = ("String", "parent")
            return fact("has_relation", ("Doc", self.lot.choice("123456")), parent, ("Doc", self.lot.choice("123456")))
        return role(self.lot.choice("abcdef"), self.lot.choice(ROLES), self.lot.choice("123456"))

    def fill(self, number: int) -> None:
        """Load so many facts that a snapshot has several pages."""
        lines = (f"has_role,User,u{each},String,reader,Doc,d{each % 997}" for each in range(number))
        (self.folder / "facts.csv").write_text("\n".join(lines))
        self.manage("load_facts", str(self.folder / "facts.csv"))


# ---- the long form -------------------------------------------------------------------------------------------------


def change_a_lot(servers: Servers) -> None:
    for _ in range(servers.lot.randint(1, 60)):
        assert servers.change().status_code == 200


def publish(servers: Servers) -> None:
    servers.publish()
    servers.change()


def load(servers: Servers) -> None:
    servers.fill(servers.lot.choice([10, 5_000, 25_000]))


def clear(servers: Servers) -> None:
    servers.at_main.post("/clear_data")


def kill_follower(servers: Servers) -> None:
    change_a_lot(servers)
    time.sleep(servers.lot.random())
    servers.kill(servers.follower)
    change_a_lot(servers)
    servers.start_follower()


def kill_main(servers: Servers) -> None:
    servers.catch_up()
    change_a_lot(servers)
    servers.kill(servers.main)
    assert servers.at_follower.get("/facts").status_code == 200, "a follower answers without its main service"
    assert servers.change(servers.at_follower).status_code == 503
    servers.start_main()


def prune(servers: Servers) -> None:
    is_stopped = servers.lot.random() < 0.5
    if is_stopped:
        servers.kill(servers.follower)
    change_a_lot(servers)
    time.sleep(0.05)
    servers.manage("prune", "--history-days", "0.0000001")
    if is_stopped:
        servers.start_follower()


def forget_copy(servers: Servers) -> None:
    """Begin with a new snapshot, which is interrupted."""
    servers.kill(servers.follower)
    for path in servers.folder.glob("follower.sqlite3*"):
        path.unlink()
    servers.start_follower()
    time.sleep(servers.lot.random())
    servers.kill(servers.follower)
    servers.change()
    servers.start_follower()


def restore(servers: Servers) -> None:
    """Restore a backup of the main service, which is then changed differently."""
    if not servers.main_url.startswith("sqlite"):
        return
    file = Path(servers.main_url.removeprefix("sqlite:///"))
    copy = file.with_name("backup.sqlite3")
    copy.unlink(missing_ok=True)
    servers.manage("backup", str(copy))
    change_a_lot(servers)
    if servers.lot.random() < 0.7:
        servers.catch_up()
    servers.kill(servers.main)
    for end in ("", "-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    shutil.copy(copy, file)
    servers.start_main()
    change_a_lot(servers)
    servers.catch_up(time.time())  # until then, the follower answers as before: it has not heard of it


HAPPENS = [
    change_a_lot, change_a_lot, publish, load, clear, kill_follower, kill_follower, kill_main, prune, forget_copy,
    restore,
]  # fmt: skip


# ---- figures -------------------------------------------------------------------------------------------------------

MEASURED, TURNS = 15.0, 2  # seconds; less than the timeout of idle connections
RATE, WRITERS = 200, 4  # changes a second, by so many at once


def measure(servers: Servers, facts: int, followers: int) -> None:
    lines = servers.folder / "facts.jsonl"
    with lines.open("wb") as file:
        file.writelines(map(generate.line_of, generate.facts_of(generate.Size(facts))))
    servers.at_main.post("/policy", {"src": generate.POLICY, "filename": ""}).raise_for_status()
    servers.manage("load_facts", str(lines))
    before, started = processor(servers.main), time.monotonic()
    servers.start_follower()
    servers.await_stored(lambda found: found["is_complete"], within=1_000)
    took = time.monotonic() - started
    mine, its = processor(servers.follower), processor(servers.main) - before
    print(f"copy of {facts:,} facts: {took:.1f} s; processor time {mine:.1f} s, main service {its:.1f} s", flush=True)
    with multiprocessing.Pool(1, _follow_as_many, (servers.main.origin, servers.key, followers)) as others:
        (process,) = multiprocessing.active_children()
        for _ in range(TURNS):
            time.sleep(10)  # they catch up
            print(f"{followers} more followers: {_under_changes(servers)}", flush=True)
            os.kill(process.pid, signal.SIGSTOP)
            print(f"one follower: {_under_changes(servers)}", flush=True)
            os.kill(process.pid, signal.SIGCONT)
        before = processor(servers.main)
        time.sleep(MEASURED)
        print(f"without changes: {(processor(servers.main) - before) / MEASURED:.1%} of a core")
        others.terminate()


def processor(service: Service) -> float:
    parent = psutil.Process(service.process.pid)
    return sum(sum(each.cpu_times()[:2]) for each in (parent, *parent.children(recursive=True)))


def _under_changes(servers: Servers) -> str:
    """Make changes for a while; return how late they are at the follower, and what the main service takes."""
    before, started = processor(servers.main), time.monotonic()
    made: list[tuple[int, float]] = []  # revisions, and when they were acknowledged
    arrived: list[tuple[int, float]] = []  # the same of the follower
    writers = [threading.Thread(target=_write, args=(servers, started, each, made)) for each in range(WRITERS)]
    for each in writers:
        each.start()
    while len(made) < MEASURED * RATE or arrived[-1][0] < max(made)[0]:
        assert time.monotonic() < started + MEASURED + WITHIN, "changes do not arrive"
        time.sleep(0.01)
        arrived.append((servers.stored()["offset"], time.monotonic()))
    took, used = time.monotonic() - started, processor(servers.main) - before
    late = sorted(next(at for offset, at in arrived if offset >= revision) - since for revision, since in made)
    p50, p99 = (late[int(len(late) * share)] for share in (0.5, 0.99))
    rate = len(made) / (max(at for _, at in made) - started)
    return f"{used / took:.1%} of a core at {rate:.0f} changes a second; late by {p50:.2f} s (p50), {p99:.2f} s (p99)"


def _write(servers: Servers, started: float, first: int, made: list[tuple[int, float]]) -> None:
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {servers.key}"
        for number in range(first, int(MEASURED * RATE), WRITERS):
            time.sleep(max(0.0, started + number / RATE - time.monotonic()))
            body = [{"inserts": [role(secrets.token_hex(8), "viewer", "doc-1")]}]
            answer = session.post(f"{servers.main.origin}/api/batch", json=body)
            made.append((int(answer.headers["OsoOffset"]), time.monotonic()))


def _follow_as_many(origin: str, key: str, followers: int) -> None:
    """Ask as this many followers do, without storing anything."""
    for _ in range(followers):
        threading.Thread(target=_follow, args=(origin, key), daemon=True).start()


def _follow(origin: str, key: str) -> None:
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {key}"
        after = int(session.get(f"{origin}/api/facts?predicate=none").headers["OsoOffset"])
        keys = ""
        while True:
            started = time.monotonic()
            told = session.get(f"{origin}/api/follow?after={after}&keys={keys}&wait=5")
            if told.status_code == 200:
                after = told.json()["next"]
                sent = told.content[told.content.index(b'"keys":') + 7 : told.content.index(b',"changes"')]
                keys = keys if sent == b"null" else sha256(sent).hexdigest()
            time.sleep(max(0.0, 0.75 - (time.monotonic() - started)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--facts", type=int, help="measure, with so many facts")
    parser.add_argument("--followers", type=int, default=100)
    options = parser.parse_args()
    lot, until = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    server = postgresql.start() if options.database == "postgres" else None
    with tempfile.TemporaryDirectory() as folder:
        url = server.create("main") if server else f"sqlite:///{folder}/main.sqlite3"
        servers = Servers(Path(folder), url, lot)
        times = 0
        try:
            servers.publish()
            if options.facts:
                measure(servers, options.facts, options.followers)
                return 0
            servers.start_follower()
            while time.monotonic() < until:
                event = lot.choice(HAPPENS)
                print(f"{time.strftime('%H:%M:%S')} {event.__name__}", flush=True)
                event(servers)
                servers.compare()
                servers.compare_all()
                times += 1
        finally:
            servers.end()
            if server:
                server.stop()
    print(f"{times} events, {len(servers.differences)} differences")
    return 1 if servers.differences else 0


if __name__ == "__main__":
    sys.exit(main())
