"""Changes over HTTP, and loads, of this checkout and of another one in turns.

    python -m tests.benchmarks.writes [--against FOLDER] [--rounds 5] [--seconds 2] [--load 300000]

prints, for durable PostgreSQL and SQLite, single writes a second with one client and with eight, their p50 and p99,
and the milliseconds of a processor that each takes of the server and of PostgreSQL (SQLite is part of the server);
then facts a second of `load_facts`. Each side has a server and a database of its own, over 100,000 facts. Every
answer is looked at.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import orjson
import psutil

from tests import postgresql
from tests.benchmarks.clients import Asked, Clients, Request, request
from tests.service import ROOT, START_WITHIN

VARIABLES = {"SECRET_KEY": "4 benchmarks: 0123456789 abcdefgh", "DJANGO_SETTINGS_MODULE": "authz_project.settings"}
BEFORE = 100_000  # facts
CLIENTS = (1, 8)
POLICY = """
actor User {}
resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read"];
  "read" if "reader";
  "reader" if "writer";
}
"""


@dataclass
class Writes(Sequence[Request]):
    """Each is a fact that nobody has written."""

    key: str
    name: str
    made: int = 0

    def __len__(self) -> int:
        return 1 << 60

    def __getitem__(self, index):
        self.made += 1
        fact = made_up_facts(1)[0]
        fact["args"][2]["id"] = f"{self.name}-{self.made}"
        return request(self.key, "/facts", fact, lambda said: said == fact)


@dataclass
class Cell:
    """What many rounds found of a side and a number of clients."""

    asked: list[Asked] = field(default_factory=list)
    used: list[tuple[float, float]] = field(default_factory=list)  # seconds of server and of PostgreSQL, each round

    def line(self) -> str:
        times = sorted(time for each in self.asked for time in each.times)
        rate = median([len(each.times) / each.seconds for each in self.asked])
        server, database = (sum(part) / len(times) * 1000 for part in zip(*self.used))
        p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
        return f"{rate:>8,.0f}/s {p50:>8.2f} {p99:>8.2f} ms {server:>8.2f} {database:>8.2f} ms"


class Side:
    """A checkout's server over a database of its own."""

    def __init__(self, name: str, root: Path, kind: str, stack: ExitStack, options: argparse.Namespace):
        self.name, self.root = name, root
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.url, self.postmaster = f"sqlite:///{self.folder / 'facts.sqlite3'}", None
        if kind == "PostgreSQL":
            server = postgresql.start(durable=True)
            if server is None:
                raise SystemExit("no PostgreSQL can be started here")
            stack.callback(server.stop)
            self.url, self.postmaster = server.create("benchmark"), psutil.Process(server.process.pid)
        self.port = postgresql.free_port()
        arguments = [
            "serve",
            "--port",
            str(self.port),
            "--workers",
            str(options.workers),
            "--threads",
            str(options.threads),
        ]
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command(*arguments), stdout=log, stderr=log, **self.place())
        stack.callback(self.stop)
        self.key = self.awaited_key()
        (self.folder / "policy.polar").write_text(POLICY)
        self.manage("load_policy", str(self.folder / "policy.polar"))
        self.writes = Writes(self.key, f"new-{name}")
        self.cells = {count: Cell() for count in CLIENTS}
        self.loads: list[float] = []

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "manage.py"), *arguments]

    def place(self) -> dict:
        variables = os.environ | VARIABLES | {"DATABASE_URL": self.url, "PYTHONPATH": str(self.root)}
        return {"cwd": self.folder, "env": variables}

    def manage(self, *arguments: str) -> None:
        subprocess.run(self.command(*arguments), check=True, stdout=subprocess.DEVNULL, **self.place())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def awaited_key(self) -> str:
        """Once the server takes requests."""
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                Clients(self.port, 1).close()
                return re.search(r"e_default_\w+", self.log.read_text())[0]
            except OSError:
                time.sleep(0.1)
        raise SystemExit(self.log.read_text())

    def load(self, lines: Path, count: int) -> None:
        started = time.perf_counter()
        self.manage("load_facts", str(lines))
        self.loads.append(count / (time.perf_counter() - started))

    def write(self, clients: int, seconds: float, kept: bool = True) -> None:
        before = self.used()
        with closing(Clients(self.port, clients)) as senders:
            asked = senders.ask(self.writes, seconds)
        if kept:
            self.cells[clients].asked.append(asked)
            self.cells[clients].used.append(tuple(now - then for now, then in zip(self.used(), before)))

    def used(self) -> tuple[float, float]:
        return seconds_of(psutil.Process(self.process.pid)), seconds_of(self.postmaster) if self.postmaster else 0.0


def seconds_of(parent: psutil.Process) -> float:
    """Of a processor, by the process and its children."""
    return sum(sum(each.cpu_times()[:2]) for each in (parent, *parent.children(recursive=True)))


def main() -> None:
    options = parsed()
    for kind in options.databases.split(","):
        with ExitStack() as stack:
            checkouts = {"this": ROOT} | ({"other": options.against.absolute()} if options.against else {})
            sides = [Side(name, root, kind, stack, options) for name, root in checkouts.items()]
            fill(sides)
            for clients in CLIENTS:
                write(sides, clients, options)
            if options.load:
                load(sides, options)
            show(kind, sides)


def fill(sides: list[Side]) -> None:
    for side in sides:
        lines = lines_of(side.folder, BEFORE, 0)
        side.manage("load_facts", str(lines))


def write(sides: list[Side], clients: int, options: argparse.Namespace) -> None:
    for side in sides:
        side.write(clients, 1.0, kept=False)
    for turn in range(options.rounds):
        for side in sides[:: 1 if turn % 2 else -1]:
            side.write(clients, options.seconds)


def load(sides: list[Side], options: argparse.Namespace) -> None:
    """Each time other facts, into what is there; the rate is with the command's start."""
    for turn in range(options.rounds):
        for side in sides[:: 1 if turn % 2 else -1]:
            side.load(lines_of(side.folder, options.load, turn + 1), options.load)


def lines_of(folder: Path, count: int, turn: int) -> Path:
    """A file of facts that those of other turns are not among."""
    path = folder / "facts.jsonl"
    text = b"\n".join(map(orjson.dumps, made_up_facts(count)))
    path.write_bytes(text.replace(b'"repo-', b'"repo%d-' % turn))
    return path


def show(kind: str, sides: list[Side]) -> None:
    print(f"{kind:<12}{'':<8}{'rate':>10} {'p50':>8} {'p99':>8}    {'server':>8} {'database':>8} for each", flush=True)
    for clients in CLIENTS:
        for side in sides:
            print(f"{clients} clients   {side.name:<8}{side.cells[clients].line()}", flush=True)
    for side in sides:
        if side.loads:
            print(
                f"load_facts  {side.name:<8}{median(side.loads):>8,.0f}/s, at best {max(side.loads):,.0f}/s", flush=True
            )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="the folder of another checkout")
    parser.add_argument("--databases", default="PostgreSQL,SQLite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--load", type=int, default=300_000, help="facts of each load; 0 for none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--threads", type=int, default=4)
    return parser.parse_args()


def made_up_facts(count: int) -> list[dict]:
    """Roles of users on repositories, in no order: 24 bytes of ids each, as most are."""

    def fact(n: int) -> dict:
        mixed = n * 2654435761 % 2**32
        user, repo = {"type": "User", "id": f"user-{mixed % 100_003}"}, {"type": "Repo", "id": f"repo-{mixed:08x}"}
        return {"predicate": "has_role", "args": [user, {"type": "String", "id": ("reader", "writer")[n % 2]}, repo]}

    return [fact(n) for n in range(count)]


if __name__ == "__main__":
    main()
