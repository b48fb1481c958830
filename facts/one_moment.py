"""One snapshot of the database for several statements that read facts."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import Error, connection, transaction


@contextmanager
def one_moment() -> Iterator[None]:
    """Open a read-only transaction whose statements all see one snapshot, without a time limit. It blocks no writer."""
    if connection.in_atomic_block:  # the outer transaction decides what is seen
        yield
    elif connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")  # `transaction.atomic` would take the writers' lock
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
