"""An application's table of who has which role where, in each kind of database that facts can be kept in step with."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
import pymysql

from tests.mariadb import Server as MariaDBServer

Row = Sequence[str | None]
KEY = "has_role(User:_, String:_, Org:_)"


class Staff(Protocol):
    """The table, and how a file names it."""

    connection_string: str

    def fill(self, rows: Iterable[Row]) -> None: ...
    def execute(self, statement: str) -> None: ...


def config_of(staff: Staff, kind: str, more: str = "") -> str:
    query = "" if kind == "csv" else ", query: 'SELECT who, role, org FROM staff'"
    return (
        f"facts:\n  {KEY}: {{db: app{query}}}\n"
        f"dbs:\n  app: {{type: {kind}, connection_string: '{staff.connection_string}'}}\n{more}"
    )


@dataclass
class SqliteStaff:
    path: Path

    def __post_init__(self):
        self.execute("DROP TABLE IF EXISTS staff")
        self.execute("CREATE TABLE staff (who TEXT COLLATE NOCASE, role TEXT, org TEXT COLLATE RTRIM)")

    @property
    def connection_string(self) -> str:
        return f"sqlite:///{self.path}"

    def fill(self, rows: Iterable[Row]) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("DELETE FROM staff")
            connection.executemany("INSERT INTO staff VALUES (?, ?, ?)", [tuple(row) for row in rows])

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executescript(statement)


@dataclass
class PostgresqlStaff:
    connection_string: str

    def __post_init__(self):
        self.execute("DROP TABLE IF EXISTS staff; CREATE TABLE staff (who text, role varchar(600), org text)")

    def fill(self, rows: Iterable[Row]) -> None:
        with psycopg.connect(self.connection_string) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE staff")
            cursor.executemany("INSERT INTO staff VALUES (%s, %s, %s)", [tuple(row) for row in rows])

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.connection_string) as connection:
            connection.execute(statement)


@dataclass
class MariadbStaff:
    """By a collation that sees no case, no accents and no blanks at the end."""

    server: MariaDBServer
    name: str = "synced"

    def __post_init__(self):
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self.name}")
            cursor.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        self.execute("CREATE TABLE staff (who varchar(600), role varchar(600), org varchar(600))")

    @property
    def connection_string(self) -> str:
        return f"mysql://tests:tests@127.0.0.1:{self.server.port}/{self.name}"

    def connect(self, **options) -> pymysql.Connection:
        return self.server.connect(database=self.name, charset="utf8mb4", **options)

    def fill(self, rows: Iterable[Row]) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("DELETE FROM staff")
            cursor.executemany("INSERT INTO staff VALUES (%s, %s, %s)", [tuple(row) for row in rows])

    def execute(self, statement: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for each in filter(str.strip, statement.split(";")):
                cursor.execute(each)


@dataclass
class CsvStaff:
    path: Path

    def __post_init__(self):
        self.fill([])

    @property
    def connection_string(self) -> str:
        return str(self.path)

    def fill(self, rows: Iterable[Row]) -> None:
        with self.path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["who", "role", "org"])
            writer.writerows(rows)

    def execute(self, statement: str) -> None:
        raise NotImplementedError
