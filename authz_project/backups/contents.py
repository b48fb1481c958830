"""What is in the database that is connected: whether it agrees with itself, and whether it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from authz_project.backups.answering import finding_of_policy
from authz_project.backups.backup_finding import BackupFinding, schema_finding, wrong
from authz_project.models import ApiKey
from authz_project.schema_state import state_of
from policy.management.command import counted
from policy.models import Environment


def findings() -> Iterator[BackupFinding]:
    """Look at everything; where the form is not the program's, at nothing else."""
    state = state_of(MigrationRecorder(connection).applied_migrations())
    schema = schema_finding(state)
    if not state.is_current:
        yield wrong(schema.what, schema.text)
        return
    yield schema
    yield _signatures()
    environments = counted(Environment.objects.count(), "environment")
    yield BackupFinding("keys", f"{counted(ApiKey.objects.count(), 'key')} of {environments}")
    for environment in Environment.objects.select_related("policy_version").order_by("slug"):
        yield _facts_and_revisions(environment)
        yield finding_of_policy(environment)


def _signatures() -> BackupFinding:
    """Check that the signature of every fact exists: no foreign key of the database enforces it."""
    lost = 0
    for table in ("fact", "past_fact"):
        used = f"SELECT COUNT(*) FROM (SELECT DISTINCT sig FROM {table}) AS used"
        lost += _rows(f"{used} WHERE NOT EXISTS (SELECT 1 FROM signature s WHERE s.id = used.sig)")[0][0]
    if lost:
        return wrong("signatures", f"facts are of {lost:,} signatures that are not there")
    return BackupFinding("signatures", "every fact is of one that is there")


# ---- facts beside the revisions that made them ----------------------------------------------------------------------


class _Stored(NamedTuple):
    """Rows of an environment, by the revisions that they name."""

    facts: int
    past: int
    latest: int  # of all that they name
    at_horizon: int  # what held then, as far as it is still known
    backwards: int  # past facts that ended before they began
    early: int  # facts, past ones too, that began before there were any of their signature


def _facts_and_revisions(environment: Environment) -> BackupFinding:
    what = f"facts of `{environment.slug}`"
    offset, horizon = environment.offset, environment.horizon
    stored = _stored(environment)
    revisions, newest, version, inserted, deleted = _revisions(environment)
    expected = max(0, offset - max(horizon, 1) + 1)
    known = stored.at_horizon + inserted - deleted
    faults = {
        f"the offset is {offset:,}, and the last revision {newest:,}": offset and newest != offset,
        f"{abs(expected - revisions):,} revisions are {'missing' if revisions < expected else 'too many'}":
            revisions != expected,
        f"they name revision {stored.latest:,}, and the last one is {offset:,}": stored.latest > offset,
        f"{stored.backwards:,} past facts ended before they began": stored.backwards,
        f"{stored.early:,} facts began before there were any of their signature": stored.early,
        "the active policy is not the last revision's": offset and newest == offset
            and version != environment.policy_version_id,
        # Forgetting takes past facts away, so that more may be stored than is known to have been inserted.
        f"{stored.facts:,} are stored, and the revisions come to {known:,}":
            stored.facts < known or (horizon == 0 and stored.facts != known),
        "the horizon is after the last revision": horizon > offset,
    }  # fmt: skip
    if found := [fault for fault, is_there in faults.items() if is_there]:
        return wrong(what, "; ".join(found))
    since = f", known since revision {horizon:,}" if horizon else ""
    return BackupFinding(what, f"{stored.facts:,} stored and {stored.past:,} past at revision {offset:,}{since}")


def _stored(environment: Environment) -> _Stored:
    mine = "JOIN signature s ON s.id = f.sig WHERE s.environment_id = %s"
    early = "COALESCE(SUM(CASE WHEN f.since < s.since THEN 1 ELSE 0 END), 0)"
    horizon = environment.horizon
    ((facts, since, facts_then, facts_early),) = _rows(
        "SELECT COUNT(*), COALESCE(MAX(f.since), 0), COALESCE(SUM(CASE WHEN f.since <= %s THEN 1 ELSE 0 END), 0),"
        f" {early} FROM fact f {mine}",
        (horizon, environment.pk),
    )
    ((past, until, past_then, backwards, past_early),) = _rows(
        "SELECT COUNT(*), COALESCE(MAX(f.until), 0),"
        " COALESCE(SUM(CASE WHEN f.since <= %s AND f.until > %s THEN 1 ELSE 0 END), 0),"
        f" COALESCE(SUM(CASE WHEN f.since >= f.until THEN 1 ELSE 0 END), 0), {early} FROM past_fact f {mine}",
        (horizon, horizon, environment.pk),
    )
    latest, at_horizon = max(since, until), facts_then + past_then
    return _Stored(facts, past, latest, at_horizon, backwards, facts_early + past_early)


def _revisions(environment: Environment) -> tuple[int, int, int | None, int, int]:
    """Return how many there are from the horizon on, the newest with its policy, and what those since changed."""
    horizon = environment.horizon
    ((number, newest, inserted, deleted),) = _rows(
        "SELECT COUNT(*), COALESCE(MAX(number), 0),"
        " COALESCE(SUM(CASE WHEN number > %s THEN inserted ELSE 0 END), 0),"
        " COALESCE(SUM(CASE WHEN number > %s THEN deleted ELSE 0 END), 0)"
        " FROM revision WHERE environment_id = %s AND number >= %s",
        (horizon, horizon, environment.pk, max(horizon, 1)),
    )
    last = _rows(
        "SELECT policy_version_id FROM revision WHERE environment_id = %s AND number = %s", (environment.pk, newest)
    )
    return number, newest, last[0][0] if last else None, int(inserted), int(deleted)


def _rows(statement: str, values: Sequence[int] = ()) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall()
