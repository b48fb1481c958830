"""Compiled statements beside the ones written by hand, for the same questions, in one run.

    python -m tests.benchmarks.engine --facts 1000000 --database sqlite

For each question, plain and with 100 context facts: the time of the statement by hand, of what the engine executes, and
of the whole question as the endpoints ask it; 50th and 99th percentile in microseconds, and the ratios to the one by
hand. The three take turns, and must give the same answers first.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from unittest.mock import patch

import orjson
import psycopg

from tests import standalone
from tests.benchmarks.generate import BOSS, POLICY, Size, entity, fact, facts_of

CONTEXT_FACTS = 100
SECONDS = 3.0  # for one row of the table, at most


def main() -> int:
    arguments = parsed()
    with database(arguments.database) as url:
        standalone.set_up(url)
        started = time.monotonic()
        caller, size = filled(arguments.facts)
        print(f"{stored()} facts on {arguments.database}, loaded in {time.monotonic() - started:.0f} s")
        return compare(caller, size, arguments.runs, arguments.only)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", default="", help="part of a question's name")
    return parser.parse_args()


@contextmanager
def database(kind: str) -> Iterator[str]:
    from tests import postgresql

    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'benchmark.sqlite3'}"
        return
    server = postgresql.start()
    if server is None:
        raise SystemExit("no PostgreSQL can be started here")
    try:
        yield server.create("benchmark")
    finally:
        server.stop()


def filled(count: int):
    """A caller of an environment with the policy and the facts."""
    from django.core.management import call_command
    from django.db import connection

    from authz_project.keys import create_key
    from facts.loading import load
    from facts.wire import Fact
    from policy.active import Caller
    from policy.models import PolicyVersion, default_environment

    call_command("migrate", verbosity=0)
    environment, size = default_environment(), Size(count)
    environment.policy_version = PolicyVersion.objects.create(environment=environment, number=1, source=POLICY)
    environment.save()
    load(environment.id, enumerate(Fact(*each) for each in facts_of(size)))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE authz_fact")
    return Caller(environment.id, create_key(environment)[0].hash), size


def stored() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM authz_fact")
        return cursor.fetchone()[0]


# ---- the two sides -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One question: who, which resource ("" for a list), and the context facts that come along."""

    actor: str
    resource: str
    context: tuple  # of facts.wire.Fact


Side = Callable[[Sample], object]  # a bool, or a sorted list of ids


def compiled_sides(caller, question) -> tuple[Side, Side]:
    """What the question executes, alone; and the whole question. Only here is it known how the engine is asked."""
    from checks.asking import ask, run
    from checks.asking.question import Asked, Page, allow
    from tests.benchmarks.handwritten import LIMIT

    page = Page(LIMIT) if question.is_list else None
    executed_for: dict[int, list[tuple]] = {}

    def whole(sample: Sample) -> object:
        actor, action = Asked("User", (sample.actor,)), Asked("String", (question.action,))
        resource = Asked(question.resource_type, None if question.is_list else (sample.resource,))
        outs = ("resource",) if question.is_list else ()
        asked = allow(actor, action, resource, outs, sample.context)
        found = ask.answer(caller, asked, page)
        return [row[0] for row in found.of_one] if question.is_list else found.holds

    def statements(sample: Sample) -> object:
        if id(sample) not in executed_for:
            with patch.object(run, "execute", wraps=run.execute) as executing:
                whole(sample)
            executed_for[id(sample)] = [call.args for call in executing.call_args_list]
        return [run.execute(*each) for each in executed_for[id(sample)]]

    return statements, whole


def by_hand(caller, question, brings_facts: bool) -> Side:
    """The same driver, called the same way."""
    from django.db import connection

    text = question.text(connection.vendor, brings_facts)
    brought = number_of(caller, question.brought)
    numbers = {key: number_of(caller, key) for key in re.findall(r"\{(\w+)\}", text) if key != "brought"}
    text = text.format(brought=brought, **numbers)
    names = list(dict.fromkeys(re.findall(r":(\w+)", text)))
    mark = "$" if connection.vendor == "postgresql" else "?"
    text = re.sub(r":(\w+)", lambda found: f"{mark}{names.index(found.group(1)) + 1}", text)

    def run(sample: Sample) -> object:
        given = {"actor": sample.actor, "action": question.action, "resource": sample.resource}
        if brings_facts:
            given["facts"] = as_json(brought, sample)
        rows = executed(text, [given[name] for name in names])
        return [row[0] for row in rows] if question.is_list else bool(rows[0][0])

    return run


def number_of(caller, key: str) -> int:
    """The number of has_role(User, String, Repo), which statements by hand write has_role_User_Repo."""
    from facts.numbering import signature_number
    from policy.rules.program import Signature

    predicate, *types = re.split("_(?=[A-Z])", key)
    if predicate in ("has_role", "has_permission", "has_relation", "allow"):
        types.insert(1, "String")
    return signature_number(caller.environment_id, Signature(predicate, tuple(types)), 0)


def as_json(number: int, sample: Sample) -> str:
    return orjson.dumps([[number, *(value.id for value in each.args), "", ""] for each in sample.context]).decode()


def executed(text: str, values: list) -> list[tuple]:
    from django.db import connection

    connection.ensure_connection()
    if connection.vendor == "postgresql":
        with psycopg.RawCursor(connection.connection) as cursor:
            return cursor.execute(text, values).fetchall()
    return connection.connection.execute(text, values).fetchall()


# ---- samples ---------------------------------------------------------------------------------------------------


def samples_of(caller, question, size: Size, brings_facts: bool) -> list[Sample]:
    """Half of them about what a role is stored for, half about anything."""
    rng = Random(7)
    found = []
    pairs = [*stored_pairs(caller, question, 100), *random_pairs(question, size, rng, 100)]
    for actor, resource in pairs:
        actor = rng.choice(question.actors) if question.actors else actor
        context = context_facts(question, size, rng, actor) if brings_facts else ()
        found.append(Sample(actor, "" if question.is_list else resource, context))
    rng.shuffle(found)
    return found


def stored_pairs(caller, question, count: int) -> list[tuple[str, str]]:
    number = number_of(caller, f"has_role_User_{question.resource_type}")
    # Neighbours in the key would share pages: every so manieth row of many.
    rows = executed(f"SELECT a0, a2 FROM authz_fact WHERE sig = {number} LIMIT {50 * count}", [])
    return [tuple(row) for row in rows[::50]]


def random_pairs(question, size: Size, rng: Random, count: int) -> list[tuple[str, str]]:
    """Anybody and anything; and, where there is something to see, the boss, who sees it by the longest way."""
    kind = question.resource_type
    things = {"Project": size.projects, "Repo": size.repos, "Doc": size.docs}[kind]
    pairs = [(entity("User", rng.randrange(size.users)), entity(kind, rng.randrange(things))) for _ in range(count)]
    if kind != "Project":
        pairs[::3] = [(entity("User", BOSS), entity(kind, rng.randrange(size.listed))) for _ in pairs[::3]]
    return [(actor.id, resource.id) for actor, resource in pairs]


def context_facts(question, size: Size, rng: Random, actor: str) -> tuple:
    from facts.wire import Fact

    kind = question.brought.rpartition("_")[2]
    things = {"Project": size.projects, "Repo": size.repos, "Folder": size.folders}[kind]
    users = [actor, *(rng.randrange(size.users) for _ in range(CONTEXT_FACTS - 1))]
    rows = (fact("has_role", ("User", user), role(rng, kind), (kind, rng.randrange(things))) for user in users)
    return tuple(Fact(*row) for row in rows)


def role(rng: Random, kind: str) -> str:
    return rng.choice(("viewer", "editor", "auditor") if kind == "Folder" else ("reader", "writer", "admin"))


# ---- the table ---------------------------------------------------------------------------------------------------


def compare(caller, size: Size, runs: int, only: str) -> int:
    from tests.benchmarks.handwritten import QUESTIONS

    print(f"{'p50 / p99 in us':32}{'by hand':>18}{'statements':>18}{'question':>18}{'ratios of p50':>18}  answers")
    wrong = 0
    for brings_facts in (False, True):
        for question in QUESTIONS:
            if only in question.name:
                samples = samples_of(caller, question, size, brings_facts)
                try:
                    wrong += row(caller, question, samples, brings_facts, runs)
                except Exception as broken:  # the other rows are worth having
                    wrong += 1
                    print(f"{question.name}: {type(broken).__name__}: {broken}")
    return 1 if wrong else 0


def row(caller, question, samples: list[Sample], brings_facts: bool, runs: int) -> int:
    sides = (by_hand(caller, question, brings_facts), *compiled_sides(caller, question))
    name = question.name + (", with context" if brings_facts else "")
    answers, wrong = agreed(sides, samples)
    if wrong:
        print(f"{name:32}{wrong} of {len(samples)} answers differ")
        return wrong
    times = taken_in_turns(sides, samples, runs)
    middles = [at(each, 0.5) for each in times]
    columns = "".join(f"{at(each, 0.5):>10,.0f} / {at(each, 0.99):>5,.0f}".rjust(18) for each in times)
    ratios = f"{middles[1] / middles[0]:.2f}  {middles[2] / middles[0]:.2f}"
    print(f"{name:32}{columns}{ratios:>18}  {answers}", flush=True)
    return 0


def agreed(sides: tuple[Side, ...], samples: list[Sample]) -> tuple[str, int]:
    """What the answers are like, and how many differ."""
    hand, statements, whole = sides
    told = [(whole(sample), hand(sample)) for sample in samples]
    wrong = sum(1 for mine, theirs in told if mine != theirs)
    for sample in samples:
        statements(sample)  # once, to know what they are
    if isinstance(told[0][0], bool):
        return f"{sum(each[0] for each in told)} of {len(told)} yes", wrong
    return f"{sum(len(each[0]) for each in told) / len(told):,.0f} ids", wrong


def taken_in_turns(sides: tuple[Side, ...], samples: list[Sample], runs: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in sides]
    gc.collect()
    until = time.monotonic() + SECONDS
    for index in range(runs):
        for taken, side in zip(times, sides):
            started = time.perf_counter()
            side(samples[index % len(samples)])
            taken.append((time.perf_counter() - started) * 1e6)
        if time.monotonic() > until:
            break
    return times


def at(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


if __name__ == "__main__":
    sys.exit(main())
