"""Another writer, who has what all writers of an environment take first."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from django.db import connection, transaction

from policy.offsets import advance


@contextmanager
def another_writer(environment_id: int) -> Iterator[Event]:
    """Is at work until the end, or until the event is set."""
    begun, done = Event(), Event()

    def work() -> None:
        try:
            with transaction.atomic():
                advance(environment_id)
                begun.set()
                done.wait(30)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        assert begun.wait(20)
        try:
            yield done
        finally:
            done.set()
            working.result()
