"""What many facts take: disk, depth of indexes, and a question's time, as they grow from a million to a hundred.

    python -m tests.benchmarks.scale --database postgres [--sizes 1000000 100000000] [--folder PLACE]

The facts are those of companies side by side, 10,000 each: what one service holds for many customers. The first
company is loaded by `load_facts`, the others are made from it by SQL, with ids of their own. Questions are about
companies drawn by lot. Their time is that of a processor, of this process and of PostgreSQL's, and beside it what a
caller waits.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, database(options.database, folder) as url:
        standalone.set_up(url)
        Scale(options.database).run(options.sizes)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--folder", help="where there is room: 60 GB for 100 million facts")
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
        if index == "fact" or not self.has_pageinspect():
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
        from checks.asking import ask
        from checks.asking.ask import Trusted
        from checks.asking.question import Asked, allow
        from policy.models import default_environment

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


if __name__ == "__main__":
    sys.exit(main())
