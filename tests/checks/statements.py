"""Counts what is sent to the database, below everything that sends it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection


@contextmanager
def counted() -> Iterator[list[str]]:
    """Every statement that this thread's connection runs, as it runs."""
    connection.ensure_connection()
    found: list[str] = []
    if connection.vendor == "sqlite":
        connection.connection.set_trace_callback(found.append)
        try:
            yield found
        finally:
            connection.connection.set_trace_callback(None)
        return
    execute = psycopg.Cursor.execute

    def noted(self, query, *args, **options):
        found.append(query.decode() if isinstance(query, bytes) else str(query))
        return execute(self, query, *args, **options)

    psycopg.Cursor.execute = noted
    try:
        yield found
    finally:
        psycopg.Cursor.execute = execute
