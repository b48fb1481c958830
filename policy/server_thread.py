"""What a server lets each of its threads do: have a change made with a database connection, and give up its slot.

In a server, threads that wait for the commits of others have no database connection. Such a thread hands each piece of
work that needs a connection to a thread that has one.

A server has few slots, because most questions are answered in less time than it takes to switch threads. A thread that
takes longer than most gives up its slot, so that another request can begin, and goes on without one.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from policy import noticing

T = TypeVar("T")


class _Thread(threading.local):
    hand_on: Callable[[Callable[[], Any]], Any] | None = None  # of a thread without a connection
    give_up: Callable[[], None] | None = None  # of a thread that has a slot


thread = _Thread()


def run_with_connection(change: Callable[[], T]) -> T:
    """Run the change on this thread, or on one with a connection; return what it returns, raise what it raises."""
    if thread.hand_on is None:
        return change()
    return thread.hand_on(noticing.carried(change) if noticing.is_on else change)


def give_up_slot() -> None:
    """Give up this thread's slot, if it has one, so that another thread may begin."""
    if thread.give_up is not None:
        thread.give_up()
