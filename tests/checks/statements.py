"""Counts what is sent to the database, below everything that sends it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

from checks.asking import postgresql


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
    mine = threading.current_thread()
    execute, stream = psycopg.Cursor.execute, psycopg.Cursor.stream
    rows, executed, glance = postgresql.rows, postgresql._executed, postgresql.glance

    def noted(run: Callable) -> Callable:
        def noting(first, statement, *values, **options):
            if threading.current_thread() is mine:  # another may write when a key was last used
                found.append(statement.decode() if isinstance(statement, bytes) else str(statement))
            return run(first, statement, *values, **options)

        return noting

    def glancing(raw: psycopg.Connection, sql: str, value: str) -> tuple | None:
        row = glance(raw, sql, value)
        if row is not None:
            found.append(sql)
        return row

    psycopg.Cursor.execute, psycopg.Cursor.stream = noted(execute), noted(stream)
    postgresql.rows, postgresql._executed, postgresql.glance = noted(rows), noted(executed), glancing
    try:
        yield found
    finally:
        psycopg.Cursor.execute, psycopg.Cursor.stream = execute, stream
        postgresql.rows, postgresql._executed, postgresql.glance = rows, executed, glance
