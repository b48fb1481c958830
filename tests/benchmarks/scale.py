"""What many facts take: disk, depth of indexes, and a question's time, as they grow from a million to a hundred.

    python -m tests.benchmarks.scale --database postgres [--sizes 1000000 100000000] [--folder PLACE]

The facts are those of companies side by side, 10,000 each: what one service holds for many customers. The first
company is loaded by `load_facts`, the others are made from it by SQL, with ids of their own. Questions are about
companies drawn by lot. Their time is that of a processor, of this process and of PostgreSQL's, and beside it what a
caller waits.

    python -m tests.benchmarks.scale --model
    python -m tests.benchmarks.scale --spread [--tenants 10000] [--skew 0.8] [--seed 1]

The first computes from the measured constants how many servers facts and queries need. The second simulates tenants of
skewed sizes over 3 to 300 servers: how full the fullest becomes, and how often a tenant moves.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from math import ceil, inf
from pathlib import Path
from random import Random
from statistics import median

import psutil
from django.core.management import call_command

from tests import standalone
from tests.benchmarks.generate import POLICY, Size, facts_of, line_of

COMPANY = 10_000  # facts
SIZES = [1_000_000, 10_000_000, 30_000_000, 100_000_000]
AT_ONCE = 1_000_000  # facts of one statement
ASKED = 2_000
NAMES = ("a0", "a1", "a2", "a3", "a4")


def main() -> int:
    options = parsed()
    if options.model or options.spread:
        print("\n".join(model() if options.model else spread(options.tenants, options.skew, options.seed)))
        return 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, database(options.database, folder) as url:
        standalone.set_up(url)
        Scale(options.database).run(options.sizes)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", help="where there is room: 60 GB for 100 million facts")
    parser.add_argument("--model", action="store_true", help="how many servers are needed")
    parser.add_argument("--spread", action="store_true", help="simulate tenants over servers")
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--skew", type=float, default=0.8, help="the exponent of Zipf's law")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


@contextlib.contextmanager
def database(kind: str, folder: str) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/scale.sqlite3"
        return
    tempfile.tempdir = folder  # where the server puts its own
    from tests import postgresql

    Path(folder).chmod(0o755)
    server = postgresql.start()
    if server is None:
        raise SystemExit("no PostgreSQL can be started here")
    try:
        yield server.create("scale")
    finally:
        server.stop()


class Scale:
    def __init__(self, kind: str):
        from django.db import connection

        call_command("migrate", verbosity=0)
        self.kind, self.connection, self.companies = kind, connection, 1
        self.backend = psutil.Process(self.rows("SELECT pg_backend_pid()")[0][0]) if kind == "postgres" else None

    def run(self, sizes: list[int]) -> None:
        self.first_company()
        self.prepare_copies()
        for size in sizes:
            began = time.monotonic()
            self.grow(size // COMPANY)
            seconds = time.monotonic() - began
            self.settle()
            print(f"\n{self.companies * COMPANY:,} facts, {self.companies:,} companies ({seconds:,.0f} s to make)")
            for line in (*self.disk(), *self.times()):
                print(f"  {line}", flush=True)

    # ---- facts ---------------------------------------------------------------------------------------------------

    def first_company(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            policy, lines = Path(folder) / "policy.polar", Path(folder) / "facts.jsonl"
            policy.write_text(POLICY)
            lines.write_bytes(b"".join(line_of(each) for each in facts_of(Size(COMPANY))))
            with contextlib.redirect_stdout(io.StringIO()):
                call_command("load_policy", str(policy))
                call_command("load_facts", str(lines))

    def prepare_copies(self) -> None:
        """Keep the first company aside, with a mark at each id that is to differ: strings stay as they are."""
        places = range(len(NAMES))
        shown = ", ".join(f"CASE WHEN {self.not_string(place)} THEN 1 ELSE 0 END AS e{place}" for place in places)
        self.rows(
            f"CREATE TABLE template AS SELECT f.sig, f.since, {', '.join(f'f.{each}' for each in NAMES)}, {shown}"
            " FROM authz_fact f JOIN authz_signature s ON s.id = f.sig"
        )

    def not_string(self, place: int) -> str:
        types = "s.types::json" if self.kind == "postgres" else "s.types"
        return f"COALESCE({types} ->> {place}, 'String') <> 'String'"

    def grow(self, companies: int) -> None:
        ids = ", ".join(f"CASE e{each[1]} WHEN 1 THEN 'c' || n.i || '-' || {each} ELSE {each} END" for each in NAMES)
        while self.companies < companies:
            upto = min(companies, self.companies + AT_ONCE // COMPANY)
            numbers = f"SELECT {self.companies} UNION ALL SELECT i + 1 FROM n WHERE i < {upto - 1}"
            self.rows(
                f"INSERT INTO authz_fact (sig, {', '.join(NAMES)}, since) WITH RECURSIVE n(i) AS ({numbers})"
                f" SELECT sig, {ids}, since FROM n, template"
            )
            self.companies = upto

    def settle(self) -> None:
        if self.kind == "postgres":  # on SQLite, statements choose their indexes without statistics
            self.rows("VACUUM ANALYZE authz_fact")

    # ---- what it takes -------------------------------------------------------------------------------------------

    def disk(self) -> Iterator[str]:
        count = self.companies * COMPANY
        if self.kind == "sqlite":
            size = self.rows("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")[0][0]
            yield f"disk {size / 1e9:.2f} GB, {size / count:.0f} bytes a fact"
            return
        sizes = self.rows(
            "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c WHERE c.oid = 'authz_fact'::regclass"
            " OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'authz_fact'::regclass) ORDER BY 2 DESC"
        )
        total = sum(size for _, size in sizes)
        yield f"disk {total / 1e9:.2f} GB, {total / count:.0f} bytes a fact"
        for name, size in sizes:
            yield f"  {name:16} {size / 1e9:8.2f} GB{self.depth(name)}"
        yield f"memory of the process that answers: {self.backend.memory_info().rss / 1e6:.0f} MB"

    def depth(self, index: str) -> str:
        if index == "authz_fact" or not self.has_pageinspect():
            return ""
        return f", {self.rows(f'''SELECT level FROM bt_metap('{index}')''')[0][0] + 1} levels"

    def has_pageinspect(self) -> bool:
        if not self.rows("SELECT 1 FROM pg_available_extensions WHERE name = 'pageinspect'"):
            return False
        self.rows("CREATE EXTENSION IF NOT EXISTS pageinspect")
        return True

    def times(self) -> Iterator[str]:
        for name, ask in self.questions().items():
            rng = Random(7)
            for _ in range(50):
                ask(rng)
            spent, waited = [], []
            for _ in range(10):
                before, began = self.used(), time.monotonic()
                for _ in range(ASKED // 10):
                    ask(rng)
                spent.append((self.used() - before) / (ASKED // 10) * 1e6)
                waited.append((time.monotonic() - began) / (ASKED // 10) * 1e6)
            yield f"{name:34} {median(spent):8,.0f} us of processor time, {median(waited):8,.0f} us in all"

    def questions(self) -> dict[str, Callable[[Random], object]]:
        from authz_project.keys import create_key
        from checks.asking import ask
        from checks.asking.ask import Trusted
        from checks.asking.question import Asked, allow
        from policy.active import caller_of_hash
        from policy.models import default_environment

        key, _ = create_key(default_environment())
        asker = Trusted(default_environment().pk)
        size = Size(COMPANY)

        def of_company(rng: Random, an_id: str) -> tuple[str, ...]:
            number = rng.randrange(self.companies)
            return (f"c{number}-{an_id}" if number else an_id,)

        def may(action: str, kind: str, count: int) -> Callable[[Random], object]:
            def asked(rng: Random) -> object:
                number = rng.randrange(self.companies)
                before = f"c{number}-" if number else ""
                user = Asked("User", (f"{before}user-{rng.randrange(size.users)}",))
                thing = Asked(kind, (f"{before}{kind.lower()}-{rng.randrange(count)}",))
                return ask.answer(asker, allow(user, Asked("String", (action,)), thing, ())).of_one

            return asked

        def which(action: str, kind: str) -> Callable[[Random], object]:
            def asked(rng: Random) -> object:
                user = Asked("User", of_company(rng, f"user-{rng.randrange(size.users)}"))
                question = allow(user, Asked("String", (action,)), Asked(kind, None), ("resource",))
                return list(ask.answer(asker, question).of_one)

            return asked

        return {
            "authorize, a role": may("read", "Project", size.projects),
            "authorize, a repository": may("read", "Repo", size.repos),
            "authorize, groups and folders": may("comment", "Doc", size.docs),
            "list of projects": which("read", "Project"),
            "list of documents by folders": which("read", "Doc"),
            "environment of a key": lambda rng: caller_of_hash(key.hash, None),
        }

    def used(self) -> float:
        if self.backend is None:
            return time.process_time()
        times = self.backend.cpu_times()
        return time.process_time() + times.user + times.system

    def rows(self, statement: str) -> list[tuple]:
        with self.connection.cursor() as cursor:
            if self.connection.vendor == "postgresql":
                cursor.execute("SET statement_timeout = 0")
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


# ---- how many servers --------------------------------------------------------------------------------------------
# Measured; docs/scale.md names the program of each. Microseconds are of a processor.

BYTES_A_FACT = 395  # on PostgreSQL, with its indexes
QUESTION_AT_SERVICE, QUESTION_AT_DATABASE = 370, 100  # microseconds of a direct check
CHANGE_AT_DATABASE = 370  # microseconds of a change of one fact
LOOK_UP = 130  # microseconds to look up the environment of a key, which processes then keep
MOVE_SECONDS = 2.7  # for an environment's schema to move to another server, under load

# Assumed: what a server is, and what is asked of it.
CORES, USED = 16, 0.6  # of a server, and how busy they may be
MOST_FACTS = 1_000_000_000  # of a server: 0.4 TB, and as much room again
CHANGED, UNKNOWN = 0.01, 0.01  # for each query: changes, and look-ups


def model() -> Iterator[str]:
    yield (
        "| facts | queries per second | disk, GB | database servers | because of | cores of all for changes"
        " | cores for look-ups | service servers |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for facts, rate in product((10**6, 10**9, 10**12), (10**4, 10**6)):
        server = CORES * USED * 1e6  # microseconds of a processor in a second
        changes, look_ups = rate * CHANGED * CHANGE_AT_DATABASE, rate * UNKNOWN * LOOK_UP
        wanted = {"facts": facts / MOST_FACTS, "queries": (rate * QUESTION_AT_DATABASE + changes + look_ups) / server}
        bound = max(wanted, key=wanted.__getitem__)
        yield (
            f"| {facts:,} | {rate:,} | {facts * BYTES_A_FACT / 1e9:,.1f} | {ceil(wanted[bound]):,}"
            f" | {bound if wanted[bound] > 1 else ''} | {changes / 1e6:.2f} | {look_ups / 1e6:.2f}"
            f" | {ceil(rate * QUESTION_AT_SERVICE / server):,} |"
        )


# ---- tenants over servers ----------------------------------------------------------------------------------------

FACTS = 1_000_000_000
DAYS = 90
LEAVE = 0.002  # share of tenants that leave on a day; as many come
GROWTH, UNEVEN = 0.003, 0.03  # by which a tenant grows on a day, and how unevenly
ROOM = 1.1  # how full a server may be, as a multiple of the mean, until tenants are moved away
SERVERS = (3, 10, 30, 100, 300)


class Tenants:
    """Tenants on servers; each is on one."""

    def __init__(self, servers: int, tenants: int, skew: float, seed: int):
        self.lot = Random(seed)
        total = sum(rank**-skew for rank in range(1, tenants + 1))
        self.drawn = [max(1, round(FACTS * rank**-skew / total)) for rank in range(1, tenants + 1)]
        self.servers: list[dict[int, int]] = [{} for _ in range(servers)]  # of each, the facts of its tenants
        self.full = [0] * servers
        self.place: dict[int, int] = {}
        self.moves = self.moved = self.made = 0
        for size in self.lot.sample(self.drawn, tenants):
            self.come(size)

    def come(self, size: int) -> None:
        self.put(self.made, size, min(range(len(self.full)), key=self.full.__getitem__))
        self.made += 1

    def put(self, tenant: int, size: int, server: int) -> None:
        self.servers[server][tenant] = size
        self.full[server] += size
        self.place[tenant] = server

    def take(self, tenant: int) -> int:
        server = self.place.pop(tenant)
        size = self.servers[server].pop(tenant)
        self.full[server] -= size
        return size

    def move(self, tenant: int, server: int) -> None:
        size = self.take(tenant)
        self.put(tenant, size, server)
        self.moves += 1
        self.moved += size

    def day(self) -> None:
        """Let tenants leave, come, and grow."""
        for tenant in self.lot.sample(sorted(self.place), round(len(self.place) * LEAVE)):
            self.take(tenant)
            self.come(self.lot.choice(self.drawn))
        for tenant, server in list(self.place.items()):
            size = self.take(tenant)
            self.put(tenant, max(1, round(size * (1 + self.lot.gauss(GROWTH, UNEVEN)))), server)

    def balance(self) -> None:
        """Move tenants from servers that are too full to the emptiest, while that makes the fullest less full."""
        most = ROOM * self.mean
        for server in sorted(range(len(self.full)), key=self.full.__getitem__, reverse=True):
            while self.full[server] > most:
                emptiest = min(range(len(self.full)), key=self.full.__getitem__)
                room = (self.full[server] - self.full[emptiest]) // 2
                fitting = [(size, tenant) for tenant, size in self.servers[server].items() if size <= room]
                if not fitting:
                    break
                self.move(max(fitting)[1], emptiest)

    @property
    def mean(self) -> float:
        return sum(self.full) / len(self.full)

    def fullest(self, most: float = inf) -> float:
        """As a multiple of the mean; of the servers without a tenant larger than `most`."""
        parts = zip(self.full, self.servers)
        return max(full for full, each in parts if max(each.values(), default=0) <= most) / self.mean

    @property
    def largest(self) -> float:
        return max(max(each.values(), default=0) for each in self.servers) / self.mean


def spread(tenants: int, skew: float, seed: int) -> Iterator[str]:
    yield (
        "| servers | largest tenant | fullest server | fullest without larger tenants | moves per day"
        " | facts moved per day | moving per day |"
    )
    yield "|---|---|---|---|---|---|---|"
    for servers in SERVERS:
        all_of = Tenants(servers, tenants, skew, seed)
        all_of.balance()
        all_of.moves = all_of.moved = 0
        fullest, others, largest = [], [], []
        for _ in range(DAYS):
            all_of.day()
            all_of.balance()
            fullest.append(all_of.fullest())
            others.append(all_of.fullest(all_of.mean))
            largest.append(all_of.largest)
        moves = all_of.moves / DAYS
        yield (
            f"| {servers} | {max(largest):.2f} | {max(fullest):.2f} | {max(others):.2f} | {moves:.1f}"
            f" | {all_of.moved / DAYS / sum(all_of.full):.2%} | {moves * MOVE_SECONDS:.0f} s |"
        )


if __name__ == "__main__":
    sys.exit(main())
