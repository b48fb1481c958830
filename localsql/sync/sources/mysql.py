"""Rows out of MySQL and MariaDB, as the server sends them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from localsql.sync.config import ConfigRejected, Database, SourceFailed, SyncPattern
from localsql.sync.sources.row import AT_ONCE, CONNECT_WITHIN, SourceRow, driver, reading

_PORT = 3306
# The server is to wait for a slow reader, sort by whole ids, and show times the same everywhere.
_SESSION = "SET SESSION net_write_timeout = 3600, max_sort_length = 8192, time_zone = '+00:00'"
_OPTIONS = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "unix_socket", "charset"}


def pymysql(database: Database) -> Any:
    return driver(database, "pymysql", "PyMySQL", "mysql")


def connected(database: Database, cursor: str = "SSCursor") -> Any:
    module = pymysql(database)
    options = {**_address(database), **_tls(database)}
    try:
        connection = module.connect(
            cursorclass=getattr(module.cursors, cursor), connect_timeout=CONNECT_WITHIN, **options
        )
        with connection.cursor() as prepared:
            prepared.execute(_SESSION)
            prepared.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except (module.MySQLError, OSError, RuntimeError) as error:
        raise failed(database, error) from None
    return connection


def failed(database: Database, error: Exception) -> SourceFailed:
    said = error.args[1] if len(error.args) > 1 else str(error)
    return SourceFailed(database.name, database.without_secrets(str(said)))


def rows(pattern: SyncPattern, in_order: bool) -> Iterator[SourceRow]:
    database = pattern.database
    statement = reading(pattern, database.sql_dialect, in_order)
    module = pymysql(database)
    connection = connected(database)
    try:
        with connection.cursor() as cursor:
            cursor.execute("START TRANSACTION READ ONLY")
            cursor.execute(statement)
            while fetched := cursor.fetchmany(AT_ONCE):
                for row in fetched:
                    yield tuple([None if value is None else _text(value) for value in row])
    except (module.MySQLError, OSError) as error:
        raise failed(database, error) from None
    finally:
        connection._force_close()  # without telling the server, which may be gone


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _address(database: Database) -> dict[str, Any]:
    place = f"dbs.{database.name}"
    try:
        url = urlsplit(database.connection)
        port = url.port or _PORT
    except ValueError:
        raise ConfigRejected(place, "is no URL such as mysql://user:password@host:3306/database") from None
    name = unquote(url.path.removeprefix("/"))
    if not url.hostname or not name:
        raise ConfigRejected(place, "must be a URL such as mysql://user:password@host:3306/database")
    given = dict(parse_qsl(url.query))
    if unknown := sorted(set(given) - _OPTIONS):
        raise ConfigRejected(place, f"`{unknown[0]}` is no option here; there is {', '.join(sorted(_OPTIONS))}")
    login = {"user": unquote(url.username or ""), "password": unquote(url.password or "")}
    return {"host": url.hostname, "port": port, "database": name, "charset": "utf8mb4", **login, **given}


def _tls(database: Database) -> dict[str, Any]:
    tls = database.tls
    if not tls.is_required:
        return {}
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not (tls.ca_file or tls.uses_system_certificates):  # encrypted, but the server is not verified
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl": context}
