"""The counter that every committed change of an environment moves: what clients see as `OsoOffset`."""

from dataclasses import dataclass

from django.db import connection, transaction

from policy.errors import NotFound


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer's place in its environment: the offset it commits, and the policy that holds until then."""

    offset: int
    policy_version_id: int | None


def advance(environment_id: int) -> Turn:
    """Take the environment's next turn. First thing in a writing transaction, so that writers queue here.

    The row stays locked until the transaction ends: writers of one environment follow each other, the
    policy cannot change under one, and with one lock that all take first there is no deadlock.
    """
    assert transaction.get_connection().in_atomic_block, "a turn is part of the transaction that changes something"
    with connection.cursor() as cursor:
        cursor.execute(
            'UPDATE environment SET "offset" = "offset" + 1 WHERE id = %s RETURNING "offset", policy_version_id',
            (environment_id,),
        )
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return Turn(*row)


def current_offset(environment_id: int) -> int:
    """The offset of the last committed change."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset" FROM environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row[0]
