"""Following the feed of changes: reading them as they come.

A thread that waits keeps no connection. A thread that has one reads for it, and checks the caller's key in the same
snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from django.db import connection

from facts.feed import FeedPage, FeedRequest, read
from facts.read import read_snapshot
from policy.active import Caller, confirm
from policy.server_thread import run_with_connection, thread
from policy.waking import watch


def found(caller: Caller, asked: FeedRequest, patience: float) -> FeedPage:
    """Return the changes as soon as there are some, or none after `patience` seconds. Each read checks the key."""
    return _awaited(caller.environment_id, partial(_read_as, caller), asked, patience)


def every(environment_id: int, asked: FeedRequest, patience: float) -> Iterator[FeedPage]:
    """Yield changes without end, as they come; yield an empty `FeedPage` whenever `patience` seconds brought none."""
    while True:
        here = _awaited(environment_id, partial(_read, environment_id), asked, patience)
        yield here
        asked = replace(asked, after=here.after)


def _awaited(
    environment_id: int, look: Callable[[FeedRequest], FeedPage], asked: FeedRequest, patience: float
) -> FeedPage:
    """Read until there are changes or time is up. A revision without a fact asked for does not end the waiting."""
    until = time.monotonic() + patience
    while True:
        here = run_with_connection(partial(look, asked))
        if here.changes or here.more or time.monotonic() >= until:
            return here
        if thread.hand_on is None and not connection.in_atomic_block:
            connection.close()
        if not watch.wait(environment_id, here.newest, until):
            return here
        asked = replace(asked, after=here.after)


def _read_as(caller: Caller, asked: FeedRequest) -> FeedPage:
    with read_snapshot():
        return read(confirm(caller).environment_id, asked)


def _read(environment_id: int, asked: FeedRequest) -> FeedPage:
    with read_snapshot():
        return read(environment_id, asked)
