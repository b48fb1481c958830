"""How fast facts go in, beside the floor: the same rows given to the driver with nothing around it.

    python -m tests.benchmarks.loads [FACTS]

prints, for SQLite and PostgreSQL, facts per second of `load_facts` into a database without facts, of another one after
it, of one /batch of 10,000, and of the floor; and beside it the seconds of a processor that a million facts take, of
this process and of PostgreSQL.
"""

import gc
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import psutil

from tests import standalone

BATCH = 10_000
FLOOR = 999_999  # the signature of the rows that the floor is measured with


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    with tempfile.TemporaryDirectory() as folder:
        standalone.set_up(f"sqlite:///{folder}/loads.sqlite3")
        lines = Path(folder) / "facts.jsonl"
        lines.write_bytes(b"\n".join(map(orjson.dumps, made_up_facts(count))))
        measure("SQLite", count, lines)
        measure_on_postgresql(count, lines)


def made_up_facts(count: int) -> list[dict]:
    """Roles of users on repositories, in no order: 24 bytes of ids each, as most are."""

    def fact(n: int) -> dict:
        mixed = n * 2654435761 % 2**32
        user, repo = {"type": "User", "id": f"user-{mixed % 100_003}"}, {"type": "Repo", "id": f"repo-{mixed:08x}"}
        return {"predicate": "has_role", "args": [user, {"type": "String", "id": ("reader", "writer")[n % 2]}, repo]}

    return [fact(n) for n in range(count)]


def measure_on_postgresql(count: int, lines: Path) -> None:
    from django.db import connections

    from authz_project.settings import database_from_url
    from tests import postgresql

    server = postgresql.start()
    if server is None:
        print("PostgreSQL: none can be started here")
        return
    try:
        config = database_from_url(server.create("loads"))
        connections.settings["default"] = connections.configure_settings({"default": config})["default"]
        connections["default"] = connections.create_connection("default")
        measure("PostgreSQL", count, lines, psutil.Process(server.process.pid))
        connections.close_all()
    finally:
        server.stop()


def measure(name: str, count: int, lines: Path, postmaster: psutil.Process | None = None) -> None:
    from django.core.management import call_command

    from facts import store
    from facts.serializers import changes_from_json
    from policy.models import default_environment

    call_command("migrate", verbosity=0)
    environment = default_environment()
    facts = made_up_facts(BATCH)
    others = lines.with_name("others.jsonl")
    others.write_bytes(lines.read_bytes().replace(b'"repo-', b'"repo1-'))

    def load(file: Path) -> None:
        call_command("load_facts", str(file), stdout=io.StringIO())

    def batch() -> None:
        store.apply(environment.id, changes_from_json(orjson.loads(orjson.dumps([{"inserts": facts}])), ""))

    for title, amount, act, is_first in (
        ("floor", count, floor_of(name, count), True),
        ("load_facts", count, lambda: load(lines), True),
        ("once more", count, lambda: load(others), False),
        ("one /batch", BATCH, batch, True),
    ):
        if is_first:
            empty(environment.id)
        gc.collect()
        before = used(postmaster)
        seconds = timed(act)
        own, database = ((now - then) / amount * 1e6 for now, then in zip(used(postmaster), before))
        print(
            f"{name:<11}{title:<11}{amount:>9,} facts {seconds:>7.2f} s {amount / seconds:>10,.0f} facts/s"
            f" {own:>8.2f} s here {database:>8.2f} s PostgreSQL, for a million",
            flush=True,
        )


def empty(environment_id: int) -> None:
    """Nobody has any facts, and the table is as if there had never been any."""
    from django.db import connection, transaction

    from facts import store

    store.clear(environment_id)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM fact")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM (ANALYZE) fact")


def used(postmaster: psutil.Process | None) -> tuple[float, float]:
    """Seconds of a processor: of this process, and of PostgreSQL's, with those of them that have ended."""
    if postmaster is None:
        return time.process_time(), 0.0
    living = sum(sum(each.cpu_times()[:2]) for each in postmaster.children())
    return time.process_time(), living + sum(postmaster.cpu_times()[:4])


def floor_of(name: str, count: int) -> Callable[[], None]:
    """The raw driver: executemany on SQLite, COPY on PostgreSQL, into the same table."""
    from django.db import connection, transaction

    rows = [(FLOOR, *[arg["id"] for arg in fact["args"]], "", "", 0) for fact in made_up_facts(count)]

    def sqlite() -> None:
        with transaction.atomic():
            insert = "INSERT INTO fact (sig, a0, a1, a2, a3, a4, since) VALUES (?, ?, ?, ?, ?, ?, ?)"
            connection.connection.executemany(insert, rows)

    def copy() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 0")
            with cursor.copy("COPY fact (sig, a0, a1, a2, a3, a4, since) FROM STDIN") as target:
                for row in rows:
                    target.write_row(row)

    return sqlite if name == "SQLite" else copy


def timed(act: Callable[[], None]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
