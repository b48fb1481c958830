"""The identity of an outbox, by what its server says: files that spell its address differently mean the same one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from localsql.sync.config import Outbox
from localsql.sync.errors import SourceFailed
from localsql.sync.sources import sqlite

Values = Sequence[int | str]
Execute = Callable[[str, Values], list[tuple[Any, ...]]]

_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
_ADDRESS = "SELECT COALESCE(host(inet_server_addr()), 'local') || ':' || current_setting('port')"
_OF_POSTGRESQL = (
    "SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text, to_regclass(%s)::oid::text"
)


def of_postgresql(outbox: Outbox, execute: Execute) -> str:
    readable = execute("SELECT has_function_privilege('pg_control_system()', 'execute')", ())[0][0]
    server = execute(_SYSTEM if readable else _ADDRESS, ())[0][0]
    database, table = execute(_OF_POSTGRESQL, (outbox.table,))[0]
    if table is None:
        raise SourceFailed(outbox.database.name, f"there is no table `{outbox.table}`")
    return f"postgresql {server} {database} {table}"


def of_mysql(outbox: Outbox, execute: Execute) -> str:
    """Return the identity. MariaDB has no UUID of a server: host, port and directory tell its servers apart."""
    server = ""
    with suppress(SourceFailed):
        server = execute("SELECT @@server_uuid", ())[0][0]
    server = server or execute("SELECT CONCAT_WS(':', @@hostname, @@port, @@datadir)", ())[0][0]
    schema, _, table = outbox.table.rpartition(".")
    current, ignores_case = execute("SELECT DATABASE(), @@lower_case_table_names", ())[0]
    name = f"{schema or current}.{table}"
    return f"mysql {server} {name.lower() if ignores_case else name}"


def of_sqlite(outbox: Outbox) -> str:
    path = sqlite.path_of(outbox.database).resolve()
    return f"sqlite {path} {outbox.table.lower().removeprefix('main.')}"
