"""Periodic tasks, run by one of the server's processes, in a separate thread.

No request waits for a task. A failure is logged, and the task runs again when it is next due.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, Error, connections

from authz_project.database import keep_small, let_go_if_broken
from authz_project.moving import finish_moves
from authz_project.spaces import in_each
from facts import history, numbering
from policy.core.threads import start_thread
from policy.errors import Unavailable

log = logging.getLogger("authz.server")


class PeriodicTask(NamedTuple):
    name: str
    every: float  # seconds
    do: Callable[[], object]


TASKS = (
    PeriodicTask("checkpoint of the SQLite write-ahead log", 10, keep_small),
    PeriodicTask("moves between spaces that were interrupted", 10, finish_moves),
    PeriodicTask("deletion of expired facts", 60, partial(in_each, history.sweep_all)),
    PeriodicTask("counting of facts, by which questions are planned", 300, partial(in_each, numbering.count_all)),
    PeriodicTask("deletion of old history", 3600, partial(in_each, history.prune_by_setting)),
)


def start_upkeep(tasks: Sequence[PeriodicTask] = TASKS) -> None:
    """Start the thread that runs each task now and whenever it is due, for the lifetime of the process."""
    start_thread("upkeep", _keep_up, tasks)


def _keep_up(tasks: Sequence[PeriodicTask]) -> None:
    due = dict.fromkeys(tasks, time.monotonic())
    while True:
        for task in sorted(due, key=due.__getitem__):
            if due[task] <= time.monotonic():
                _do(task)
                due[task] = time.monotonic() + task.every
        time.sleep(max(0.0, min(due.values()) - time.monotonic()))


def _do(task: PeriodicTask) -> None:
    """Run a task once, and close its connection afterwards."""
    try:
        let_go_if_broken()
        task.do()
    except (Unavailable, Error) as reason:  # retried when it is next due
        log.warning("%s: %s", task.name, reason)
    except Exception:
        log.exception("%s: failed", task.name)
    with suppress(Error):
        connections[DEFAULT_DB_ALIAS].close()
