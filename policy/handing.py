"""Who makes a change: the thread that brings it, or one that has a connection for it.

A server has threads that wait for one another's commits. They have no connection, and hand on what takes one.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from policy import noticing

T = TypeVar("T")


class _Thread(threading.local):
    hand_on: Callable[[Callable[[], Any]], Any] | None = None


thread = _Thread()


def made(change: Callable[[], T]) -> T:
    """Make the change; what it returns, or what it raises."""
    if thread.hand_on is None:
        return change()
    return thread.hand_on(noticing.carried(change) if noticing.is_on else change)
