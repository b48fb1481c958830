"""Which thread makes a change: the one that received it, or one with a database connection.

In a server, threads that wait for the commits of others have no database connection. Such a thread hands each piece of
work that needs a connection to a thread that has one.
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
    """Run the change on this thread, or on one with a connection; return what it returns, raise what it raises."""
    if thread.hand_on is None:
        return change()
    return thread.hand_on(noticing.carried(change) if noticing.is_on else change)
