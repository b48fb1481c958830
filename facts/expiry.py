"""Sweeping: facts whose end has come become past facts, in revisions of their own.

No answer depends on sweeping: a fact does not count from its end on. Sweeping keeps the table small, and makes the end
of a fact visible to those who follow the changes. Several processes may sweep at once: each batch takes a turn, and a
process does not find what another one has swept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import connection

from facts.ends import ended
from facts.models import COLUMNS, Row
from facts.numbering import ending_numbers, environments_with_ends
from facts.table import fact_table
from policy.errors import NotFound, Unavailable
from policy.offsets import advance, changing
from policy.revisions import By, Done, Kind, record

log = logging.getLogger("authz.facts")

BATCH = 2_000  # facts that one transaction ends, in a tenth of a second: other writers wait for it
PAUSE = 0.02  # seconds between two, in which other writers have their turns

_BY = By("expiry")


class _NothingEnded(Exception):
    """Another process has swept the facts: roll back, so that no revision is made."""


def sweep_all() -> None:
    """End the facts of every environment whose end has come."""
    for environment_id in environments_with_ends():
        try:
            sweep(environment_id)
        except Unavailable as reason:  # go on: other environments may not be as busy
            log.warning("facts that have ended in environment %d are not swept: %s", environment_id, reason.message)


def sweep(environment_id: int, report: Callable[[int], None] = lambda swept: None) -> int:
    """End them in one environment, batch by batch, and return how many. `report` gets the total after each batch."""
    swept = 0
    while _is_any(environment_id):
        try:
            swept += _sweep_batch(environment_id)
        except (_NothingEnded, NotFound):  # nor is there anything where the environment is gone
            break
        report(swept)
        time.sleep(PAUSE)
    return swept


def _sweep_batch(environment_id: int) -> int:
    with changing():
        turn = advance(environment_id)
        fact_table().lift_time_limit()
        rows = _found(environment_id, BATCH)
        if not rows:
            raise _NothingEnded
        deleted = fact_table().end([(*row, turn.offset) for row in rows])
        record(environment_id, [Done(turn.offset, Kind.EXPIRY, _BY, turn.policy_version_id, deleted=deleted)])
    return deleted


def _is_any(environment_id: int) -> bool:
    """Look without taking a turn, since there is nearly always nothing to do."""
    return bool(_found(environment_id, 1))


def _found(environment_id: int, most: int) -> list[Row]:
    """Return facts whose end has come, earliest end first."""
    numbers = ending_numbers(environment_id)
    if not numbers:
        return []
    listed = ", ".join(map(str, sorted(numbers)))
    with connection.cursor() as cursor:
        # The plus keeps databases from going by the signature: ends that have come are few among its facts.
        cursor.execute(
            f"SELECT sig, {', '.join(COLUMNS)} FROM fact WHERE {ended()} AND +sig IN ({listed})"
            " ORDER BY expires_at LIMIT %s",
            (most,),
        )
        return cursor.fetchall()
