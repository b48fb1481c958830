"""Several statements that read the facts of one moment."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import Error, connection, transaction


@contextmanager
def one_moment() -> Iterator[None]:
    """What is read inside is of one moment, however long it takes; nothing is written, and nobody is held up."""
    if connection.in_atomic_block:  # whoever began it knows what it sees
        yield
    elif connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")  # the framework's own would take the writers' lock
            try:
                yield
            finally:
                with suppress(Error):
                    cursor.execute("ROLLBACK")
    else:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute("SET LOCAL statement_timeout = 0")
            yield
