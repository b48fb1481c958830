"""Rows out of PostgreSQL, by a server-side cursor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from localsql.sync.config import Database, SourceFailed, SyncPattern, Tls
from localsql.sync.sources.row import AT_ONCE, CONNECT_WITHIN, SourceRow, driver, reading

# Values look the same whatever a server or a role is set to.
_OPTIONS = "-c timezone=UTC -c datestyle=ISO,YMD -c intervalstyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1"


def psycopg(database: Database) -> Any:
    """Return the driver. It comes with the service, but is only imported if there is a PostgreSQL database."""
    return driver(database, "psycopg", "psycopg", "test")


def connected(database: Database, reads_only: bool = True) -> Any:
    module, url = psycopg(database), database.connection
    try:
        given = module.conninfo.conninfo_to_dict(url)
        options = f"{given.get('options') or ''} {_OPTIONS}".strip()
        wanted: dict[str, Any] = {"connect_timeout": CONNECT_WITHIN, "application_name": "authz sync"}
        own = {name: value for name, value in {**wanted, **_tls(database.tls)}.items() if name not in given}
        connection = module.connect(url, **own, options=options, client_encoding="UTF8")
        connection.read_only = reads_only
    except module.Error as error:
        raise failed(database, error) from None
    return connection


def failed(database: Database, error: Exception) -> SourceFailed:
    return SourceFailed(database.name, database.without_secrets(str(error)))


def rows(pattern: SyncPattern, in_order: bool) -> Iterator[SourceRow]:
    database = pattern.database
    module = psycopg(database)
    statement = reading(pattern, database.sql_dialect, in_order, ' COLLATE "C"')
    with connected(database) as connection:
        try:
            with connection.cursor("authz_sync") as cursor:
                cursor.execute(statement.encode())
                while fetched := cursor.fetchmany(AT_ONCE):
                    yield from fetched
        except module.Error as error:
            raise failed(database, error) from None


def listening(database: Database, channel: str) -> Any:
    """Return a connection that listens to the channel; None if the database is away."""
    with suppress(SourceFailed, psycopg(database).Error):
        connection = connected(database)
        connection.autocommit = True
        connection.execute(f"LISTEN {channel}".encode())
        return connection
    return None


def heard(database: Database, connection: Any) -> bool | None:
    """Say whether something was notified; None if the connection is lost."""
    try:
        return bool(list(connection.notifies(timeout=0)))
    except psycopg(database).Error:
        close(database, connection)
        return None


def close(database: Database, connection: Any) -> None:
    with suppress(psycopg(database).Error):
        connection.close()


def _tls(tls: Tls) -> dict[str, str]:
    if tls.uses_system_certificates:
        return {"sslmode": "verify-full", "sslrootcert": "system"}
    found = {"sslmode": "require"} if tls.is_required else {}
    return {**found, "sslrootcert": tls.ca_file} if tls.ca_file else found
