"""The real server over a database full of made-up facts, and a connection of one's own to the same database."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg

from tests import pgbouncer, postgresql
from tests.benchmarks.database import Database, opened
from tests.benchmarks.generate import POLICY, Fact, Size, facts_of, line_of
from tests.faults.limits import workers_of
from tests.service import ROOT, Service, start_service

VARIABLES = {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings", "SECRET_KEY": "4 benchmarks: 0123456789 abcdefgh"}


@dataclass(frozen=True)
class How:
    """Which checkout is served, by which interpreter, and with which options of `serve`.

    `pooled`: through a PgBouncer with so many connections, which prepares statements if there is one that can.
    """

    root: Path = ROOT
    python: str = sys.executable
    options: tuple[str, ...] = ()
    pooled: int = 0


@dataclass
class Served:
    """`loading` is how many seconds `load_facts` took, and how many of a processor."""

    folder: Path
    url: str
    size: Size
    service: Service
    key: str
    database: Database
    loading: tuple[float, float]
    postgresql: psutil.Process | None = None
    pooler: psutil.Process | None = None
    how: How = field(default_factory=How)

    @property
    def port(self) -> int:
        return int(self.service.origin.rpartition(":")[2])

    def restart(self) -> float:
        """Stop it, and start it again on another port; the seconds from then until it takes requests."""
        self.service.stop()
        started = time.perf_counter()
        self.service = started_service(self.folder, self.url, self.how)
        return time.perf_counter() - started

    def new_key(self, environment: str) -> str:
        """Of an environment that is made for it."""
        arguments = ("api_keys", "create", "--create-environment", "--environment", environment)
        return manage(self.folder, self.url, *arguments, how=self.how)

    @property
    def workers(self) -> list[psutil.Process]:
        """Those of its processes that answer."""
        return workers_of(self.service)


@contextmanager
def served(
    kind: str, size: Size, facts: Callable[[Size], Iterator[Fact]] = facts_of, how: How = How()
) -> Iterator[Served]:
    """A server over so many facts on "sqlite" or "postgres", both as durable as in production."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, process, pool = f"sqlite:///{folder / 'facts.sqlite3'}", None, None
        if kind == "postgres":
            server = postgresql.start(durable=True, connections=1000)
            if server is None:
                raise SystemExit("no PostgreSQL can be started here")
            stack.callback(server.stop)
            url, process = server.create("benchmark"), psutil.Process(server.process.pid)
            if how.pooled:
                pool = stack.enter_context(pgbouncer.pooler(server, how.pooled, pgbouncer.has_newer()))
        os.environ |= VARIABLES | {"DATABASE_URL": url}  # for what of the product is used in this process
        if pool is not None:
            with suppress(RuntimeError):  # the first `serve` asks to run this command
                started_service(folder, pool.url("benchmark"), how)
            pool.console("RECONNECT")
        service = started_service(folder, pool.url("benchmark") if pool else url, how)
        key = re.search(r"e_default_\w+", service.log.read_text())[0]
        loading = filled(folder, url, size, facts, how)
        database = stack.enter_context(opened(url))
        between = psutil.Process(pool.process.pid) if pool else None
        result = Served(folder, url, size, service, key, database, loading, process, between, how)
        stack.callback(lambda: result.service.stop())
        yield result


def started_service(folder: Path, url: str, how: How = How()) -> Service:
    return start_service(folder, url, *how.options, root=how.root, python=how.python, **VARIABLES)


def manage(folder: Path, url: str, *arguments: str, how: How = How()) -> str:
    """What the command prints."""
    variables = os.environ | VARIABLES | {"DATABASE_URL": url, "PYTHONPATH": str(how.root)}
    command = [how.python, how.root / "manage.py", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, check=True, stdout=-1, text=True).stdout.strip()


def filled(
    folder: Path, url: str, size: Size, facts: Callable[[Size], Iterator[Fact]], how: How
) -> tuple[float, float]:
    policy, lines = folder / "policy.polar", folder / "facts.jsonl"
    policy.write_text(POLICY)
    with lines.open("wb") as file:
        file.writelines(line_of(each) for each in facts(size))
    manage(folder, url, "load_policy", str(policy), how=how)
    started, used = time.perf_counter(), used_by_children()
    manage(folder, url, "load_facts", str(lines), how=how)
    taken = time.perf_counter() - started, used_by_children() - used
    lines.unlink()
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE authz_fact")
            connection.execute("CHECKPOINT")  # or the load would be written out while others are measured
    return taken


def used_by_children() -> float:
    """Seconds of a processor, by those that have ended: unlike time, it does not count what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
