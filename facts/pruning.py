"""Prune old history, and forget past facts for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from facts import read
from facts.models import Signature
from facts.numbering import signature_numbers
from facts.read import id_conditions, matching
from facts.table import fact_table
from facts.wire import FactPattern
from policy.ground.clock import new_moment, now_in
from policy.ground.journal import changing
from policy.models import Environment

# ---- pruning ------------------------------------------------------------------------------------------------------
# Pruning deletes old history: revisions before the horizon, and past facts that ended by then.
#
# The new horizon is committed first, so that queries as of older revisions are rejected from then on. Then the rows are
# deleted in small transactions, between which others can write. An interrupted run is completed by the next one.
# Readers are never blocked.

AT_ONCE = 5_000  # rows per transaction
DAY = 86_400_000_000  # microseconds
OLDEST = 1 << 60
LONGEST_PAUSE = 0.5  # seconds between two transactions
PruneReport = Callable[[str, int], None]
_OLD_FACTS = "past_fact WHERE sig = %s AND until <= %s"
_OLD_REVISIONS = "revision WHERE environment_id = %s AND number < %s"


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was pruned from an environment."""

    slug: str
    horizon: int  # the new one
    revisions: int
    facts: int


def prune_by_setting() -> None:
    """Prune what is older than `HISTORY_DAYS`; 0 keeps everything."""
    if settings.HISTORY_DAYS:
        prune(settings.HISTORY_DAYS)


def prune(days: float, report: PruneReport = lambda slug, rows: None) -> list[Pruned]:
    """Prune what is older, in every environment. `report` is called with an environment's total after each step."""
    environments = Environment.objects.order_by("slug").values_list("pk", "slug")
    return [_prune(environment_id, slug, days, report) for environment_id, slug in environments]


def _prune(environment_id: int, slug: str, days: float, report: PruneReport) -> Pruned:
    horizon = _moved_horizon(environment_id, days)
    facts = 0
    for number in signature_numbers(environment_id).values():
        for gone in _steps(_OLD_FACTS, number, horizon):
            facts += gone
            report(slug, facts)
    revisions = 0
    for gone in _steps(_OLD_REVISIONS, environment_id, horizon):
        revisions += gone
        report(slug, facts + revisions)
    return Pruned(slug, horizon, revisions, facts)


def _moved_horizon(environment_id: int, days: float) -> int:
    """Move the horizon to the last revision that is old enough, never backwards; return the horizon."""
    age = min(int(days * DAY), OLDEST)
    old = f"environment_id = %s AND at <= {now_in(connection.vendor)} - %s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT number FROM revision WHERE {old} ORDER BY at DESC, number DESC LIMIT 1", (environment_id, age)
        )
        row = cursor.fetchone()
    number = row[0] if row else 0
    with changing(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE environment SET horizon = %s WHERE id = %s AND horizon < %s", (number, environment_id, number)
        )
        cursor.execute("SELECT horizon FROM environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    return row[0] if row else 0  # no row: the environment was deleted, with all its history


def _steps(which: str, *values: int) -> Iterator[int]:
    """Delete the rows in steps, and yield how many each step deleted; pause as long as each step took."""
    gone = AT_ONCE
    while gone == AT_ONCE:
        began = time.monotonic()
        gone = _step(which, *values)
        yield gone
        if gone == AT_ONCE:
            time.sleep(min(time.monotonic() - began, LONGEST_PAUSE))


def _step(which: str, *values: int) -> int:
    row, table = "rowid" if connection.vendor == "sqlite" else "ctid", which.partition(" ")[0]
    with changing(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE {row} IN (SELECT {row} FROM {which} LIMIT {AT_ONCE})", values)
        return cursor.rowcount


# ---- Erase past facts for good: people have a right to be forgotten ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matching:
    """Past facts that a pattern matches, and the revisions at which some of them held, within the history."""

    past: int
    first: int
    last: int
    stored: int  # facts that are still stored


def matches(environment_id: int, pattern: FactPattern) -> Matching:
    past, firsts, lasts = 0, [], []
    conditions, ids = id_conditions(pattern.args)
    with connection.cursor() as cursor:
        cursor.execute("SELECT horizon FROM environment WHERE id = %s", (environment_id,))
        horizon = cursor.fetchone()[0]
        for number in _numbers(environment_id, pattern):
            counted = f"SELECT COUNT(*), MIN(since), MAX(until) FROM past_fact WHERE sig = %s{conditions}"
            cursor.execute(counted, (number, *ids))
            found, first, last = cursor.fetchone()
            if found:
                past += found
                firsts.append(max(first, horizon))
                lasts.append(last - 1)
    return Matching(past, min(firsts, default=0), max(lasts, default=0), read.count(environment_id, pattern))


def forget(environment_id: int, pattern: FactPattern) -> int:
    """Erase the matching past facts, all or none; return how many. Results cached from them are invalidated."""
    conditions, ids = id_conditions(pattern.args)
    forgotten = 0
    with changing():
        _scrub_notes(environment_id)
        fact_table().lift_time_limit()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE environment SET moment = %s WHERE id = %s", (new_moment(), environment_id))
            for number in _numbers(environment_id, pattern):
                cursor.execute(f"DELETE FROM past_fact WHERE sig = %s{conditions}", (number, *ids))
                forgotten += cursor.rowcount
    return forgotten


def _scrub_notes(environment_id: int) -> None:
    """Remove facts from log entries of the admin that were made when these still contained ids."""
    kinds = map(str, signature_numbers(environment_id).values())
    notes = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(Signature), object_id__in=list(kinds)
    )
    for what in ("added", "deleted"):
        notes.filter(change_message__startswith=f"{what} ", change_message__contains="{").update(
            change_message=f"{what.capitalize()} a fact."
        )


def _numbers(environment_id: int, pattern: FactPattern) -> list[int]:
    return list(matching(signature_numbers(environment_id), pattern.predicate, pattern.args).values())
