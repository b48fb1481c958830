"""Places of threads that answer: who takes longer than most gives up the place, so that another one begins.

A server has few places, as most questions are answered sooner than another thread is given the interpreter.
"""

import threading
from collections.abc import Callable


class _Thread(threading.local):
    give_up: Callable[[], None] | None = None  # of a thread that has a place


thread = _Thread()


def give_up() -> None:
    """Let another one begin, and go on."""
    if thread.give_up is not None:
        thread.give_up()
