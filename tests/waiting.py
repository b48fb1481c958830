"""Others who write: one that has what all writers of an environment take first, and one that drops history."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from django.db import connection, transaction

from facts.history import prune
from policy.core.journal import advance


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


def elsewhere(act: Callable[[], object]) -> None:
    """Do it as another process would."""

    def work() -> None:
        try:
            act()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()


def do_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str, act: Callable[[], object]) -> list[int]:
    """Have another do something before a function is called for the first time; how often that was."""
    usual, times = getattr(module, name), []

    def called(*args, **more):
        if not times:
            times.append(1)
            elsewhere(act)
        return usual(*args, **more)

    monkeypatch.setattr(module, name, called)
    return times


def prune_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> list[int]:
    """Drop all history before a function is called for the first time; how often that was."""
    return do_before(monkeypatch, module, name, lambda: prune(0))
