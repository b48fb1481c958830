"""The state of a database's schema: the migrations that it has, beside those of this program."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader

APPLIED = "SELECT app, name FROM django_migrations"
UNDEFINED_TABLE = "42P01"  # PostgreSQL's code

Migration = tuple[str, str]  # its app and its own name


class SchemaState(NamedTuple):
    """How a database's schema differs from the program's; both fields are empty where they are the same."""

    missing: tuple[Migration, ...]  # those of this program that the database still needs
    unknown: tuple[Migration, ...]  # those that the database has, of apps of this program, and that are not of it

    @property
    def is_current(self) -> bool:
        return not self.missing and not self.unknown

    @property
    def newer(self) -> tuple[Migration, ...]:
        """Return the migrations of a later version of the program: those after the last that it knows of the app."""
        last: dict[str, str] = {}
        for app, name in known():
            last[app] = max(name, last.get(app, ""))
        return tuple((app, name) for app, name in self.unknown if name > last[app])


def state_of_database() -> SchemaState:
    """Compare what is applied with what this program has. One statement."""
    return state_of(applied())


def state_of(applied: Iterable[Migration]) -> SchemaState:
    """Return the state of a database with these migrations. Those of apps that are gone say nothing."""
    has, knows = {(app, name) for app, name in applied}, known()
    ours = {app for app, _ in knows}
    unknown = sorted(each for each in has - knows if each[0] in ours)
    return SchemaState(tuple(sorted(knows - has)), tuple(unknown))


def applied() -> frozenset[Migration]:
    """Return the migrations that the database has; none where it was never prepared."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(APPLIED)
            return frozenset((app, name) for app, name in cursor.fetchall())
    except Error as reason:
        if lacks_tables(reason):
            return frozenset()
        raise


@cache
def known() -> frozenset[Migration]:
    """Return the migrations of this program and of what it is made with."""
    return frozenset(MigrationLoader(None).disk_migrations)


def lacks_tables(error: Exception) -> bool:
    """Say whether a statement failed since the database is not prepared."""
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


def missing_database() -> Path | None:
    """Return the SQLite file that DATABASE_URL names, if it does not exist."""
    if connection.vendor != "sqlite":
        return None
    file = Path(connection.settings_dict["NAME"]).absolute()
    return None if file.exists() else file
