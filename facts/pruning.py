"""Sweep facts that have expired, prune old history, and forget past facts for good."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from facts import read
from facts.indexes import PAST
from facts.models import Row, Signature
from facts.numbering import ending_numbers, environments_with_ends, signature_numbers
from facts.read import id_conditions, matching
from facts.table import KEY, delete, ended, fact_table, fetch, of_signatures, select
from facts.wire import FactPattern
from policy.core.clock import new_moment, now_in
from policy.core.config import settings
from policy.core.journal import By, Done, Kind, advance, changing, record
from policy.errors import NotFound, Unavailable
from policy.models import Environment

# ---- Sweeping: expired facts become past facts, in revisions of their own ------------------------------------------
# Results do not depend on sweeping: a fact stops counting when it expires. Sweeping keeps the table small, and makes
# the expiry of a fact visible in the change feed. Several processes may sweep concurrently: each batch takes a turn,
# and a process does not find what another one has swept.

log = logging.getLogger("authz.facts")

SWEPT_AT_ONCE = 2_000  # facts that one transaction ends, in a tenth of a second: other writers wait for it
PAUSE = 0.02  # seconds between two batches, for the turns of other writers

_BY = By("expiry")


class _NothingEnded(Exception):
    """Another process has swept the facts: roll back, so that no revision is added."""


def sweep_all() -> None:
    """End the expired facts of every environment."""
    for environment_id in environments_with_ends():
        try:
            sweep(environment_id)
        except Unavailable as reason:  # continue: other environments may not be as busy
            log.warning("cannot delete expired facts of environment %d: %s", environment_id, reason.message)


def sweep(environment_id: int, report: Callable[[int], None] = lambda swept: None) -> int:
    """End an environment's expired facts, batch by batch; return how many. `report` gets the total after each batch."""
    swept = 0
    while _is_any(environment_id):
        try:
            swept += _sweep_batch(environment_id)
        except (_NothingEnded, NotFound):  # there is nothing to do if the environment is gone
            break
        report(swept)
        time.sleep(PAUSE)
    return swept


def _sweep_batch(environment_id: int) -> int:
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        rows = _expired(environment_id, SWEPT_AT_ONCE)
        if not rows:
            raise _NothingEnded
        deleted = fact_table().end([(*row, turn.offset) for row in rows])
        record(environment_id, [Done(turn.offset, Kind.EXPIRY, _BY, turn.policy_version_id, deleted=deleted)])
    return deleted


def _is_any(environment_id: int) -> bool:
    """Return whether any fact has expired, without taking a turn, since there is nearly always nothing to do."""
    return bool(_expired(environment_id, 1))


def _expired(environment_id: int, most: int) -> list[Row]:
    """Return expired facts, earliest expiry first."""
    numbers = ending_numbers(environment_id)
    if not numbers:
        return []
    # The plus keeps databases from using the index on the signature: few of its facts have expired.
    return fetch(select(KEY, ended(), f"+{of_signatures(sorted(numbers))}", order="expires_at", limit=most))


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
        for gone in _steps(PAST, ("sig = %s", "until <= %s"), number, horizon):
            facts += gone
            report(slug, facts)
    revisions = 0
    for gone in _steps("authz_revision", ("environment_id = %s", "number < %s"), environment_id, horizon):
        revisions += gone
        report(slug, facts + revisions)
    return Pruned(slug, horizon, revisions, facts)


def _moved_horizon(environment_id: int, days: float) -> int:
    """Move the horizon to the last revision that is old enough, never backwards; return the horizon."""
    age = min(int(days * DAY), OLDEST)
    old = f"environment_id = %s AND at <= {now_in(connection.vendor)} - %s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT number FROM authz_revision WHERE {old} ORDER BY at DESC, number DESC LIMIT 1",
            (environment_id, age),
        )
        row = cursor.fetchone()
    number = row[0] if row else 0
    with changing(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE authz_environment SET horizon = %s WHERE id = %s AND horizon < %s", (number, environment_id, number)
        )
        cursor.execute("SELECT horizon FROM authz_environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    return row[0] if row else 0  # no row: the environment was deleted, with all its history


def _steps(table: str, tests: tuple[str, ...], *values: int) -> Iterator[int]:
    """Delete the rows in steps, and yield how many each step deleted; pause as long as each step took."""
    gone = AT_ONCE
    while gone == AT_ONCE:
        began = time.monotonic()
        gone = _step(table, tests, values)
        yield gone
        if gone == AT_ONCE:
            time.sleep(min(time.monotonic() - began, LONGEST_PAUSE))


def _step(table: str, tests: tuple[str, ...], values: tuple[int, ...]) -> int:
    row = "rowid" if connection.vendor == "sqlite" else "ctid"
    old = select(row, *tests, table=table, limit=AT_ONCE)
    with changing(), connection.cursor() as cursor:
        cursor.execute(delete(f"{row} IN ({old})", table=table), values)
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
        cursor.execute("SELECT horizon FROM authz_environment WHERE id = %s", (environment_id,))
        horizon = cursor.fetchone()[0]
        for number in _numbers(environment_id, pattern):
            counted = select("COUNT(*), MIN(since), MAX(until)", f"sig = %s{conditions}", table=PAST)
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
            cursor.execute("UPDATE authz_environment SET moment = %s WHERE id = %s", (new_moment(), environment_id))
            for number in _numbers(environment_id, pattern):
                cursor.execute(delete(f"sig = %s{conditions}", table=PAST), (number, *ids))
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
