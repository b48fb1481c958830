"""The request that a thread answers, for logs, and its timed spans, for metrics, logs and traces."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import getrandbits
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeVar

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


def parts() -> Parts | None:
    """Return the parts of this thread's request, to which `of_request` adds those of other threads."""
    return _thread.parts


def of_request(parts: Parts | None, work: Callable[[], T]) -> T:
    """Return what `work` returns. Its parts belong to the request with these parts."""
    before, _thread.parts = _thread.parts, parts
    try:
        return work()
    finally:
        _thread.parts = before


# ---- current request ----------------------------------------------------------------------------------------------
# The request that this thread is processing, for all log lines that any code writes meanwhile.


class CallerInLog(Protocol):
    """What log lines show of a `Caller`."""

    @property
    def environment(self) -> str: ...
    @property
    def key_id(self) -> int | None: ...


class _Current(threading.local):
    request_id = ""
    path = ""
    caller: CallerInLog | None = None


current = _Current()
_REQUEST_ID = re.compile(r"[!-~]{1,128}", re.ASCII)
_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}  # the digit that holds a UUID's variant


def request_id_of(given: str) -> str:
    """Return the request's own id if it is 1 to 128 printable ASCII characters, else a new one."""
    return given if _REQUEST_ID.fullmatch(given) else new_id()


def new_id() -> str:
    """Return a random UUID, not secure against guessing. The standard library takes five times as long."""
    digits = f"{getrandbits(128):032x}"  # the generator is seeded anew in each process
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def enter(request_id: str, path: str) -> None:
    """Make log lines of this thread name this request from now on. Its caller is not known yet."""
    current.request_id, current.path, current.caller = request_id, path, None


def leave() -> None:
    current.request_id = ""
