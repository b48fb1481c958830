"""Waiting for other threads of the process. Who waits has no use for the place that it was given to work at, if any."""

import threading
from typing import Protocol


class Place(Protocol):
    def leave(self) -> None:
        """Let others work there."""

    def come_back(self) -> None:
        """Work on, there or at another place, as soon as there is one."""


class _Thread(threading.local):
    place: Place | None = None


thread = _Thread()


def leave_place() -> None:
    if thread.place is not None:
        thread.place.leave()


def come_back() -> None:
    if thread.place is not None:
        thread.place.come_back()
