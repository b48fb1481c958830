"""Produced conditions beside the ones written by hand, over an application's table on PostgreSQL, in one run.

    python -m tests.benchmarks.local_filters --rows 1000000

For each question: the rows that both conditions select (which must be the same), the best of several counts with
each, and their ratio. Then how long the SQL takes to make, for a shape of question that is known already.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import psycopg

from tests import standalone
from tests.benchmarks.engine import database

POLICY = """
actor User {}
resource Org { roles = ["member", "admin"]; "member" if "admin"; }
resource Folder {
  roles = ["viewer"]; relations = { parent: Folder, org: Org };
  "viewer" if "viewer" on "parent"; "viewer" if "admin" on "org";
}
resource Doc {
  roles = ["reader", "writer"]; permissions = ["share", "read", "view", "open", "edit", "use", "age"];
  relations = { org: Org, folder: Folder };
  "reader" if "writer";
  "share" if "reader";
  "read" if "member" on "org";
  "view" if "viewer" on "folder";
  "use" if "share"; "use" if "read"; "use" if "view";
}
has_permission(u: User, "open", d: Doc) if has_relation(d, "org", o) and has_role(u, "member", o) and not is_locked(d);
has_permission(u: User, "edit", d: Doc) if has_permission(u, "open", d) and not has_role(u, "reader", d);
has_permission(u: User, "age", d: Doc) if level(u, l) and grade(d, g) and g < l and has_permission(u, "read", d);
"""
BINDINGS = """
dialect: postgres
facts:
  has_relation(Doc:_, org, Org:_): {query: "SELECT id, org_id FROM docs"}
  has_relation(Doc:_, folder, Folder:_): {query: "SELECT id, folder_id FROM docs"}
  has_relation(Folder:_, parent, Folder:_): {query: "SELECT id, parent_id FROM folders"}
  has_role(User:_, String:_, Doc:_): {query: "SELECT user_id, role, doc_id FROM shares"}
  has_role(User:_, String:_, Org:_): {query: "SELECT user_id, role, org_id FROM members"}
  is_locked(Doc:_): {query: "SELECT doc_id FROM locks"}
  grade(Doc:_, Integer:_): {query: "SELECT id, grade FROM docs"}
sql_types: {Doc: bigint, Org: bigint, Folder: bigint, User: text, String: text, Integer: integer}
"""
TABLES = """
CREATE SCHEMA app; SET search_path TO app;
CREATE TABLE docs (id bigint PRIMARY KEY, org_id bigint, folder_id bigint, grade integer, title text);
CREATE TABLE folders (id bigint PRIMARY KEY, parent_id bigint);
CREATE TABLE shares (user_id text NOT NULL, role text NOT NULL, doc_id bigint NOT NULL);
CREATE TABLE members (user_id text NOT NULL, role text NOT NULL, org_id bigint NOT NULL);
CREATE TABLE locks (doc_id bigint PRIMARY KEY);
"""
FILL = """
INSERT INTO docs SELECT n, n % {orgs}, n % {folders} + 1, n % 100, 'document ' || n FROM generate_series(1, {rows}) n;
INSERT INTO folders SELECT n, CASE WHEN n > 10 THEN n / 10 END FROM generate_series(1, {folders}) n;
INSERT INTO shares SELECT 'user' || n % 5000, CASE n % 3 WHEN 0 THEN 'writer' ELSE 'reader' END, n * 2
  FROM generate_series(1, {rows} / 2) n;
INSERT INTO members SELECT 'user' || n % 5000, CASE n % 7 WHEN 0 THEN 'admin' ELSE 'member' END, n % {orgs}
  FROM generate_series(1, 20000) n;
INSERT INTO members SELECT 'boss', 'admin', n FROM generate_series(1, {orgs}, 5) n;
INSERT INTO shares SELECT 'boss', 'reader', n FROM generate_series(1, {rows}, 40) n;
INSERT INTO locks SELECT n * 3 FROM generate_series(1, {rows} / 3) n;
CREATE INDEX ON docs (org_id); CREATE INDEX ON docs (folder_id); CREATE INDEX ON folders (parent_id);
CREATE INDEX ON shares (user_id, role); CREATE INDEX ON members (user_id);
"""
FOLDER = 77  # where the user views
LEVEL = 30

ORGS = "SELECT org_id FROM members WHERE user_id = '{user}' AND role IN ('member', 'admin')"
SHARED = "SELECT doc_id FROM shares WHERE user_id = '{user}' AND role IN ('reader', 'writer')"
IN_ORGS = f"SELECT id FROM docs WHERE org_id IN ({ORGS})"
BELOW = (
    f"SELECT id FROM docs WHERE folder_id IN (WITH RECURSIVE below(id) AS (SELECT CAST({FOLDER} AS bigint)"
    " UNION SELECT f.id FROM folders f JOIN below ON f.parent_id = below.id) SELECT id FROM below)"
)
UNLOCKED = f"{IN_ORGS} AND NOT EXISTS (SELECT 1 FROM locks WHERE doc_id = docs.id)"
EDITED = (
    f"{UNLOCKED} AND NOT EXISTS (SELECT 1 FROM shares s WHERE s.doc_id = docs.id AND s.user_id = '{{user}}'"
    " AND s.role IN ('reader', 'writer'))"
)


@dataclass(frozen=True)
class Filter:
    name: str
    action: str
    select: str  # of ids, by hand


FILTERS = (
    Filter("roles on the row", "share", SHARED),
    Filter("organisation's role", "read", IN_ORGS),
    Filter("folder recursion", "view", BELOW),
    Filter("and not locked", "open", UNLOCKED),
    Filter("two negations", "edit", EDITED),
    Filter("stored < local number", "age", f"SELECT id FROM docs WHERE grade < {LEVEL} AND org_id IN ({ORGS})"),
    Filter("any of three ways", "use", f"{SHARED} UNION ALL {IN_ORGS} UNION ALL {BELOW}"),
)


def main() -> int:
    arguments = parsed()
    with database("postgres") as url:
        standalone.set_up(url)
        asker = prepared_asker(arguments.user)
        with psycopg.connect(url, autocommit=True) as connection:
            fill(connection, arguments.rows)
            return compare(connection, asker, arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--user", default="user7", help="`boss` sees a fifth of all rows")
    parser.add_argument("--explain", default="", help="part of a question's name: print its SQL and plans")
    return parser.parse_args()


def prepared_asker(user: str):
    """An environment with the policy, and the few facts that stay with the service."""
    from django.core.management import call_command

    from checks.asking.ask import Trusted
    from facts.loading import load
    from facts.wire import Fact
    from policy.models import PolicyVersion, default_environment
    from policy.values import Value

    call_command("migrate", verbosity=0)
    environment = default_environment()
    environment.policy_version = PolicyVersion.objects.create(environment=environment, number=1, source=POLICY)
    environment.save()
    who = Value("User", user)
    stored = [
        Fact("has_role", (who, Value("String", "viewer"), Value("Folder", str(FOLDER)))),
        Fact("level", (who, Value("Integer", str(LEVEL)))),
    ]
    load(environment.id, enumerate(stored))
    return Trusted(environment.id)


def fill(connection: psycopg.Connection, rows: int) -> None:
    started = time.monotonic()
    connection.execute(TABLES)
    connection.execute(FILL.format(rows=rows, orgs=max(rows // 200, 10), folders=max(rows // 20, 100)))
    connection.execute("VACUUM ANALYZE")
    connection.execute("SET max_parallel_workers_per_gather = 0")  # steadier
    print(f"{rows} rows in {time.monotonic() - started:.0f} s")


# ---- comparing -----------------------------------------------------------------------------------------------------


def compare(connection: psycopg.Connection, asker, arguments: argparse.Namespace) -> int:
    print(f"{'question':24}{'rows':>9}{'by hand ms':>12}{'produced':>10}{'ratio':>7}{'made in ms: p50':>17}{'p99':>7}")
    worst = 0.0
    for each in FILTERS:
        sides = (by_hand(each, arguments.user), made(asker, each.action, arguments.user))
        if arguments.explain and arguments.explain in each.name:
            explain(connection, *sides)
        count = same_rows(connection, *sides)
        first, second = best(connection, sides, arguments.runs)
        p50, p99 = making(asker, each.action, arguments.user)
        ratio = second / first
        worst = max(worst, ratio)
        print(f"{each.name:24}{count:9}{first:12.2f}{second:10.2f}{ratio:7.2f}{p50:17.2f}{p99:7.2f}", flush=True)
    print(f"at worst {worst:.2f} times the one by hand")
    return 0


def by_hand(question: Filter, user: str) -> str:
    return f"docs.id IN ({question.select.format(user=user)})"


def made(asker, action: str, user: str) -> str:
    from checks.asking.question import Asked, allow
    from localsql import asking

    question = allow(Asked("User", (user,)), Asked("String", (action,)), Asked("Doc"), ("resource",))
    return asking.filtered(asker, question, BINDINGS, "docs.id").sql


def same_rows(connection: psycopg.Connection, first: str, second: str) -> int:
    found = [{row[0] for row in connection.execute(f"SELECT id FROM docs WHERE {each}")} for each in (first, second)]
    assert found[0] == found[1], f"the rows differ by {len(found[0] ^ found[1])}"
    return len(found[0])


def best(connection: psycopg.Connection, conditions: tuple[str, ...], runs: int) -> list[float]:
    """Milliseconds of the quickest count with each; they take turns."""
    times: list[list[float]] = [[] for _ in conditions]
    for _ in range(runs):
        for place, each in enumerate(conditions):
            started = time.perf_counter()
            connection.execute(f"SELECT count(*) FROM docs WHERE {each}").fetchone()
            times[place].append((time.perf_counter() - started) * 1000)
    return [min(each) for each in times]


def making(asker, action: str, user: str, runs: int = 200) -> tuple[float, float]:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        made(asker, action, user)
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times), sorted(times)[int(runs * 0.99)]


def explain(connection: psycopg.Connection, *conditions: str) -> None:
    for each in conditions:
        print(each)
        for row in connection.execute(f"EXPLAIN ANALYZE SELECT count(*) FROM docs WHERE {each}"):
            print("   ", row[0])


if __name__ == "__main__":
    sys.exit(main())
