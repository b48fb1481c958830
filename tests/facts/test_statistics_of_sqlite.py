"""SQLite has no statistics of the facts, by which it would choose worse."""

import pytest
from django.core.management import call_command
from django.db import connection


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_what_somebody_counted_is_forgotten_when_the_database_is_prepared(db):
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        assert counted(cursor)
        call_command("migrate", verbosity=0)
        assert not counted(cursor)


def counted(cursor) -> bool:
    cursor.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'")
    return bool(cursor.fetchall())
