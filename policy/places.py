"""A limit on how many threads answer at a time: each holds a place, and a long question gives its place up early.

A server has few places, because most questions are answered in less time than it takes to switch threads. A thread that
takes longer than most gives up its place, so that another request can begin, and goes on without one.
"""

import threading
from collections.abc import Callable


class _Thread(threading.local):
    give_up: Callable[[], None] | None = None  # of a thread that has a place


thread = _Thread()


def give_up() -> None:
    """Give up this thread's place, if it has one, so that another thread may begin."""
    if thread.give_up is not None:
        thread.give_up()
