"""The callers' databases in tests: tables made anew for each case, and the produced SQL run over them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import psycopg
import pymysql

Rows = list[tuple]
MANY = 500


class Database(Protocol):
    dialect: str
    dialects: tuple[str, ...]  # all that it understands
    text: str  # a type for texts

    def fresh(self, script: str = "") -> None: ...
    def fill(self, table: str, rows: Sequence[tuple]) -> None: ...
    def run(self, sql: str) -> tuple[list[str], Rows]: ...


@dataclass
class Sqlite:
    connection: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(":memory:"))
    dialect = "sqlite"
    dialects = ("sqlite",)
    text = "text"

    def fresh(self, script: str = "") -> None:
        self.connection.close()
        self.connection = sqlite3.connect(":memory:")
        self.connection.executescript(script)

    def fill(self, table: str, rows: Sequence[tuple]) -> None:
        if rows:
            self.connection.executemany(f"INSERT INTO {table} VALUES ({_marks(rows[0], '?')})", rows)

    def run(self, sql: str) -> tuple[list[str], Rows]:
        cursor = self.connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()


@dataclass
class PostgreSQL:
    connection: psycopg.Connection
    dialect = "postgres"
    dialects = ("postgres",)
    text = "text"

    def fresh(self, script: str = "") -> None:
        self.connection.execute("DROP SCHEMA IF EXISTS caller CASCADE; CREATE SCHEMA caller")
        self.connection.execute("SET search_path TO caller, public")
        if script:
            self.connection.execute(script if self._has_citext else script.replace(" citext", " text"))

    @cached_property
    def _has_citext(self) -> bool:
        found = self.connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'").fetchone()
        if found:
            self.connection.execute("CREATE EXTENSION IF NOT EXISTS citext SCHEMA public")
        return bool(found)

    def fill(self, table: str, rows: Sequence[tuple]) -> None:
        if rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {table} VALUES ({_marks(rows[0], '%s')})", rows)

    def run(self, sql: str) -> tuple[list[str], Rows]:
        cursor = self.connection.execute(sql)
        return [column.name for column in cursor.description], cursor.fetchall()


@dataclass
class MariaDB:
    connection: pymysql.Connection
    dialect = "mariadb"
    dialects = ("mariadb", "mysql")
    text = "varchar(150)"

    def fresh(self, script: str = "") -> None:
        statements = ["DROP DATABASE IF EXISTS caller", "CREATE DATABASE caller CHARACTER SET utf8mb4", "USE caller"]
        statements += [part for part in script.replace(" text", f" {self.text}").split(";") if part.strip()]
        self._each(statements)

    def _each(self, statements: Iterable[str]) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def fill(self, table: str, rows: Sequence[tuple]) -> None:
        if rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {table} VALUES ({_marks(rows[0], '%s')})", rows)

    def run(self, sql: str) -> tuple[list[str], Rows]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return [column[0] for column in cursor.description], [tuple(row) for row in cursor.fetchall()]


DATABASES = (Sqlite, PostgreSQL, MariaDB)


def _marks(row: tuple, mark: str) -> str:
    return ", ".join([mark] * len(row))


def plain(rows: Any) -> list[list[str | None]]:
    """Rows as text: databases differ in how they show a truth value."""
    return [[_shown(value) for value in row] for row in rows]


def _shown(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return str(int(value)) if isinstance(value, bool) else str(value)
