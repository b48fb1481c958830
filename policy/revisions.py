"""The log of changes: every committed change adds a revision, which says who did what, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from django.db import connection, transaction

from policy import noticing
from policy.clock import now_in
from policy.errors import NotFound
from policy.replicas.reading import note_change
from policy.waking import watch


class Kind(StrEnum):
    FACTS = "facts"  # inserts and deletes
    LOAD = "load"  # a file of facts
    CLEAR = "clear"  # all facts are deleted
    COPY = "copy"  # the facts of another environment
    EXPIRY = "expiry"  # facts whose end has come
    POLICY = "policy"  # another version is active
    ENVIRONMENT = "environment"  # the environment is renamed
    UPGRADE = "upgrade"  # an older database, which kept no revisions, begins to keep them


@dataclass(frozen=True, slots=True)
class By:
    """Who makes a change: `key 3 "billing"`, `admin ann`, `command load_facts`; and in which request."""

    author: str = ""
    request_id: str = ""


NOBODY = By()


def by_command(name: str) -> By:
    return By(f"command {name}")


@dataclass(frozen=True, slots=True)
class Done:
    """A change to be committed as a revision of its own, with how many facts it really changed."""

    number: int
    kind: Kind
    by: By
    policy_version_id: int | None  # the version that is active from this revision on
    inserted: int = 0
    deleted: int = 0


_COLUMNS = "environment_id, number, at, author, request_id, policy_version_id, kind, inserted, deleted"


def record(environment_id: int, changes: Sequence[Done]) -> None:
    """Store the revisions, whose numbers are consecutive. A writing transaction does this last.

    Their time is that of the database's clock, but never less than that of the revision before them.
    """
    latest = "MAX" if connection.vendor == "sqlite" else "GREATEST"
    before = "(SELECT at FROM revision WHERE environment_id = %s AND number = %s)"
    at = f"{latest}({now_in(connection.vendor)}, COALESCE({before}, 0))"
    rows = ", ".join([f"(%s, %s, {at}, %s, %s, %s, %s, %s, %s)"] * len(changes))
    first = changes[0].number
    values: list[str | int | None] = [value for each in changes for value in _values(environment_id, first, each)]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO revision ({_COLUMNS}) VALUES {rows}", values)
    transaction.on_commit(partial(_tell, environment_id, changes[-1].number))
    if noticing.is_on:
        transaction.on_commit(partial(_note, changes))


def _tell(environment_id: int, number: int) -> None:
    """Wake those in this process who wait for changes, and note how far a replica must be to show this change."""
    watch.tell(environment_id, number)
    note_change(environment_id, number)


def _note(changes: Sequence[Done]) -> None:
    for each in changes:
        noticing.note("revision", kind=each.kind.value, inserted=each.inserted, deleted=each.deleted)
    noticing.note("commit", changes=len(changes))


def _values(environment_id: int, first: int, done: Done) -> Iterable[str | int | None]:
    by = done.by
    yield from (environment_id, done.number, environment_id, first - 1, by.author, by.request_id)
    yield from (done.policy_version_id, done.kind.value, done.inserted, done.deleted)


def newest_and_horizon(environment_id: int) -> tuple[int, int]:
    """Return the numbers of the latest revision, and of the oldest one as of which all facts are known."""
    with connection.cursor() as cursor:
        cursor.execute('SELECT "offset", horizon FROM environment WHERE id = %s', (environment_id,))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return row
