"""What a question as of an earlier revision takes, beside the same question now: processor time of an answer.

    python -m tests.benchmarks.past [--facts 1000000] [--databases sqlite,postgres] [--plans]

The revision is 100,000 changes ago; half of those stored a fact, the other half deleted one. Then the history grows:
10,000 past facts and 1,000,000, spread over all that there is, or all of a few facts, or ended later than the revision.
Time is that of a processor, of this process and of PostgreSQL's. Answers of then are compared with those before the
changes. With `--plans`, prints how look-ups are done, those that read more than they look for first.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest.mock import patch

import psutil
from django.core.management import call_command

from tests import standalone
from tests.benchmarks import generate
from tests.benchmarks.generate import BOSS, POLICY, Size, facts_of, line_of
from tests.properties.run_long import database

CHANGES = 100_000
THEN = 2_000_000  # the revision that is asked of
FEW, MANY = 10_000, 1_000_000  # past facts
LISTED = 1_000
MARK, GROWTH = 4.0, 1.3
TURNS, LEAST = 7, 0.25  # turns; seconds of a processor in each
UNMARKED = "toggled"
COLUMNS = "sig, a0, a1, a2, a3, a4"


def main() -> int:
    options = parsed()
    missed = [
        each
        for kind in options.databases.split(",")
        for each in measured_in_process(kind, options)
    ]  # fmt: skip
    print("\n".join(["", "MISSED:", *missed] if missed else ["", "all marks are met"]))
    return 1 if missed else 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--many", type=int, default=MANY, help="past facts at most")
    parser.add_argument("--databases", default="sqlite,postgres")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--plans", action="store_true", help="print the plans of statements as of a revision")
    return parser.parse_args()


def measured_in_process(kind: str, options: argparse.Namespace) -> list[str]:
    """In a process of its own for each database: settings are made once."""
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, (kind, options))


def measured(kind: str, options: argparse.Namespace) -> list[str]:
    with database(kind) as url:
        standalone.set_up(url)
        with patch.object(generate, "LONGEST_LIST", LISTED):
            return Past(kind, options).run()


@dataclass(frozen=True)
class Asking:
    name: str
    ask: Callable[[object], object]  # of a moment, or None
    count: int  # questions in it


class Past:
    def __init__(self, kind: str, options: argparse.Namespace):
        from policy.models import default_environment

        call_command("migrate", verbosity=0)
        self.kind, self.options, self.size = kind, options, Size(options.facts)
        self.environment = default_environment()
        self.postmaster = self._postmaster()
        self.missed: list[str] = []

    def run(self) -> list[str]:
        from policy.moments import moment_of

        self.load()
        asks = self.asks()
        before = [each.ask(None) for each in asks]
        self.change()
        moment = moment_of(self.environment.pk, THEN)
        for each, answers in zip(asks, before):
            if each.ask(moment) != answers:
                self.missed.append(f"{self.kind}: {each.name} is not answered as it was")
        if self.options.plans:
            self.show_plans(asks, moment)
        print(
            f"\n{self.kind}: {self.options.facts:,} facts, {CHANGES:,} changes; microseconds of a processor an answer"
        )
        print(f"{'':34}{'past':>10}{'now':>10}{'as of':>10}{'ratio':>8}{'growth':>8}")
        first: dict[str, float] = {}
        for title, grow in self.growing():
            grow()
            self.analyze()
            for each in asks:
                now, then = (median(found) for found in self.in_turns(each, moment))
                start = first.setdefault(each.name, then / now)
                print(
                    f"{each.name:34}{title:>10}{now:>10,.0f}{then:>10,.0f}{then / now:>8.2f}{then / now / start:>8.2f}",
                    flush=True,
                )
                if title == UNMARKED:
                    continue
                if then > MARK * now:
                    self.missed.append(f"{self.kind}: {each.name}, {title}: {then / now:.2f} times as long as now")
                if then / now > GROWTH * start:
                    self.missed.append(
                        f"{self.kind}: {each.name}, {title}: {then / now / start:.2f} times as long as with few"
                    )
        return self.missed

    # ---- facts and their history ---------------------------------------------------------------------------------

    def load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            policy, lines = Path(folder) / "policy.polar", Path(folder) / "facts.jsonl"
            policy.write_text(POLICY)
            with lines.open("wb") as file:
                file.writelines(line_of(each) for each in facts_of(self.size))
            with contextlib.redirect_stdout(io.StringIO()):
                call_command("load_policy", str(policy))
                call_command("load_facts", str(lines))

    def execute(self, statement: str) -> None:
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute(statement)

    def change(self) -> None:
        """Delete every so manieth fact, and store as many others, each at a revision of its own. Made by SQL."""
        from policy.ground.clock import now_in

        half, now = CHANGES // 2, now_in({"sqlite": "sqlite", "postgres": "postgresql"}[self.kind])
        share = max(20, self.options.facts // half)
        columns = "environment_id, number, at, author, request_id, policy_version_id, kind, inserted, deleted"
        copied = f"{now}, '', '', policy_version_id, 'facts', 0, 0 FROM environment WHERE id = {self.environment.pk}"
        numbers = f"WITH RECURSIVE n(i) AS (SELECT {THEN} UNION ALL SELECT i + 1 FROM n WHERE i < {THEN + CHANGES})"
        self.execute(f"INSERT INTO revision ({columns}) SELECT id, {THEN}, {copied}")
        self.execute(
            f"INSERT INTO revision ({columns}) {numbers} SELECT id, i, {now}, '', '', policy_version_id, 'facts', 0, 0"
            f" FROM n, environment WHERE id = {self.environment.pk} AND i > {THEN}"
        )
        self.execute(f'UPDATE environment SET "offset" = {THEN + CHANGES} WHERE id = {self.environment.pk}')
        chosen = f"SELECT {COLUMNS}, row_number() OVER (ORDER BY a2, a0, sig) AS n FROM fact"
        chosen += f" WHERE a0 <> '{BOSS}' AND a1 <> 'parent'"  # or lists would be much shorter
        gone = f"SELECT * FROM ({chosen}) x WHERE n % {share} = 0 LIMIT {half}"
        self.execute(
            f"INSERT INTO past_fact ({COLUMNS}, since, until)"
            f" SELECT {COLUMNS}, 2, {THEN} + 1 + n % {CHANGES} FROM ({gone}) g"
        )
        self.execute(f"DELETE FROM fact WHERE ({COLUMNS}) IN (SELECT {COLUMNS} FROM past_fact)")
        self.execute(
            f"INSERT INTO fact ({COLUMNS}, since) SELECT sig, a0, a1, 'new-' || a2, a3, a4, {THEN} + 1 + n % {CHANGES}"
            f" FROM ({chosen}) x WHERE a2 <> '' AND n % {share} = 1 LIMIT {half}"
        )
        self.analyze()

    def growing(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """How the history grows, on top of each other."""
        many = self.options.many
        yield "few", lambda: None
        yield "spread", lambda: self.grow(many // 2, f"SELECT {COLUMNS} FROM fact", f"{THEN} - i % {CHANGES}")
        yield "of few", lambda: self.grow(many // 2, self.of_few(), f"{THEN} - i % {CHANGES}")
        yield "later", lambda: self.grow(CHANGES // 2, f"SELECT {COLUMNS} FROM fact", f"{THEN} + 1 + i % {CHANGES}")
        # Of a fact that came and went so often since, each time is looked at: no index leads to one interval of many.
        yield UNMARKED, lambda: self.grow(CHANGES // 2, self.of_few(), f"{THEN} + 1 + i % {CHANGES}")

    def of_few(self) -> str:
        return f"SELECT {COLUMNS} FROM fact WHERE a0 = '{BOSS}'"

    def grow(self, count: int, facts: str, until: str) -> None:
        """Add past facts that held for one revision only, of these facts by turns."""
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        chosen = (
            f"SELECT f.*, row_number() OVER (ORDER BY a2, a0) - 1 AS place, COUNT(*) OVER () AS total FROM ({facts}) f"
        )
        self.execute(
            f"INSERT INTO past_fact ({COLUMNS}, since, until) {numbers}, chosen AS ({chosen}), size AS"
            f" (SELECT COUNT(*) AS total FROM chosen) SELECT {COLUMNS}, {until} - 1, {until}"
            " FROM n CROSS JOIN size JOIN chosen ON place = i % size.total"
        )

    def analyze(self) -> None:
        if self.kind == "postgres":
            self.execute("ANALYZE fact")
            self.execute("ANALYZE past_fact")

    # ---- questions -----------------------------------------------------------------------------------------------

    def asks(self) -> list[Asking]:
        from checks.asking import ask
        from checks.asking.askers import Trusted
        from checks.asking.question import Asked, allow

        asker = Trusted(self.environment.pk)

        def who(name: str, action: str, kind: str, thing: str | None) -> Callable[[object], object]:
            resource = Asked(kind, None if thing is None else (thing,))
            outs = ("resource",) if thing is None else ()
            question = allow(Asked("User", (name,)), Asked("String", (action,)), resource, outs)
            return lambda moment: sorted(ask.answer(asker, question, moment=moment).of_one)

        def all_of(name: str, asks: list[Callable[[object], object]]) -> Asking:
            return Asking(name, lambda moment: [each(moment) for each in asks], len(asks))

        roles = self.pairs("has_role", '["User","String","Project"]')
        docs = self.pairs("has_role", '["User","String","Doc"]')[:20]
        docs += [(BOSS, f"doc-{n}") for n in range(0, 400, 20)]
        return [
            all_of("authorize, a role", [who(user, "read", "Project", thing) for user, thing in roles]),
            all_of("authorize, groups and folders", [who(user, "comment", "Doc", thing) for user, thing in docs]),
            all_of("list of 1,000, an organisation", [who(BOSS, "read", "Repo", None)]),
            all_of("list of 1,000, folders", [who(BOSS, "read", "Doc", None)]),
        ]

    def pairs(self, predicate: str, types: str) -> list[tuple[str, str]]:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT a0, a2 FROM fact JOIN signature s ON s.id = sig"
                " WHERE predicate = %s AND REPLACE(types, ' ', '') = %s ORDER BY a2, a0 LIMIT 10000",
                (predicate, types),
            )
            rows = cursor.fetchall()
        return rows[:: max(1, len(rows) // 100)][:100]

    # ---- times ---------------------------------------------------------------------------------------------------

    def in_turns(self, asking: Asking, moment: object) -> tuple[list[float], list[float]]:
        now, then = [], []
        for _ in range(self.options.turns):
            now.append(self.times(asking, None))
            then.append(self.times(asking, moment))
        return now, then

    def times(self, asking: Asking, moment: object) -> float:
        """Microseconds of a processor for an answer."""
        asked, before = 0, self.used()
        while (seconds := self.used() - before) < LEAST:
            asking.ask(moment)
            asked += asking.count
        return seconds / asked * 1e6

    def used(self) -> float:
        if self.postmaster is None:
            return time.process_time()
        times = [each.cpu_times() for each in self.postmaster.children()]
        return time.process_time() + sum(each.user + each.system for each in times)

    def _postmaster(self) -> psutil.Process | None:
        from django.db import connection

        if self.kind != "postgres":
            return None
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return psutil.Process(cursor.fetchone()[0]).parent()

    # ---- plans ---------------------------------------------------------------------------------------------------

    def show_plans(self, asks: list[Asking], moment: object) -> None:

        from checks.asking import run

        real, seen = run.execute, set()

        def explained(statement, slots):
            if statement.sql not in seen and "past_fact" in statement.sql:
                seen.add(statement.sql)
                prefix = (
                    "EXPLAIN QUERY PLAN " if self.kind == "sqlite" else "EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF) "
                )
                sql, values = prefix + statement.sql, statement.values(slots)
                with run.snapshot():
                    rows = self.explained(sql, values)
                print(f"---- {name}\n" + "\n".join(rows), flush=True)
            return real(statement, slots)

        for each in asks:
            name = each.name
            with patch.object(run, "execute", explained):
                each.ask(moment)

    def explained(self, sql: str, values: list) -> list[str]:
        from django.db import connection

        connection.ensure_connection()
        raw = connection.connection
        if self.kind == "sqlite":
            return [row[3] for row in raw.execute(sql, values)]
        import psycopg

        with psycopg.RawCursor(raw) as cursor:
            return [row[0] for row in cursor.execute(sql, values)]


if __name__ == "__main__":
    sys.exit(main())
