"""Move an environment between spaces under load, kill some of the moves, and check what the service answers.

    python -m tests.faults.moving --times 100 --kills 20 [--servers 2] [--database URL]

Two servers answer. Clients change facts, publish policies and ask; what they were answered is checked by
`tests.faults.history_checker`. `--servers 2` has a space on a PostgreSQL of its own; `--database` is an empty database
of another server, such as Citus. It prints for how long requests waited.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

import psycopg

from tests import postgresql, standalone
from tests.faults import history_checker
from tests.faults.consistency import Place, marks, recorded
from tests.faults.kills import _kill
from tests.faults.marks import Mark, none_of, printed
from tests.service import ROOT

SPACES = ("one", "two")
ENVIRONMENT = "acme"
FINISHED_WITHIN = 60.0  # seconds for `serve` to end a move that was interrupted


@dataclass
class MovingPlace(Place):
    """Servers over an environment that moves from space to space."""

    longest: list[float] = field(default_factory=list)  # milliseconds that requests waited, by move
    failed: list[str] = field(default_factory=list)
    spaces: tuple[str, ...] = ("home", *SPACES)

    def command(self, *words: str) -> subprocess.Popen:
        variables = os.environ | {"DATABASE_URL": self.url, "SECRET_KEY": "only for these tests " * 3} | self.variables
        return subprocess.Popen(
            [sys.executable, ROOT / "manage.py", *words], cwd=self.folder, env=variables, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        process = self.command(*words)
        said, _ = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)}: {said}")
        return said

    def asked(self, sql: str) -> list[tuple]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql).fetchall()

    def place_of(self) -> tuple[str, str | None]:
        """Return the space of the environment, and the target of a move that is not over."""
        rows = self.asked(f"SELECT space, target FROM authz_place WHERE slug = '{ENVIRONMENT}'")
        space, target = rows[0] if rows else ("", None)
        return space or "home", target


@contextmanager
def place(servers: int = 1, database: str = "") -> Iterator[MovingPlace]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = [] if database and servers < 2 else [_server(stack) for _ in range(servers - bool(database))]
        url = database or started[0].create("spaces")
        variables = {"DATABASE_URLS": f"far={started[-1].create('far')}"} if servers > 1 else {}
        found = MovingPlace(folder, None, url, None, variables=variables)
        found.take_new_keys()
        found.run("migrate")
        found.run("spaces", "create", "one")
        found.run("spaces", "create", "two", *(["--on", "far"] if servers > 1 else []))
        found.run("spaces", "add", ENVIRONMENT, "one")
        found.key = found.run("api_keys", "create", "--environment", ENVIRONMENT).split()[-1]
        for number in range(2):
            found.servers.append(found.start(number))
        stack.callback(lambda: [_kill(each) for each in found.servers if each.process.poll() is None])
        yield found


def _server(stack: ExitStack) -> postgresql.Server:
    server = postgresql.start()
    assert server is not None, "PostgreSQL can be started"
    stack.callback(server.stop)
    return server


# ---- faults ----------------------------------------------------------------------------------------------------------


def move(where: MovingPlace, number: int) -> None:
    target = random.choice([each for each in where.spaces if each != where.place_of()[0]])
    process = where.command("spaces", "move", ENVIRONMENT, target)
    said, _ = process.communicate(timeout=120)
    if process.returncode:
        where.failed.append(said)
    else:
        where.longest.append(float(re.search(r"waited for up to ([\d,]+) ms", said)[1].replace(",", "")))


def move_and_kill(where: MovingPlace, number: int) -> None:
    """Kill the process somewhere in the middle; `serve` ends the move or undoes it."""
    target = random.choice([each for each in where.spaces if each != where.place_of()[0]])
    process = where.command("spaces", "move", ENVIRONMENT, target)
    until = time.monotonic() + 60
    while where.place_of()[1] is None and time.monotonic() < until and process.poll() is None:
        time.sleep(0.005)
    time.sleep(random.random() * 0.4)
    process.kill()
    process.communicate()
    until = time.monotonic() + FINISHED_WITHIN
    while where.place_of()[1] is not None:
        if time.monotonic() > until:
            where.failed.append(f"the move to {target} is not over after {FINISHED_WITHIN:g} seconds")
            return
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--servers", type=int, default=1, choices=(1, 2))
    parser.add_argument("--database", default="")
    parser.add_argument("--keep", type=Path, help="write the history to this file")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    standalone.set_up()
    random.seed(options.seed)
    faults = [move_and_kill] * options.kills + [move] * (options.times - options.kills)
    random.shuffle(faults)
    with place(options.servers, options.database) as where:
        found = recorded(where, faults, options.seed, calm=0.3)
        here = urlparse(where.url).port
        waited = sorted(where.longest)
    if options.keep:
        history_checker.write(options.keep, found.history)
    print(*found.problems[:20], *found.refused[:5], *where.failed[:5], sep="\n")
    more = [
        none_of("moves that failed", len(where.failed), options.times),
        Mark(f"ms that requests waited, p50 · most (port {here})", "any",
             f"{statistics.median(waited):.0f} · {waited[-1]:.0f}", True),
    ]  # fmt: skip
    return printed([*marks(found), *more], f"\nseed {options.seed}: {options.times} moves, {options.kills} killed")


if __name__ == "__main__":
    sys.exit(main())
