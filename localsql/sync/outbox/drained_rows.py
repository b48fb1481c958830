"""Which rows of an outbox are made and may still stand in it.

This is optimistic locking, by a number that is called the turn. Each change of what is remembered names the turn that
it goes on from, raises it by one, and fails with `TurnIsOver` if another process has done so before. Then the outbox
has to be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection, transaction

from localsql.models import OutboxRow, OutboxState
from localsql.sync.outbox.tables import Written


class TurnIsOver(Exception):
    """Another process drains the same outbox, and was faster."""


@dataclass(frozen=True, slots=True)
class Turn:
    state: int
    number: int
    rows: dict[int, str]  # numbers, with digests


def turn_of(environment_id: int, name: str) -> Turn:
    """Return the turn and its rows as of one moment, which takes one statement."""
    OutboxState.objects.get_or_create(environment_id=environment_id, name=name)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT outbox_state.id, turn, number, digest FROM outbox_state"
            " LEFT JOIN outbox_row ON outbox_row.state_id = outbox_state.id"
            " WHERE environment_id = %s AND name = %s",
            (environment_id, name),
        )
        found = cursor.fetchall()
    if not found:
        raise TurnIsOver
    return Turn(found[0][0], found[0][1], {number: digest for _, _, number, digest in found if number is not None})


def remember(turn: Turn, rows: Sequence[Written]) -> None:
    """Remember these rows: the first thing in the transaction that makes their changes."""
    assert transaction.get_connection().in_atomic_block, "a row is remembered with its change, or not at all"
    _take(turn)
    made = [OutboxRow(state_id=turn.state, number=row.number, digest=row.digest) for row in rows]
    OutboxRow.objects.bulk_create(made)


def forget(turn: Turn) -> None:
    """Forget the turn's rows, once they are gone from the outbox."""
    with transaction.atomic():
        _take(turn)
        OutboxRow.objects.filter(state_id=turn.state, number__in=list(turn.rows)).delete()


def _take(turn: Turn) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_state SET turn = turn + 1 WHERE id = %s AND turn = %s", (turn.state, turn.number))
        if not cursor.rowcount:
            raise TurnIsOver
