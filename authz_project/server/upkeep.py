"""Periodic chores, run by one of the server's processes, in a separate thread.

No request waits for a chore. A failure is logged, and the chore runs again when it is next due.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project import sqlite_log
from authz_project.database import let_go_if_broken
from facts import ends, pruning
from policy.errors import Unavailable
from policy.ground.threads import start_thread

log = logging.getLogger("authz.server")


class Chore(NamedTuple):
    name: str
    every: float  # seconds
    do: Callable[[], object]


CHORES = (
    Chore("checkpoint of the SQLite write-ahead log", 10, sqlite_log.keep_small),
    Chore("deletion of expired facts", 60, ends.sweep_all),
    Chore("deletion of old history", 3600, pruning.prune_by_setting),
)


def start_upkeep(chores: Sequence[Chore] = CHORES) -> None:
    """Start the thread that runs each chore now and whenever it is due, for the lifetime of the process."""
    start_thread("upkeep", _keep_up, chores)


def _keep_up(chores: Sequence[Chore]) -> None:
    due = dict.fromkeys(chores, time.monotonic())
    while True:
        for chore in sorted(due, key=due.__getitem__):
            if due[chore] <= time.monotonic():
                _do(chore)
                due[chore] = time.monotonic() + chore.every
        time.sleep(max(0.0, min(due.values()) - time.monotonic()))


def _do(chore: Chore) -> None:
    """Run a chore once, and close its connection afterwards."""
    try:
        let_go_if_broken()
        chore.do()
    except (Unavailable, Error) as reason:  # retried when it is next due
        log.warning("%s: %s", chore.name, reason)
    except Exception:
        log.exception("failed: %s", chore.name)
    with suppress(Error):
        connections[DEFAULT_DB_ALIAS].close()
