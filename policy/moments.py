"""Time travel: the moment of an `as_of` query is a revision, its time, and the policy that was active then."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, connection

from policy.active import Seen
from policy.core.clock import microseconds_of, now_in, text_of, time_of_text
from policy.core.config import settings
from policy.errors import AuthzError, MalformedRequest, NotFound
from policy.publishing import version_numbered
from policy.values import LAST_REVISION, whole_number


@dataclass(frozen=True, slots=True)
class Moment:
    """A revision; a time in microseconds, at which facts have expired or not; and the policy version to use."""

    revision: int
    at: int
    version: int | None  # None only for queries about facts alone
    offset: int | None = field(default=None, compare=False)  # the environment's, when the moment was looked up
    # The revision that created the newest signature as of this moment, in the snapshot in which it was looked up.
    signatures: int | None = field(default=None, compare=False)


class MomentNotAvailable(AuthzError):
    """The moment is in the future, before the horizon, or unknown, or there was no policy then."""


AsOf = int | datetime  # a revision's number, or a time
_CLOCKS_APART = 1.0  # seconds by which the clocks of servers may differ

_KNOWN = """
SELECT e.horizon, e."offset", {now}, h.at, r.number, r.at, r.policy_version_id, (
    SELECT MAX(s.since) FROM authz_signature s
    WHERE s.environment_id = e.id AND s.since <= COALESCE(r.number, e."offset")
)
FROM authz_environment e
LEFT JOIN authz_revision h ON h.environment_id = e.id AND h.number = e.horizon
LEFT JOIN authz_revision r ON r.environment_id = e.id AND r.number = {number}
WHERE e.id = %s
"""
_LATEST = "(SELECT MAX(l.number) FROM authz_revision l WHERE l.environment_id = e.id AND l.at <= %s)"


class _Known(NamedTuple):
    """What the database knows of a revision and of its environment."""

    horizon: int
    offset: int
    now: int
    horizon_at: int | None
    number: int | None
    at: int | None
    version: int | None
    signatures: int | None


def moment_of(
    environment_id: int,
    as_of: AsOf | None,
    policy_version: int | None = None,
    needs_policy: bool = True,
    called: str = "as_of",
) -> Moment | None:
    """Return the requested moment; None for now, with the active policy. `policy_version` overrides the policy of then.

    `called` is what error messages call the moment: the request's member, or the command's option.
    """
    if as_of is None and policy_version is None:
        return None
    version_called = "--policy-version" if called == "--as-of" else "policy_version"
    if isinstance(as_of, datetime):
        at = microseconds_of(as_of)
        known = _read(environment_id, _LATEST, at)
        if at > known.now:
            raise MomentNotAvailable(f"{called}: {text_of(at)} is in the future")
        number = _checked(known, known.number or 0, f"{called}: {text_of(at)}")
        if number == known.offset and not _is_settled(at, known.now):
            raise MomentNotAvailable(f"{called}: this replica is not up to date with {text_of(at)} yet; try again")
    elif as_of is not None:
        known = _read(environment_id, "%s", as_of)
        number = _checked(known, as_of, f"{called}: revision {as_of}")
        at = known.at or 0
    else:
        known = _read(environment_id, 'e."offset"')
        number, at = known.offset, known.now
    version = known.version if policy_version is None else _named(environment_id, policy_version, version_called)
    if version is None and needs_policy:
        raise MomentNotAvailable(
            f"no policy was active at revision {number}; set `{version_called}` to use another version"
        )
    return Moment(number, at, version, known.offset, known.signatures or 0)


def seen_since(moment: Moment | None, seen: Seen) -> Seen:
    """Return the earlier position of two statements: of the one that looked up the moment, and of the one on facts."""
    if moment is None or moment.offset is None or moment.offset >= seen.offset:
        return seen
    return Seen(moment.offset)


def present(environment_id: int) -> Moment:
    """Return the present moment, for several consistent queries while others change facts."""
    known = _read(environment_id, 'e."offset"')
    number = _checked(known, known.offset, "now")
    if known.version is None:
        raise MomentNotAvailable("no policy has been published yet")
    return Moment(number, known.now, known.version, signatures=known.signatures or 0)


def as_of_from_text(text: str, path: str) -> AsOf:
    """Parse a revision's number, or an RFC 3339 time."""
    if text.isascii() and text.isdecimal():
        number = whole_number(text, LAST_REVISION)
        if number is None:
            raise MalformedRequest(path, "must be a revision number or a time")
        return number
    try:
        return time_of_text(text)
    except ValueError as reason:
        raise MalformedRequest(path, f"must be a revision number or {str(reason).removeprefix('must be ')}") from None


def check_known(environment_id: int, moment: Moment) -> Moment:
    """Reject a moment whose history was pruned after it was looked up; return it with the signatures as of then."""
    return replace(moment, signatures=check_kept(environment_id, moment.revision))


def check_kept(environment_id: int, revision: int) -> int:
    """Reject a revision whose history was pruned; return the revision that created the newest signature as of then.

    Pruning moves the horizon before it deletes rows. So what was read before this check, and passes it, was complete.
    """
    known = _read(environment_id, "%s", revision)
    _checked(known, revision, f"as_of: revision {revision}")
    return known.signatures or 0


def _read(environment_id: int, number: str, *values: int) -> _Known:
    with connection.cursor() as cursor:
        cursor.execute(_KNOWN.format(now=now_in(connection.vendor), number=number), (*values, environment_id))
        row = cursor.fetchone()
    if row is None:
        raise NotFound("the environment no longer exists")
    return _Known(*row)


def _checked(known: _Known, number: int, asked: str) -> int:
    """Return the revision's number; reject it in the future, before the horizon, or if there is no such revision."""
    if number > known.offset:
        raise MomentNotAvailable(f"{asked} does not exist yet; the latest is revision {known.offset}")
    if number < known.horizon:
        when = f", {text_of(known.horizon_at)}" if known.horizon_at else ""
        since = f"the oldest available is revision {known.horizon}{when}"
        raise MomentNotAvailable(f"{asked} is no longer available; {since}")
    if known.number is None and number:
        raise MomentNotAvailable(f"{asked} does not exist")
    return number


def _is_settled(at: int, now: int) -> bool:
    """Return whether this database surely has everything committed by then: a replica may lag behind the primary."""
    behind = settings.REPLICA_MAX_LAG + _CLOCKS_APART
    return connection.alias == DEFAULT_DB_ALIAS or at < now - int(behind * 1_000_000)


def _named(environment_id: int, number: int, called: str) -> int:
    try:
        return version_numbered(environment_id, number).pk
    except NotFound as reason:
        raise MomentNotAvailable(f"{called}: {reason.message}") from None
