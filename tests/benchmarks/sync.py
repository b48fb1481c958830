"""Facts beside the rows they come from, in step: seconds, rows a second and peak memory, for each kind of database.

    python -m tests.benchmarks.sync --rows 1000000 [--database postgres] [--sources postgres,mysql,sqlite,csv]

Facts are stored by `load_facts`, and the same is written into a table of each source, in another order. `sync_facts`
runs as a process of its own, whose memory is looked at as it runs; those of the databases are not counted.
"""

from __future__ import annotations

import argparse
import csv
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import psycopg

from tests import mariadb, postgresql
from tests.service import ROOT

POLICY = 'actor User {}\nresource Org { roles = ["member", "owner"]; }\n'
KINDS = ("postgres", "mysql", "sqlite", "csv")
COLUMNS = "(who varchar(100), role varchar(20), org varchar(100))"


def main() -> int:
    options = parsed()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = postgresql.start()
        assert server is not None, "no PostgreSQL can be started here"
        stack.callback(server.stop)
        url = f"sqlite:///{folder / 'authz.sqlite3'}" if options.database == "sqlite" else server.create("authz")
        prepared(folder, url, options.rows)
        for kind in options.sources.split(","):
            connection = MADE[kind](folder, server, options.rows, stack)
            measured(folder, url, kind, connection, options.rows)
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite", help="of the service")
    parser.add_argument("--sources", default=",".join(KINDS))
    return parser.parse_args()


def rows(number: int, mixed: bool = True) -> Iterator[tuple[str, str, str]]:
    """The same ones each time, in an order that is none."""
    step = next(each for each in (999_983, 611_953, 7_919, 1) if number % each) if mixed and number > 1 else 1
    for place in range(number):
        one = place * step % number
        yield f"user-{one:08}", "owner" if one % 10 == 0 else "member", f"org-{one % 5000}"


# ---- the service's side ---------------------------------------------------------------------------------------------


def variables(url: str) -> dict[str, str]:
    return os.environ | {"DATABASE_URL": url, "SECRET_KEY": "only for this program " * 3}


def manage(url: str, *words: str | Path) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *map(str, words)]


def prepared(folder: Path, url: str, number: int) -> None:
    (folder / "main.polar").write_text(POLICY)
    with (folder / "facts.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            ("has_role", "User", who, "String", role, "Org", org) for who, role, org in rows(number)
        )
    for words in (("migrate",), ("load_policy", folder / "main.polar"), ("load_facts", folder / "facts.csv")):
        subprocess.run(manage(url, *words), env=variables(url), check=True, stdout=subprocess.DEVNULL)


def measured(folder: Path, url: str, kind: str, connection: str, number: int) -> None:
    asked = "" if kind == "csv" else ", query: 'SELECT who, role, org FROM staff'"
    config = folder / f"{kind}.yaml"
    config.write_text(
        f"facts:\n  has_role(User:_, String:_, Org:_): {{db: app{asked}}}\n"
        f"dbs: {{app: {{type: {kind}, connection_string: '{connection}'}}}}\n"
    )
    started = time.monotonic()
    process = subprocess.Popen(
        manage(url, "sync_facts", config), env=variables(url), stdout=subprocess.PIPE, text=True
    )
    peak, used = watched(process)
    took = time.monotonic() - started
    said = (process.stdout.read() if process.stdout else "").splitlines()
    assert process.returncode == 0 and said[-1] == f"in step: {number:,} facts", said
    print(
        f"{kind:10}{took:8.1f} s{used:8.1f} s of processor time{number / took:12,.0f} rows/s{peak / 2**20:8.0f} MiB",
        flush=True,
    )


def watched(process: subprocess.Popen) -> tuple[int, float]:
    """Its largest memory, and the processor time that it had when it was last seen."""
    peak, used = 0, 0.0
    seen = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            peak = max(peak, seen.memory_info().rss)
            times = seen.cpu_times()
            used = times.user + times.system
        except psutil.Error:
            break
        time.sleep(0.02)
    process.wait()
    return peak, used


# ---- sources ---------------------------------------------------------------------------------------------------------


def of_postgres(folder: Path, server: postgresql.Server, number: int, stack: ExitStack) -> str:
    url = server.create("app")
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE staff {COLUMNS}")
        with cursor.copy("COPY staff FROM STDIN") as copy:
            for row in rows(number):
                copy.write_row(row)
    return url


def of_mysql(folder: Path, server: postgresql.Server, number: int, stack: ExitStack) -> str:
    other = mariadb.start()
    assert other is not None, "no MariaDB can be started here"
    stack.callback(other.stop)
    with closing(other.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE app CHARACTER SET utf8mb4")
        cursor.execute(f"CREATE TABLE app.staff {COLUMNS}")
        cursor.execute("START TRANSACTION")
        cursor.executemany("INSERT INTO app.staff VALUES (%s, %s, %s)", list(rows(number)))
        cursor.execute("COMMIT")
    return f"mysql://tests:tests@127.0.0.1:{other.port}/app"


def of_sqlite(folder: Path, server: postgresql.Server, number: int, stack: ExitStack) -> str:
    path = folder / "app.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE staff {COLUMNS}")
        connection.executemany("INSERT INTO staff VALUES (?, ?, ?)", rows(number))
    return f"sqlite:///{path}"


def of_csv(folder: Path, server: postgresql.Server, number: int, stack: ExitStack) -> str:
    path = folder / "staff.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("who", "role", "org"))
        writer.writerows(rows(number))
    return str(path)


MADE = {"postgres": of_postgres, "mysql": of_mysql, "sqlite": of_sqlite, "csv": of_csv}

if __name__ == "__main__":
    sys.exit(main())
