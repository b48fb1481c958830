"""Following the changes: reading them as they come.

Who waits keeps no connection. What is read, a thread that has one reads, and in one moment with the key of the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from django.db import connection

from facts.feed import Asked, Found, read
from facts.one_moment import one_moment
from policy.active import Caller, confirm
from policy.handing import made, thread
from policy.waking import watch


def found(caller: Caller, asked: Asked, patience: float) -> Found:
    """What there is, as soon as there is something, for whoever holds the caller's key then."""
    return _awaited(caller.environment_id, partial(_read_as, caller), asked, patience)


def every(environment_id: int, asked: Asked, patience: float) -> Iterator[Found]:
    """What there is, and then what comes, without end; nothing, each time that nothing came for so many seconds."""
    while True:
        here = _awaited(environment_id, partial(_read, environment_id), asked, patience)
        yield here
        asked = replace(asked, after=here.after)


def _awaited(environment_id: int, look: Callable[[Asked], Found], asked: Asked, patience: float) -> Found:
    """Revisions without a fact that is asked for wake nobody for long."""
    until = time.monotonic() + patience
    while True:
        here = made(partial(look, asked))
        if here.changes or here.more or time.monotonic() >= until:
            return here
        if thread.hand_on is None and not connection.in_atomic_block:
            connection.close()
        if not watch.wait(environment_id, here.newest, until):
            return here
        asked = replace(asked, after=here.after)


def _read_as(caller: Caller, asked: Asked) -> Found:
    with one_moment():
        return read(confirm(caller).environment_id, asked)


def _read(environment_id: int, asked: Asked) -> Found:
    with one_moment():
        return read(environment_id, asked)
