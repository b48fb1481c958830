"""The database's clock and timeline."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from threading import Lock
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection

# ---- timeline -----------------------------------------------------------------------------------------------------
# The timeline of the database: a number that PostgreSQL increments whenever a standby is promoted.
#
# A failover may lose committed changes. The numbers of their revisions, policy versions and signatures are then reused
# for other ones, so caches keyed by such numbers are cleared before the first statement on a new timeline.

# The first eight hexadecimal digits of a WAL file's name are the timeline. A server in recovery has no current file.
NUMBER = (
    "CASE WHEN pg_is_in_recovery() THEN 0"
    " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END"
)

log = logging.getLogger("authz.database")

# On Citus, an INSERT from a SELECT must be planned with its values. All others still get one plan, after five times.
PLANS_ON_CITUS = "SELECT set_config('plan_cache_mode', 'auto', false) FROM pg_extension WHERE extname = 'citus'"


class Timeline:
    """The latest timeline that this process has seen; 0 before the first."""

    def __init__(self, forgetting: list[Callable[[], object]] | None = None) -> None:
        self.number = 0
        self.has_moved = False  # whether this process has seen an earlier timeline
        self._lock = Lock()
        self._forgetting: list[Callable[[], object]] = [] if forgetting is None else forgetting

    def forgets(self, forget: Callable[[], object]) -> None:
        """Register a function that clears a cache when the timeline changes."""
        self._forgetting.append(forget)

    def meet(self, number: int) -> None:
        """Note the timeline of a primary; raise `OperationalError` if a later one has been seen."""
        if number in (0, self.number):
            return
        with self._lock:
            if number < self.number:
                raise OperationalError(
                    f"the database is on timeline {number}, but a server on timeline {self.number} has taken over"
                )
            if 0 < self.number < number:
                log.warning("failover: timeline %d follows %d", number, self.number)
                for forget in self._forgetting:
                    forget()
                self.has_moved = True
            self.number = number


timeline = Timeline()
SERVER = "SERVER"  # in Django's settings of a database: the name of a server that has a timeline of its own
_of_servers: dict[str, Timeline] = {}


def timeline_of(connection: Any) -> Timeline:
    """Return the timeline of the connection's server. All of them clear the same caches."""
    name = connection.settings_dict.get(SERVER)
    return _of_servers.setdefault(name, Timeline(timeline._forgetting)) if name else timeline


def meet_connection(sender: object, connection: Any, **_: object) -> None:
    """Read the timeline of a new connection to the primary, before any other statement runs on it.

    If another server of the URL is a primary on a later timeline, replace the connection by one to that server.
    """
    if connection.vendor != "postgresql" or connection.alias != DEFAULT_DB_ALIAS:
        return
    server = import_module("policy.replicas.replica")  # here: it needs PostgreSQL's driver
    first = connection.connection
    try:
        with connection.wrap_database_errors:
            connection.connection, number = server.newest(connection, first)
        if connection.connection is not first:
            connection.set_autocommit(connection.settings_dict["AUTOCOMMIT"])
            connection.init_connection_state()
        timeline_of(connection).meet(number)
    except OperationalError:
        connection.close()
        raise
    connection.timeline = number
    with connection.wrap_database_errors:
        connection.is_citus = bool(connection.connection.execute(PLANS_ON_CITUS).fetchall())
        if connection.is_citus and not connection.connection.execute("SELECT citus_is_coordinator()").fetchone()[0]:
            connection.close()
            raise OperationalError("the server is a worker of Citus, which lacks tables; connect to the coordinator")


def is_citus() -> bool:
    """Return whether this thread's connection is to a server with the extension Citus."""
    connection.ensure_connection()
    return getattr(connection, "is_citus", False)


# ---- clock --------------------------------------------------------------------------------------------------------
# The time by the database's clock, which all servers share, as one integer: microseconds since 1970.

_START = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _START) // timedelta(microseconds=1)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:[0-5]\d)", re.ASCII | re.IGNORECASE)
_LOST_PLUS = re.compile(r" \d\d:\d\d$", re.ASCII)
# SQLite's clock counts milliseconds. As fractions of a day they are off by up to 40 microseconds, hence the rounding.
_NOW = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
}


# On SQLite, Django stores a `DateTimeField` as text, with a fraction only if it is not zero. `CURRENT_TIMESTAMP` never
# has one, so as text it sorts before every time within its second. As numbers, both are exact to the millisecond.
_TO_COME = {"sqlite": "julianday({column}) > julianday('now')", "postgresql": "{column} > CURRENT_TIMESTAMP"}


def is_to_come(vendor: str, column: str) -> str:
    """Return the SQL condition that the time in a `DateTimeField` column is in the future."""
    return _TO_COME[vendor].format(column=column)


def now_in(vendor: str) -> str:
    """Return the SQL expression for the current time."""
    return _NOW[vendor]


def now() -> int:
    """Return the current time; within a transaction too, not the time at which the transaction started."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {now_in(connection.vendor)}")
        return cursor.fetchone()[0]


def time_of(microseconds: int) -> datetime:
    return _START + timedelta(microseconds=microseconds)


def microseconds_of(time: datetime) -> int:
    return (time - _START) // timedelta(microseconds=1)


def time_of_text(text: str) -> datetime:
    """Parse an RFC 3339 time and return it in UTC; raise `ValueError` with advice if it is invalid."""
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(f"must be a time such as 2026-11-03T14:02:11Z, not {text[:40]!r}{_advice(text)}") from None
    if time.tzinfo is None or len(text) < len("2026-11-03T14:02Z"):
        raise ValueError("must be a time with an offset from UTC, such as 2026-11-03T14:02:11Z")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("must be a time within the years 1 to 9999, in UTC") from None


def _advice(text: str) -> str:
    return " (in a URL, encode + as %2B)" if _LOST_PLUS.search(text) else ""


def text_of(microseconds: int) -> str:
    """Format a time for responses: `2026-11-03T14:02:11.123456Z`."""
    return time_of(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def short_text_of(microseconds: int) -> str:
    """Format a time like `text_of`, but with a fraction only if it is not zero: `2026-12-01T00:00:00Z`."""
    return time_of(microseconds).isoformat().replace("+00:00", "Z")


def microseconds_of_text(text: str) -> int:
    """Parse an RFC 3339 time with an offset, as microseconds; raise `ValueError` if it is invalid.

    Digits beyond microseconds are truncated.
    """
    if not _RFC_3339.fullmatch(text):
        raise ValueError("not a time of RFC 3339")
    found = microseconds_of(datetime.fromisoformat(text.upper()))
    if found > _LAST:
        raise ValueError("later than can be written")
    return found


MOMENT_BITS = 62  # of the random number that identifies one state of one environment, even among copies of a database


def new_moment() -> int:
    return secrets.randbits(MOMENT_BITS)
