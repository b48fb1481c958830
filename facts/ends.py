"""Facts with an expiry: how they are stored, excluded from statements once expired, and swept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AnySet

from django.db import connection

from facts.models import COLUMNS, ROW_LENGTH, NewRow, Row
from facts.numbering import ending_numbers, environments_with_ends, let_end, numbers_that_may_end
from facts.table import fact_table
from facts.wire import Fact, end_path, some_end
from policy.errors import AuthzError, MalformedRequest, NotFound, Unavailable
from policy.ground.clock import now, now_in, text_of
from policy.ground.journal import By, Done, Kind, WriterTurn, advance, changing, record

# ---- ends ---------------------------------------------------------------------------------------------------------
# Facts with an expiry (`expires_at`): how they are stored, and how statements exclude them once they have expired.
#
# A signature is marked with its first fact that has an expiry; statements on unmarked signatures can ignore expiries. A
# fact has at most one expiry. If it is stored again with a different one, or with none, the old row becomes a past
# fact.


class EndIsPast(MalformedRequest):
    """A fact was to be stored with an expiry in the past."""


class EndsStay(AuthzError):
    """Facts were to be stored again with other expiries, by someone who may add facts but not end any."""

    def __init__(self, rows: AnySet[Row]):
        self.rows = rows
        super().__init__("this fact is already stored with another expiry, and you do not have permission to change it")


class Ends:
    """The expiries that one transaction stores and changes."""

    def __init__(self, environment_id: int, turn: WriterTurn):
        self.environment_id = environment_id
        self.may_end = numbers_that_may_end(environment_id, turn.ends_mark)
        self.revision = turn.offset
        self.changed = 0  # facts that were stored with another expiry

    def make_way(self, rows: Sequence[NewRow], some_end: bool, ends_stay: bool = False) -> None:
        """End the stored facts that are about to be stored with another expiry. Each fact is in at most one row.

        With `ends_stay`, refuse to: giving a fact an expiry in the near future amounts to deleting it.
        """
        if some_end:
            self._mark({row[0] for row in rows if row[-1] is not None})
        said = [row for row in rows if row[0] in self.may_end] if self.may_end else []
        if said:
            changed = fact_table().end_others(said)
            self.changed += changed
            if changed and ends_stay:
                self._check_stayed(said)

    def _check_stayed(self, rows: Sequence[NewRow]) -> None:
        """Raise `EndsStay` if `make_way` ended one of these facts, unless the fact had already expired."""
        listed = ", ".join(str(int(number)) for number in sorted({row[0] for row in rows}))
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT sig, {', '.join(COLUMNS)} FROM past_fact"
                f" WHERE sig IN ({listed}) AND until = %s AND since < until AND {lasting()}",
                (self.revision,),
            )
            lost = {tuple(row) for row in cursor.fetchall()} & {row[:ROW_LENGTH] for row in rows}
        if lost:
            raise EndsStay(lost)

    def _mark(self, numbers: set[int]) -> None:
        new = numbers - self.may_end
        if new:
            let_end(self.environment_id, new)
            self.may_end |= new


def check_ends(facts: Sequence[Fact], path: str | None) -> None:
    """Reject expiries in the past. `path` is that of the array, None if the request is a single fact."""
    if not some_end(facts):
        return
    moment = now()
    for index, fact in enumerate(facts):
        if fact.expires_at is not None:
            check_end(fact.expires_at, moment, "" if path is None else f"{path}[{index}]")


def check_end(end: int, moment: int, path: str) -> None:
    if end <= moment:
        raise EndIsPast(end_path(path), f"is in the past: the current time is {text_of(moment)}")


def parted_by_end(facts: Sequence[Fact]) -> tuple[Sequence[Fact], Sequence[Fact]]:
    """Split facts into those that hold and those that have expired. Among duplicates, the last one's expiry counts.

    p(x) until yesterday, p(y), p(y) until yesterday, p(x)  ->  p(x) and p(y) until yesterday
    """
    if not some_end(facts):
        return facts, ()
    moment = now()
    last = {fact: fact for fact in facts}.values()
    ended = [fact for fact in last if fact.expires_at is not None and fact.expires_at <= moment]
    return [fact for fact in last if fact.expires_at is None or fact.expires_at > moment], ended


# ---- in statements -----------------------------------------------------------------------------------------------


def lasting() -> str:
    """Return the SQL condition that a stored fact has not expired; a statement reads the clock once."""
    return f"(expires_at IS NULL OR expires_at > (SELECT {now_in(connection.vendor)}))"


def ended() -> str:
    """Return the SQL condition that a stored fact has expired; the index on `expires_at` serves it."""
    return f"expires_at <= (SELECT {now_in(connection.vendor)})"


# ---- Sweeping: expired facts become past facts, in revisions of their own ------------------------------------------
# Results do not depend on sweeping: a fact stops counting when it expires. Sweeping keeps the table small, and makes
# the expiry of a fact visible in the change feed. Several processes may sweep concurrently: each batch takes a turn,
# and a process does not find what another one has swept.

log = logging.getLogger("authz.facts")

BATCH = 2_000  # facts that one transaction ends, in a tenth of a second: other writers wait for it
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
        rows = _found(environment_id, BATCH)
        if not rows:
            raise _NothingEnded
        deleted = fact_table().end([(*row, turn.offset) for row in rows])
        record(environment_id, [Done(turn.offset, Kind.EXPIRY, _BY, turn.policy_version_id, deleted=deleted)])
    return deleted


def _is_any(environment_id: int) -> bool:
    """Return whether any fact has expired, without taking a turn, since there is nearly always nothing to do."""
    return bool(_found(environment_id, 1))


def _found(environment_id: int, most: int) -> list[Row]:
    """Return expired facts, earliest expiry first."""
    numbers = ending_numbers(environment_id)
    if not numbers:
        return []
    listed = ", ".join(map(str, sorted(numbers)))
    with connection.cursor() as cursor:
        # The plus keeps databases from using the index on the signature: few of its facts have expired.
        cursor.execute(
            f"SELECT sig, {', '.join(COLUMNS)} FROM fact WHERE {ended()} AND +sig IN ({listed})"
            " ORDER BY expires_at LIMIT %s",
            (most,),
        )
        return cursor.fetchall()
