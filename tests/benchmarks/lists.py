"""Lists that are hard in ways of their own, beside statements by hand, right after their facts were stored.

    python -m tests.benchmarks.lists --database postgres

Levels that are compared, attributes without types, friends of friends, denials that override, groups in chains. For
each: the first list after the load, then the middle of several, beside the statement by hand, which must give the same
ids.

Of groups in chains, checks as well: granted by a role of one's own on the document, by groups or folders, and denied.
With `--facts 740000`, that world has 25,000 users, 2,000 groups and 200,000 documents.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from tests import standalone
from tests.benchmarks.database import opened
from tests.benchmarks.engine import Sample, at, compiled_sides, database, taken_in_turns

PAGE = 10_000
RUNS = 15
USERS = ("1", "5", "7")
HEAD = 'actor User {} resource Doc { permissions = ["read"]; }\n'
FRIENDS_OF_FRIENDS = """
WITH one(id) AS (SELECT a1 FROM authz_fact WHERE sig = {friend_User_User} AND a0 = :user
                 UNION SELECT a0 FROM authz_fact WHERE sig = {friend_User_User} AND a1 = :user),
     two(id) AS (SELECT id FROM one
                 UNION SELECT f.a1 FROM one CROSS JOIN authz_fact f WHERE f.sig = {friend_User_User} AND f.a0 = one.id
                 UNION SELECT f.a0 FROM one CROSS JOIN authz_fact f WHERE f.sig = {friend_User_User} AND f.a1 = one.id)
SELECT DISTINCT d.a0 FROM two CROSS JOIN authz_fact d
WHERE d.sig = {author_Doc_User} AND d.a1 = two.id ORDER BY 1 LIMIT 10001
"""
DENIED = """
WITH denied(id) AS (SELECT a1 FROM authz_fact WHERE sig = {deny_User_Doc} AND a0 = :user
                    UNION SELECT d.a1 FROM authz_fact g CROSS JOIN authz_fact d
                     WHERE g.sig = {in_group_User_Group} AND g.a0 = :user AND d.sig = {deny_Group_Doc} AND d.a0 = g.a1
                    UNION SELECT d.a0 FROM authz_fact f CROSS JOIN authz_fact d
                     WHERE f.sig = {deny_User_Folder} AND f.a0 = :user AND d.sig = {inside_Doc_Folder} AND d.a1 = f.a1)
SELECT DISTINCT d.a0 FROM authz_fact g CROSS JOIN authz_fact r CROSS JOIN authz_fact d
 WHERE g.sig = {in_group_User_Group} AND g.a0 = :user AND r.sig = {reads_Group_Folder} AND r.a0 = g.a1
   AND d.sig = {inside_Doc_Folder} AND d.a1 = r.a1 AND d.a0 NOT IN (SELECT id FROM denied) ORDER BY 1 LIMIT 10001
"""
LABELLED = """
SELECT d.a0 FROM authz_fact t CROSS JOIN authz_fact d
 WHERE t.sig = {in_tenant_User_Tenant} AND t.a0 = :user AND d.sig = {of_tenant_Doc_Tenant} AND d.a1 = t.a1
   AND NOT EXISTS (SELECT 1 FROM authz_fact l CROSS JOIN authz_fact b WHERE l.sig = {label_Doc_String} AND l.a0 = d.a0
                    AND b.sig = {blocked_User_String} AND b.a0 = :user AND b.a1 = l.a1) ORDER BY 1 LIMIT 10001
"""
CHAINED = """
WITH RECURSIVE mine(id) AS (
  SELECT a1 FROM authz_fact WHERE sig = {has_group_User_Group} AND a0 = :user UNION
  SELECT g.a1 FROM mine CROSS JOIN authz_fact g WHERE g.sig = {has_group_Group_Group} AND g.a0 = mine.id),
granted(id) AS (
  SELECT a2 FROM authz_fact WHERE sig = {has_role_User_Folder} AND a0 = :user UNION
  SELECT r.a2 FROM mine CROSS JOIN authz_fact r WHERE r.sig = {has_role_Group_Folder} AND r.a0 = mine.id UNION
  SELECT p.a0 FROM granted CROSS JOIN authz_fact p
   WHERE p.sig = {has_relation_Folder_Folder} AND p.a2 = granted.id),
seen(id) AS (
  SELECT a2 FROM authz_fact WHERE sig = {has_role_User_Doc} AND a0 = :user UNION
  SELECT r.a2 FROM mine CROSS JOIN authz_fact r WHERE r.sig = {has_role_Group_Doc} AND r.a0 = mine.id UNION
  SELECT d.a0 FROM granted CROSS JOIN authz_fact d WHERE d.sig = {has_relation_Doc_Folder} AND d.a2 = granted.id)
SELECT id FROM seen WHERE id NOT IN (SELECT a1 FROM authz_fact WHERE sig = {is_blocked_User_Doc} AND a0 = :user)
ORDER BY 1 LIMIT 10001
"""
CHAINED_CHECK = """
WITH RECURSIVE mine(id) AS (
  SELECT a1 FROM authz_fact WHERE sig = {has_group_User_Group} AND a0 = :user UNION
  SELECT g.a1 FROM mine CROSS JOIN authz_fact g WHERE g.sig = {has_group_Group_Group} AND g.a0 = mine.id),
up(id) AS (
  SELECT a2 FROM authz_fact WHERE sig = {has_relation_Doc_Folder} AND a0 = :doc UNION
  SELECT p.a2 FROM up CROSS JOIN authz_fact p WHERE p.sig = {has_relation_Folder_Folder} AND p.a0 = up.id)
SELECT CASE
  WHEN EXISTS (SELECT 1 FROM authz_fact WHERE sig = {is_blocked_User_Doc} AND a0 = :user AND a1 = :doc) THEN 'denied'
  WHEN EXISTS (SELECT 1 FROM authz_fact WHERE sig = {has_role_User_Doc} AND a0 = :user AND a2 = :doc) THEN 'own role'
  WHEN EXISTS (
    SELECT 1 FROM up CROSS JOIN authz_fact r WHERE r.sig = {has_role_User_Folder} AND r.a0 = :user AND r.a2 = up.id
    UNION ALL
    SELECT 1 FROM authz_fact r CROSS JOIN mine
    WHERE r.sig = {has_role_Group_Doc} AND r.a2 = :doc AND mine.id = r.a0
    UNION ALL
    SELECT 1 FROM up CROSS JOIN authz_fact r CROSS JOIN mine
    WHERE r.sig = {has_role_Group_Folder} AND r.a2 = up.id AND mine.id = r.a0) THEN 'group or folder'
  ELSE 'denied' END
"""


@dataclass(frozen=True)
class World:
    name: str
    policy: str
    by_hand: str
    check: str = ""  # by hand, and why


WORLDS = (
    World(
        "levels compared",
        HEAD + 'has_permission(u: User, "read", d: Doc) if clearance(u, l) and level(d, need) and l >= need;',
        """SELECT d.a0 FROM authz_fact c CROSS JOIN authz_fact d WHERE c.sig = {clearance_User_Integer} AND c.a0 = :user
        AND d.sig = {level_Doc_Integer} AND CASE WHEN d.sig = {level_Doc_Integer} THEN CAST(d.a1 AS integer) END
        <= CAST(c.a1 AS integer) ORDER BY 1 LIMIT 10001""",
    ),
    World(
        "attributes untyped",
        HEAD + 'has_permission(u: User, "read", d: Doc) if has(u, key, value) and needs(d, key, value);',
        """SELECT DISTINCT d.a0 FROM authz_fact h CROSS JOIN authz_fact d
        WHERE h.sig = {has_User_String_String} AND h.a0 = :user
        AND d.sig = {needs_Doc_String_String} AND d.a1 = h.a1 AND d.a2 = h.a2 ORDER BY 1 LIMIT 10001""",
    ),
    World(
        "friends of friends",
        HEAD
        + """knows(x: User, y: User) if friend(x, y);
        knows(x: User, y: User) if friend(y, x);
        has_permission(u: User, "read", d: Doc) if knows(u, f) and author(d, f);
        has_permission(u: User, "read", d: Doc) if knows(u, f) and knows(f, g) and author(d, g);""",
        FRIENDS_OF_FRIENDS,
    ),
    World(
        "denials override",
        HEAD
        + """actor Group {} resource Folder {}
        denied(u: User, d: Doc) if deny(u, d);
        denied(u: User, d: Doc) if in_group(u, g) and deny(g, d);
        denied(u: User, d: Doc) if inside(d, f) and deny(u, f);
        has_permission(u: User, "read", d: Doc) if
          in_group(u, g) and reads(g, f) and f matches Folder and inside(d, f) and not denied(u, d);""",
        DENIED,
    ),
    World(
        "labels blocked",
        HEAD
        + """resource Tenant {}
        blocked_doc(u: User, d: Doc) if label(d, l) and l matches String and blocked(u, l);
        has_permission(u: User, "read", d: Doc) if
          in_tenant(u, t) and t matches Tenant and of_tenant(d, t) and not blocked_doc(u, d);""",
        LABELLED,
    ),
    World(
        "groups in chains",
        """actor User {} actor Group {}
        resource Folder {
          roles = ["viewer", "editor"]; relations = { parent: Folder };
          "viewer" if "editor"; role if role on "parent";
        }
        resource Doc {
          roles = ["viewer", "editor"]; permissions = ["read"]; relations = { folder: Folder };
          "viewer" if "editor"; role if role on "folder";
        }
        has_group(x: User, outer: Group) if inner matches Group and has_group(x, inner) and has_group(inner, outer);
        has_group(x: Group, outer: Group) if inner matches Group and has_group(x, inner) and has_group(inner, outer);
        has_role(u: User, role: String, f: Folder) if g matches Group and has_group(u, g) and has_role(g, role, f);
        has_role(u: User, role: String, d: Doc) if g matches Group and has_group(u, g) and has_role(g, role, d);
        has_permission(u: User, "read", d: Doc) if has_role(u, "viewer", d) and not is_blocked(u, d);""",
        CHAINED,
        CHAINED_CHECK,
    ),
)


def facts_of(name: str, rng: Random, count: int) -> Iterator[tuple]:
    """Predicate, and type and id of each argument."""
    users, some = 2000, rng.randrange
    match name:
        case "levels compared":
            yield from (("clearance", ("User", n), ("Integer", n % 10)) for n in range(users))
            yield from (("level", ("Doc", n), ("Integer", some(10))) for n in range(count))
        case "attributes untyped":
            kinds = ("department", "site", "team")
            for n in range(users):
                yield from (("has", ("User", n), ("String", kind), ("String", n % 50)) for kind in kinds)
            for n in range(count):
                yield "needs", ("Doc", n), ("String", rng.choice(kinds)), ("String", some(50))
        case "friends of friends":
            yield from (("friend", ("User", some(5000)), ("User", some(5000))) for _ in range(count * 2 // 5))
            yield from (("author", ("Doc", n), ("User", some(5000))) for n in range(count * 3 // 5))
        case "denials override":
            yield from (("in_group", ("User", n), ("Group", n % 50)) for n in range(users))
            yield from (("reads", ("Group", n % 50), ("Folder", some(5000))) for n in range(20_000))
            yield from (("inside", ("Doc", n), ("Folder", some(5000))) for n in range(count // 2))
            yield from (("deny", ("User", some(users)), ("Doc", some(count // 2))) for _ in range(count // 5))
            yield from (("deny", ("Group", some(50)), ("Doc", some(count // 2))) for _ in range(count // 10))
            yield from (("deny", ("User", some(users)), ("Folder", some(5000))) for _ in range(3000))
        case "labels blocked":
            yield from (("in_tenant", ("User", n), ("Tenant", n % 5)) for n in range(users))
            yield from (("of_tenant", ("Doc", n), ("Tenant", n % 5)) for n in range(count // 2))
            yield from (("label", ("Doc", some(count // 2)), ("String", f"l{some(30)}")) for _ in range(count // 2))
            yield from (("blocked", ("User", some(users)), ("String", f"l{some(30)}")) for _ in range(3000))
        case "groups in chains":  # of six groups; users are in the innermost one
            users, groups, docs = count // 30, count // 370, count * 27 // 100
            folders = docs // 16
            for n in range(groups - 1):
                if n % 6 != 5:
                    yield "has_group", ("Group", n + 1), ("Group", n)
            yield from (("has_group", ("User", n), ("Group", n % (groups // 6) * 6 + 5)) for n in range(users))
            for n in range(folders):
                yield "has_role", ("Group", some(groups)), ("String", "viewer"), ("Folder", n)
                yield "has_role", ("User", some(users)), ("String", "editor"), ("Folder", n)
                if n > 9:
                    yield "has_relation", ("Folder", n), ("String", "parent"), ("Folder", n // 3)
            for n in range(docs):
                yield "has_relation", ("Doc", n), ("String", "folder"), ("Folder", some(folders))
                yield "has_role", ("User", some(users)), ("String", "viewer"), ("Doc", n)
                if n % 2:
                    yield "has_role", ("Group", some(groups)), ("String", "viewer"), ("Doc", n)
                if n % 3:
                    yield "has_role", ("User", some(users)), ("String", "editor"), ("Doc", n)
                else:
                    yield "is_blocked", ("User", some(users)), ("Doc", n)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=100_000, help="of each world, about")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="part of a world's name")
    arguments = parser.parse_args()
    with database(arguments.database) as url:
        standalone.set_up(url)
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        print(f"{'':22}{'first':>10}{'by hand':>10}{'ours':>10}  (ms, p50 of {RUNS}){'ratio':>8}  ids")
        return sum(compare(world, url, arguments.facts) for world in WORLDS if arguments.only in world.name)


def compare(world: World, url: str, count: int) -> int:
    """One line of the table; how many lists differ."""
    from checks.asking.ask import Trusted, answer
    from checks.asking.question import Asked, Page, allow
    from facts.loading import load
    from facts.numbering import count_all
    from facts.wire import Fact
    from policy.models import Environment
    from policy.publishing import publish
    from policy.values import Value

    environment = Environment.objects.create(slug=world.name.replace(" ", "-"), name=world.name)
    publish(environment.pk, world.policy, "")
    rows = dict.fromkeys(facts_of(world.name, Random(7), count))
    facts = (Fact(name, tuple(Value(kind, str(each)) for kind, each in args)) for name, *args in rows)
    load(environment.pk, enumerate(facts, 1))
    count_all()  # as the service does every five minutes
    asker = Trusted(environment.pk)

    def ours(user: str) -> list[str]:
        question = allow(Asked("User", (user,)), Asked("String", ("read",)), Asked("Doc"), ("resource",))
        return [text for (text,) in answer(asker, question, Page(PAGE + 1)).of_one]

    started = time.perf_counter()
    ours(USERS[0])
    first = (time.perf_counter() - started) * 1000
    taken: dict[str, list[float]] = {"hand": [], "ours": []}
    with opened(url) as hand:
        statement = hand.prepared(world.by_hand)
        sides = {"hand": lambda user: [row[0] for row in statement({"user": user})], "ours": ours}
        wrong = sum(sides["hand"](user) != ours(user) for user in USERS)
        ids = sum(len(ours(user)) for user in USERS) // len(USERS)
        for turn in range(RUNS):
            for side, ask in sides.items():
                started = time.perf_counter()
                ask(USERS[turn % len(USERS)])
                taken[side].append((time.perf_counter() - started) * 1000)
    middle = {side: statistics.median(times) for side, times in taken.items()}
    shown = f"{first:>10.0f}{middle['hand']:>10.1f}{middle['ours']:>10.1f}"
    print(f"{world.name:22}{shown}{middle['ours'] / middle['hand']:>25.2f}  {ids}{' WRONG' * bool(wrong)}", flush=True)
    return wrong + (compare_checks(world, url, asker, rows) if world.check else 0)


@dataclass(frozen=True)
class Reading:
    """May somebody read a document? As `compiled_sides` asks it."""

    is_list: bool = False
    action: str = "read"
    resource_type: str = "Doc"


def compare_checks(world: World, url: str, asker: object, rows: Iterable[tuple]) -> int:
    """A line for each reason of an answer; how many answers differ."""
    statements, whole = compiled_sides(asker, Reading())
    wrong = 0
    with opened(url) as hand:
        statement = hand.prepared(world.check)

        def reason(sample: Sample) -> str:
            return statement({"user": sample.actor, "doc": sample.resource})[0][0]

        for name, samples in by_reason(rows, reason).items():
            wrong += sum(whole(sample) != (name != "denied") for sample in samples)
            for sample in samples:
                statements(sample)
            theirs, ours, asked = (at(each, 0.5) for each in taken_in_turns((reason, statements, whole), samples, 1500))
            shown = f"{theirs:,.0f} us by hand, {ours:,.0f} the statement, {asked:,.0f} the question"
            print(f"  check, {name:20}{shown}", flush=True)
    return wrong


def by_reason(rows: Iterable[tuple], reason: Callable[[Sample], str]) -> dict[str, list[Sample]]:
    """Up to 100 checks for each reason, of any user and any document."""
    rng, found = Random(7), {name: [] for name in ("own role", "group or folder", "denied")}
    ids = {"User": set(), "Doc": set()}
    for _, *args in rows:
        for kind, each in args:
            if kind in ids:
                ids[kind].add(str(each))
    users, docs = (sorted(each) for each in ids.values())
    own = [(str(args[0][1]), str(args[2][1])) for name, *args in rows if name == "has_role" and args[2][0] == "Doc"]
    pairs = [(rng.choice(users), rng.choice(docs)) for _ in range(20_000)]
    for pair in [*rng.sample(own, 200), *pairs]:
        sample = Sample(*pair, ())
        found[reason(sample)].append(sample)
    return {name: samples[:100] for name, samples in found.items()}


if __name__ == "__main__":
    sys.exit(main())
