"""What is done for a request, part by part, for whoever watches; `authz_project/observing.py` tells them.

While nobody watches, `is_on` is false, and a place that has something to tell costs that one look:

    began = noticing.now() if noticing.is_on else 0.0
    …
    if noticing.is_on:
        noticing.note("statement", began, rows=len(rows))

A part costs the answer that it is told of: what each question tells is a constant where it can be, by `add`, and has no
time where it took none.

| part | is | facts |
|---|---|---|
| `wait` | waiting | `of`: `thread`, `connection` (until there is one), `turn` (for others who change the same) |
| `compile` | a question's statement, made | `key`: what it is remembered by |
| `found` | a question's statement, found made; takes no time | `key` |
| `statement` | one sent to the database by a question | `rows`; or `failed`: the kind of error |
| `kept` | an answer that was kept, and confirmed; takes no time | |
| `decision` | a question answered; takes no time | `allowed`, `denied`; or `rows` of a list; or neither, of SQL |
| `policy` | a policy's text, compiled | `failed`, where it was refused |
| `change` | what one request changes; takes no time | `entries` |
| `commit` | changes that were committed together; takes no time | `changes` |
| `revision` | one of a commit; takes no time | `kind`, `inserted`, `deleted` |
| `lost` | a connection to the database found dead; takes no time | |
| `log` | the decision log; takes no time | `written`, `dropped`: how many lines |
| `load` | a file of facts, or a request that is one | `failed`, where it was refused |

What lasts is known while it goes on, too: `under_way`.
Facts may have ids and predicates in them: what leaves the process names none.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
now = perf_counter
WAITS_SINCE = "authz.waits_since"  # in what is known of a request: when it was given to another thread, by `now`
MOST = 1_000  # parts that one request keeps; those after them are told as if they were of no request


class Part(NamedTuple):
    name: str
    began: float  # by `now`; 0.0 where it took no time
    seconds: float
    facts: Mapping[str, Any]


Listener = Callable[[Part], None]
Noted = tuple[str, float, float, Mapping[str, Any]]  # as parts are kept: one takes a fifth of the time to make
Parts = list[Noted]


class _Thread(threading.local):
    parts: Parts | None = None  # of the request that this thread answers


is_on = False
under_way: Counter[str] = Counter()  # by the names of parts that last
_counting = threading.Lock()
_FOR_A_THREAD = {"of": "thread"}
_FEW = 10
_ROWS = tuple([{"rows": number} for number in range(_FEW)])
_thread = _Thread()
_listeners: tuple[Listener, ...] = ()


# ---- for those who watch -----------------------------------------------------------------------------------------


def watch(is_watched: bool) -> None:
    """Begin to note parts, or end it."""
    global is_on
    is_on = is_watched


def listen(listeners: tuple[Listener, ...]) -> None:
    """Tell these of parts that belong to no request: of upkeep, and of the few above `MOST`."""
    global _listeners
    _listeners = listeners


def begin(began: float, since: float = 0.0) -> Parts:
    """Begin a request in this thread; its parts come into what is returned. It may have waited for the thread."""
    parts: Parts = [("wait", since, began - since, _FOR_A_THREAD)] if since else []
    _thread.parts = parts
    return parts


def end() -> None:
    _thread.parts = None


# ---- for those who are watched -----------------------------------------------------------------------------------


def note(name: str, began: float | None = None, **facts: object) -> None:
    """Note a part that began then, by `now`, and ends now; without a time, it took none."""
    add((name, 0.0, 0.0, facts) if began is None else (name, began, now() - began, facts))


def add(part: Noted) -> None:
    """Note a part that is at hand. Nobody changes its facts."""
    parts = _thread.parts
    if parts is not None and len(parts) < MOST:
        parts.append(part)
    else:
        _tell(Part._make(part))


def fetched(began: float, rows: int) -> None:
    """Note a statement that began then and ends now, with so many rows: as `note`, for what each question tells."""
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
    """Note what is done inside, for what takes long anyway."""
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
    """Note what is done inside, and that it is under way meanwhile."""
    with _counting:
        under_way[name] += 1
    try:
        with noted(name):
            yield
    finally:
        with _counting:
            under_way[name] -= 1


def carried(work: Callable[[], T]) -> Callable[[], T]:
    """Work that another thread does for this one's request."""
    parts = _thread.parts

    def done() -> T:
        before, _thread.parts = _thread.parts, parts
        try:
            return work()
        finally:
            _thread.parts = before

    return done
