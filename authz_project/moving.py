"""Move an environment to another space while it is in use.

1. Its rows are copied, then what changed meanwhile, until little is left.
2. The old place is closed: it refuses changes, and its keys open nothing. Requests wait (`authz_project.spaces`).
3. What changed last is copied, the new place is opened, and the directory says so. Requests go on there.
4. The old rows are deleted.

Every step is committed, and can be repeated: `finish_moves` ends a move whose process died. Ids, offsets and keys stay
what they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction

from authz_project.database import let_go_if_broken
from authz_project.models import EnvironmentPlace
from authz_project.spaces import SEAL, UNSEAL, NotASpace, in_each, kept, place_of, space_named
from facts.models import PAST, STORED
from facts.table import KEY, delete_keys, execute, fetch
from policy.core.journal import CLOSE, MOVED
from policy.core.spaces import HOME, current, entered
from policy.errors import AuthzError, NotFound, Unavailable
from policy.models import DEFAULT_SLUG, Environment

log = logging.getLogger("authz.spaces")

OF_ENVIRONMENT = "environment_id = {id}"
OF_SIGNATURES = "sig IN (SELECT id FROM authz_signature WHERE environment_id = {id})"
OF_VERSIONS = "version_id IN (SELECT id FROM authz_policy_version WHERE environment_id = {id})"
OF_RESOURCES = "from_scimresource_id IN (SELECT id FROM scim_resource WHERE environment_id = {id})"
OF_OUTBOX = "state_id IN (SELECT id FROM authz_outbox_state WHERE environment_id = {id})"

# Tables, and their rows that belong to an environment. Small ones are copied again at the end.
SMALL = {
    "authz_environment": "id = {id}",
    "authz_policy_version": OF_ENVIRONMENT,
    "authz_signature": OF_ENVIRONMENT,
    "authz_publish_request": OF_VERSIONS,
    "authz_policy_draft": OF_ENVIRONMENT,
    "authz_outbox_state": OF_ENVIRONMENT,
    "authz_outbox_row": OF_OUTBOX,
    "scim_resource": OF_ENVIRONMENT,
    "scim_member": OF_RESOURCES,
    "api_key": OF_ENVIRONMENT,
}
LARGE = {STORED: OF_SIGNATURES, PAST: OF_SIGNATURES, "authz_revision": OF_ENVIRONMENT}
# Rows whose ids tell in which order they were made: the target gives them new ones, before those of later rows.
NUMBERED = {"authz_outbox_row"}
# What is newer than a revision.
NEWER = {STORED: "since > {after}", PAST: "until > {after}", "authz_revision": "number > {after}"}

_COUNTS = "SELECT sig, COUNT(*) FROM {table} WHERE {rows} GROUP BY sig"

FEW = 1_000  # revisions: then the rest can be copied while requests wait
MOST_ROUNDS = 20  # of catching up with writers
AT_ONCE = 5_000  # rows of a statement
IN_FLIGHT = 1.0  # seconds after which the database has done what a process sent before it died


class Move(NamedTuple):
    slug: str
    source: str
    target: str
    facts: int
    pause: float  # seconds for which requests had to wait


Report = Callable[[str], None]


def move(slug: str, target: str, report: Report = lambda step: None) -> Move:
    """Move the environment to the space; an empty name is the home database."""
    with entered(HOME), _alone(slug):
        source = _beginning(slug, target)
        report(f"copying from {shown(source)}")
        moved = _Mover(slug, source, target, report).move()
    log.info("moved environment %s from %s to %s", slug, shown(source), shown(target))
    return moved


def shown(space: str) -> str:
    return f"space {space}" if space else "the home database"


def _beginning(slug: str, target: str) -> str:
    """Check that the move is possible, and note that it begins; return where the environment is."""
    if slug == DEFAULT_SLUG:
        raise NotASpace("Environment `default` stays in the home database.")
    if target != HOME:
        space_named(target)
    place = place_of(slug)
    unfinished = (
        EnvironmentPlace.objects.filter(slug=slug, target__isnull=False).values_list("target", flat=True).first()
    )
    if unfinished is not None and unfinished != target:
        raise NotASpace(
            f"A move of `{slug}` to {shown(unfinished)} was interrupted. Repeat it, or wait for `serve` to end it."
        )
    with entered(place.space):
        environment = Environment.objects.filter(slug=slug).first()
    if environment is None:
        raise NotFound(f"Environment `{slug}` does not exist.")
    if environment.follows not in ("", MOVED):
        raise NotASpace(f"Environment `{slug}` is the copy of a follower, and cannot be moved.")
    if place.space == target:
        raise NotASpace(f"Environment `{slug}` is in {shown(target)} already.")
    with kept(target) if target != HOME else nullcontext():
        EnvironmentPlace.objects.update_or_create(slug=slug, defaults={"space": place.space, "target": target})
    return place.space


@contextmanager
def _alone(slug: str) -> Iterator[None]:
    """Let no other process move the environment; the lock is released if this one dies.

    It is that of a transaction, because a pooler may give each transaction another session.
    """
    with closing(connections.create_connection(DEFAULT_DB_ALIAS)) as lock:
        lock.set_autocommit(False)
        with lock.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('authz move'), hashtext(%s))", [slug])
            (is_ours,) = cursor.fetchone()
        if not is_ours:
            raise Unavailable(f"Environment `{slug}` is being moved by another process.")
        try:
            yield
        finally:
            with suppress(Error):  # the connection may be lost
                lock.rollback()  # PostgreSQL may notice only later that it is closed


@contextmanager
def _unlimited() -> Iterator[None]:
    """Work in a transaction whose statements may take as long as they need."""
    with transaction.atomic():
        execute("SET LOCAL statement_timeout = 0")
        yield


@dataclass
class _Mover:
    slug: str
    source: str
    target: str
    report: Report

    def __post_init__(self) -> None:
        with entered(self.source):
            self.id, self.is_closed = self._found()

    def _found(self) -> tuple[int, bool]:
        environment = Environment.objects.get(slug=self.slug)
        return environment.pk, environment.follows == MOVED

    def move(self) -> Move:
        for place in (self.source, self.target):
            with entered(place):
                let_go_if_broken()
        if not self.is_closed:
            self._copy_all()
            self._catch_up()
        started = time.monotonic()
        self._close()
        if not self._is_open():
            self._copy_rest()
        self._open()
        with entered(self.target), _unlimited():
            facts = sum(count for _, count in fetch(_COUNTS.format(table=STORED, rows=self._of(STORED)), []))
        pause = time.monotonic() - started
        self.report("deleting the old rows")
        with entered(self.source):
            remove(self.id)
        return Move(self.slug, self.source, self.target, facts, pause)

    # ---- steps --------------------------------------------------------------------------------------------------

    def _copy_all(self) -> None:
        with entered(self.target):
            remove(self.id)
        with self._both():
            for table in (*SMALL, *LARGE):
                self._copy(table)
            self._note(self._offset(self.source))
            self._drop_users()
            execute(SEAL, [self.id])

    def _catch_up(self) -> None:
        for _ in range(MOST_ROUNDS):
            behind = self._offset(self.source) - self._offset(self.target)
            self.report(f"{behind:,} revisions behind")
            if behind <= FEW:
                return
            with self._both():
                self._copy_newer()

    def _close(self) -> None:
        """Have the old place refuse changes and keys. Changes that have begun are made before."""
        with entered(self.source), _unlimited():
            execute("UPDATE authz_environment SET follows = %s WHERE id = %s", [MOVED, self.id])
            execute(CLOSE, [self.id])
            if not self.is_closed:
                execute(SEAL, [self.id])
        self.is_closed = True

    def _is_open(self) -> bool:
        with entered(self.target):
            return Environment.objects.filter(pk=self.id, follows="").exists()

    def _copy_rest(self) -> None:
        """Copy what changed last, and compare the numbers of facts: what was deleted without a trace is found so."""
        with self._both():
            self._copy_newer()
            for table in reversed(SMALL):
                self._delete(table)
            for table in SMALL:
                self._copy(table)
            self._drop_users()
            ours, theirs = self._counts(self.source), self._counts(self.target)
            for number in {number for number, _, _ in ours ^ theirs}:
                for table in (STORED, PAST):
                    self._delete(table, f"sig = {number}")
                    self._copy(table, f"sig = {number}")
            self._note(self._offset(self.source))

    def _open(self) -> None:
        with entered(self.target), transaction.atomic():
            execute("UPDATE authz_environment SET follows = '' WHERE id = %s", [self.id])
            execute(UNSEAL, [self.id])
        if self.target == HOME:
            EnvironmentPlace.objects.filter(slug=self.slug).delete()
        else:
            EnvironmentPlace.objects.filter(slug=self.slug).update(space=self.target, target=None)

    def _drop_users(self) -> None:
        """At home, drop what refers to users who were deleted: rows in a space stay as they are."""
        if self.target == HOME:
            gone = "user_id NOT IN (SELECT id FROM auth_user)"
            self._delete("authz_policy_draft", gone)
            requests = self._of("authz_publish_request")
            execute(f"UPDATE authz_publish_request SET user_id = NULL WHERE {requests} AND {gone}")

    # ---- rows ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _both(self) -> Iterator[None]:
        """Work in the target, in a transaction, beside one snapshot of the source."""
        with entered(self.source), _unlimited():
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            with entered(self.target), _unlimited():
                yield

    def _offset(self, place: str) -> int:
        with entered(place):
            offsets = fetch('SELECT "offset" FROM authz_environment WHERE id = %s', [self.id])
        if not offsets:
            raise NotFound(f"Environment `{self.slug}` was deleted meanwhile.")
        return int(offsets[0][0])

    def _note(self, offset: int) -> None:
        """Note the last revision that was copied; the place stays closed."""
        execute('UPDATE authz_environment SET "offset" = %s, follows = %s WHERE id = %s', [offset, MOVED, self.id])

    def _copy_newer(self) -> None:
        after, offset = self._offset(self.target), self._offset(self.source)
        for table in (PAST, "authz_revision"):
            self._delete(table, NEWER[table].format(after=after))
        for gone in (PAST, STORED):  # facts that ended, and those that may have been copied already
            self._delete_keys(gone, after)
        for table in LARGE:
            self._copy(table, NEWER[table].format(after=after))
        self._note(offset)

    def _delete_keys(self, table: str, after: int) -> None:
        """Delete from the target's facts those that the source's table has newer rows of."""
        newer = f"{self._of(table)} AND {NEWER[table].format(after=after)}"
        with entered(self.source):
            rows = fetch(f"SELECT {KEY} FROM {table} WHERE {newer}", [])
        for start in range(0, len(rows), AT_ONCE):
            delete_keys(rows[start : start + AT_ONCE])

    def _of(self, table: str) -> str:
        return {**SMALL, **LARGE}[table].format(id=self.id)

    def _delete(self, table: str, condition: str = "true") -> None:
        execute(f"DELETE FROM {table} WHERE {self._of(table)} AND {condition}")

    def _copy(self, table: str, condition: str = "true") -> None:
        """Copy rows from the source to this space."""
        columns = [name for name in _columns(table) if name != "id" or table not in NUMBERED]
        names, into = ", ".join(f'"{name}"' for name in columns), connection.cursor()
        with entered(self.source):
            origin = connection.cursor()
        order = " ORDER BY id" if table in NUMBERED else ""
        rows = f"COPY (SELECT {names} FROM {table} WHERE {self._of(table)} AND {condition}{order}) TO STDOUT"
        with origin.copy(rows) as read, into.copy(f"COPY {table} ({names}) FROM STDIN") as write:
            for block in read:
                write.write(block)

    def _counts(self, place: str) -> set[tuple[int, int, int]]:
        """Return the number of each signature's facts and past facts."""
        with entered(place):
            counts: dict[int, list[int]] = {}
            for index, table in enumerate((STORED, PAST)):
                for number, count in fetch(_COUNTS.format(table=table, rows=self._of(table)), []):
                    counts.setdefault(number, [0, 0])[index] = count
        return {(number, *of) for number, of in counts.items()}  # type: ignore[misc]


def _columns(table: str) -> list[str]:
    """Return the columns that the table has in this space."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        return [column.name for column in cursor.description or ()]


def remove(environment_id: int) -> None:
    """Delete an environment, if it is here, with all that belongs to it."""
    with _unlimited():
        for table, rows in reversed({**SMALL, **LARGE}.items()):
            execute(f"DELETE FROM {table} WHERE {rows.format(id=environment_id)}")


# ---- moves that were interrupted ------------------------------------------------------------------------------------


def finish_moves() -> None:
    """End the moves whose process died: complete those that had closed the old place, and undo the others."""
    if connection.vendor != "postgresql":
        return
    for slug in EnvironmentPlace.objects.filter(target__isnull=False).values_list("slug", flat=True):
        try:
            with _alone(slug):
                time.sleep(IN_FLIGHT)
                _finish(slug)
        except (Unavailable, AuthzError, Error) as reason:
            log.warning("the move of environment %s is not over: %s", slug, reason)
    in_each(_remove_what_moved)


def _remove_what_moved() -> None:
    """Delete what is left here of environments that have moved away, unless a mover is about to."""
    for environment in Environment.objects.filter(follows=MOVED):
        with suppress(Unavailable), _alone(environment.slug):
            place = place_of(environment.slug)
            is_left = Environment.objects.filter(pk=environment.pk, follows=MOVED).exists()
            if is_left and not place.is_moving and place.space != current():
                remove(environment.pk)


def _finish(slug: str) -> None:
    place = EnvironmentPlace.objects.filter(slug=slug, target__isnull=False).first()
    if place is None:  # it is over
        return
    place_of(slug)
    if place.target:
        space_named(place.target)
    target = str(place.target)
    with entered(place.space):
        is_there = Environment.objects.filter(slug=slug).exists()  # it may have been deleted meanwhile
    if is_there:
        mover = _Mover(slug, place.space, target, lambda step: None)
        if mover.is_closed:
            mover.move()
            log.warning("completed the move of environment %s to %s", slug, shown(target))
            return
    with entered(target):
        for begun in Environment.objects.filter(slug=slug, follows=MOVED):
            remove(begun.pk)
    if place.space == HOME:
        place.delete()
    else:
        EnvironmentPlace.objects.filter(slug=slug).update(target=None)
    log.warning("undid the move of environment %s to %s, which was interrupted", slug, shown(target))
