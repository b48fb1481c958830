"""The form of the database: which migrations it has, beside those of this program."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader

UNDEFINED_TABLE = "42P01"  # PostgreSQL's code

Name = tuple[str, str]  # of a migration: its app and its own


class Form(NamedTuple):
    """How the database's schema differs from the program's; both fields are empty where they are the same."""

    missing: tuple[str, ...]  # migrations that the database still needs
    newer: tuple[str, ...]  # migrations of a later version of the program


def form() -> Form:
    """Compare what is applied with what this program has. One statement."""
    has, knows = applied(), known()
    last: dict[str, str] = {}
    for app, name in knows:
        last[app] = max(name, last.get(app, ""))
    newer = {(app, name) for app, name in has - knows if app in last and name > last[app]}
    return Form(_told(knows - has), _told(newer))


def applied() -> frozenset[Name]:
    """Return the migrations that the database has; none where it was never prepared."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            return frozenset((app, name) for app, name in cursor.fetchall())
    except Error as reason:
        if lacks_tables(reason):
            return frozenset()
        raise


@cache
def known() -> frozenset[Name]:
    """Return the migrations of this program and of what it is made with."""
    return frozenset(MigrationLoader(None).disk_migrations)


def lacks_tables(error: Exception) -> bool:
    """Say whether a statement failed since the database is not prepared."""
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


def _told(names: frozenset[Name] | set[Name]) -> tuple[str, ...]:
    return tuple(f"{app}.{name}" for app, name in sorted(names))
