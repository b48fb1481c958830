"""Timed spans of a request, for metrics, logs and traces."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
now = perf_counter
WAITS_SINCE = "authz.waits_since"  # in a request's environ: when it began to wait for a thread, by `now`
MOST = 1_000  # parts that one request keeps; further ones are reported as if they belonged to no request


class Part(NamedTuple):
    name: str
    began: float  # by `now`; 0.0 for an event without duration
    seconds: float
    facts: Mapping[str, Any]


Listener = Callable[[Part], None]
Noted = tuple[str, float, float, Mapping[str, Any]]  # a part as it is stored: a `Part` takes five times as long
Parts = list[Noted]


class _ThreadParts(threading.local):
    parts: Parts | None = None  # of the request that this thread answers


is_on = False
under_way: Counter[str] = Counter()  # by the names of parts in progress
_counting = threading.Lock()
_FOR_A_THREAD = {"of": "thread"}
_FEW = 10
_ROWS = tuple([{"rows": number} for number in range(_FEW)])
_thread = _ThreadParts()
_listeners: tuple[Listener, ...] = ()


# ---- for observers --------------------------------------------------------------------------------------------------


def watch(is_watched: bool) -> None:
    """Start or stop recording parts."""
    global is_on
    is_on = is_watched


def listen(listeners: tuple[Listener, ...]) -> None:
    """Set the listeners for parts that belong to no request: those of background work, and those beyond `MOST`."""
    global _listeners
    _listeners = listeners


def begin(began: float, since: float = 0.0) -> Parts:
    """Begin a request in this thread, and return its list of parts. `since` is when it began to wait, if it did."""
    parts: Parts = [("wait", since, began - since, _FOR_A_THREAD)] if since else []
    _thread.parts = parts
    return parts


def end() -> None:
    _thread.parts = None


# ---- for the observed ------------------------------------------------------------------------------------------------


def note(name: str, began: float | None = None, **facts: object) -> None:
    """Record a part that started at `began`, by `now`, and ends now; without `began`, an event without duration."""
    add((name, 0.0, 0.0, facts) if began is None else (name, began, now() - began, facts))


def add(part: Noted) -> None:
    """Record a part that is already built. Its facts must not change afterwards."""
    parts = _thread.parts
    if parts is not None and len(parts) < MOST:
        parts.append(part)
    else:
        _tell(Part._make(part))


def fetched(began: float, rows: int) -> None:
    """Record a statement that started at `began` and returned this many rows: a faster `note`, for every query."""
    part = ("statement", began, now() - began, _ROWS[rows] if rows < _FEW else {"rows": rows})
    parts = _thread.parts
    if parts is not None and len(parts) < MOST:
        parts.append(part)
    else:
        _tell(Part._make(part))


def _tell(part: Part) -> None:
    for each in _listeners:
        each(part)


@contextmanager
def noted(name: str, **facts: object) -> Iterator[None]:
    """Record the block as a part, with the type of its error if it fails. For slow operations: `note` is faster."""
    if not is_on:
        yield
        return
    began = now()
    try:
        yield
    except BaseException as error:
        note(name, began, **facts, failed=type(error).__name__)
        raise
    note(name, began, **facts)


@contextmanager
def lasting(name: str) -> Iterator[None]:
    """Record the block as a part, and count it in `under_way` meanwhile."""
    with _counting:
        under_way[name] += 1
    try:
        with noted(name):
            yield
    finally:
        with _counting:
            under_way[name] -= 1


def carried(work: Callable[[], T]) -> Callable[[], T]:
    """Wrap `work` to run in another thread: its parts belong to this thread's request."""
    parts = _thread.parts

    def done() -> T:
        before, _thread.parts = _thread.parts, parts
        try:
            return work()
        finally:
            _thread.parts = before

    return done
