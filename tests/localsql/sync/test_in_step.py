"""Random edits on both sides, in every kind of database: differences are found exactly, and made the same."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from facts import read, store
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, FactPattern
from localsql.sync import run
from localsql.sync.config import ConfigContext, SourceFailed, config_from_text
from localsql.sync.run import MostDeletes, Passed, SyncOptions
from localsql.sync.sources import connected
from policy.core.journal import NOBODY, By
from policy.values import Value
from tests.localsql.sync.conftest import KINDS
from tests.localsql.sync.sources import config_of

IDS = (
    "ann", "Ann", "ANN", "ann ", "ann  ", " ann", "ben", "ß", "ss", "SS", "ẞ", "é", "e\u0301", "É", "\U0001d49c",
    "😀", "\uffff", "\ue000", "'", "''", '"', "\\", "\\'", "%s", "%(a)s", "?", ":x", "$1", ";--", "\n", "a\tb", "İ",
    "\u0131", "i", "I", "ﬀ", "\uff10", "null", "NULL", "true", "007", "7", "7.0", "\u200b", "a" * 512, "ü" * 256,
    "\x01", "\x7f", "{}", "a,b", "Z", "_",
)  # fmt: skip
ALL = MostDeletes(percent=100, is_said=True)


class Quiet:
    def begin(self, pattern, place):
        return lambda compared: None

    def compared(self, plan):
        pass

    def failed(self, failed):
        pass

    def applying(self, changes):
        return lambda done: None


def passed(environment, config: str, applies: bool = False, skips_bad: bool = False, most: MostDeletes = ALL) -> Passed:
    made = config_from_text(config, ConfigContext(Path(), os.environ))
    return run.passed(environment.pk, made, SyncOptions(applies, most, skips_bad), Quiet())


def fact(who: str, role: str, org: str) -> Fact:
    return Fact("has_role", (Value("User", who), Value("String", role), Value("Org", org)))


def insert(environment, rows) -> None:
    store.apply(environment.pk, [Inserts([fact(*row) for row in rows])])


def delete(environment, rows, by: By = NOBODY) -> None:
    types = ("User", "String", "Org")
    patterns = [FactPattern("has_role", tuple(Argument(*each) for each in zip(types, row))) for row in rows]
    store.apply(environment.pk, [Deletes(patterns)], by)


def stored(environment) -> set[tuple[str, ...]]:
    return {tuple(value.id for value in each.args) for each in read.found(environment.pk, "has_role", ()).facts}


def random_row(random: Random) -> tuple[str, str, str]:
    return random.choice(IDS), random.choice(("member", "owner", "Owner")), random.choice(IDS[:20])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_random_edits_are_found_exactly_and_made_the_same(published, staff_of, kind, seed):
    random, staff = Random(f"{seed} {kind}"), staff_of(kind)
    config = config_of(staff, kind)
    rows = {random_row(random) for _ in range(150)}
    for _ in range(3):
        rows = {row for row in rows if random.random() < 0.8} | {random_row(random) for _ in range(40)}
        staff.fill(random.choices(sorted(rows), k=20) + random.sample(sorted(rows), len(rows)))  # some of them twice
        mine = stored(published)
        insert(published, [random_row(random) for _ in range(20)])
        delete(published, random.sample(sorted(mine), len(mine) // 5))
        mine = stored(published)
        found = passed(published, config)
        (plan,) = found.plans
        counts = len(rows - mine), len(mine - rows), len(rows & mine)
        assert (plan.added.count, plan.deleted.count, plan.equal) == counts
        assert stored(published) == mine
        assert not found.is_in_step
        assert passed(published, config, applies=True).is_in_step
        assert stored(published) == rows
        again = passed(published, config)
        assert again.is_in_step and again.plans[0].equal == len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_every_id_alone_is_told_from_all_others(published, staff_of, kind):
    staff = staff_of(kind)
    staff.fill([(each, "member", "acme") for each in IDS])
    passed(published, config_of(staff, kind), applies=True)
    assert {who for who, _, _ in stored(published)} == set(IDS)
    staff.fill([(each, "member", "acme") for each in IDS[::2]])
    assert passed(published, config_of(staff, kind), applies=True).plans[0].deleted.count == len(IDS[1::2])
    assert {who for who, _, _ in stored(published)} == set(IDS[::2])


@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
def test_what_reads_rows_cannot_write(staff_of, kind):
    """Not even by a function that a query calls."""
    staff = staff_of(kind)
    statement = insert = "INSERT INTO staff VALUES ('ann', 'member', 'acme')"
    if kind == "postgres":
        body = f"$$ {insert} RETURNING who $$"
        staff.execute(f"CREATE OR REPLACE FUNCTION written() RETURNS text LANGUAGE sql AS {body}")
        statement = "SELECT written()"
    (database,) = config_from_text(config_of(staff, kind), ConfigContext(Path())).databases
    with connected(database) as connection, pytest.raises(SourceFailed, match=r"(?i)read.?only"):
        list(connection.rows(statement))


def test_texts_of_sqlite_may_be_anything(published, staff_of):
    staff = staff_of("sqlite")
    staff.execute("DROP TABLE staff; CREATE TABLE staff (who, role TEXT, org TEXT)")
    staff.execute("INSERT INTO staff VALUES (7, 'member', 'acme'), (x'616e6e', 'member', 'acme')")
    assert passed(published, config_of(staff, "sqlite", "sql_types: {User: text}"), applies=True).is_in_step
    assert {who for who, _, _ in stored(published)} == {"7", "ann"}


def test_bytes_that_are_no_text_are_invalid(published, staff_of):
    staff = staff_of("mysql")
    staff.execute("ALTER TABLE staff MODIFY org varbinary(9)")
    staff.execute("INSERT INTO staff VALUES ('ann', 'member', X'4180'), ('ben', 'member', X'4181')")
    found = passed(published, config_of(staff, "mysql"), applies=True)
    assert [each.reason.count("must be well-formed Unicode") for each in found.failed] == [2]
    assert not stored(published)
