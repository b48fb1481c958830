"""Tells observers of each request that is answered: metrics, logs, traces.

Observers are told in the same way however a request was answered, by the thread that answered it, and before the
response is sent. Without observers, this costs a request one comparison at its beginning, and one at its end.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from authz_project.database import note_connecting
from policy.active import Caller
from policy.ground import spans
from policy.ground.spans import Noted, Part

log = logging.getLogger("authz.observing")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
ANY_OTHER = "_OTHER"  # any other method, as OpenTelemetry's conventions call it
FOR_PEOPLE = frozenset({"admin", "docs", "static"})  # the first segments of paths that Django answers
OTHER = "other"


class AnsweredRequest(NamedTuple):
    """An answered request. Of what a caller chooses freely, it has only the request's id and `traceparent`."""

    endpoint: str  # its path, if it is one of the table's; or `admin`, `docs`, `static`, `other`
    method: str  # one of `METHODS`, or `_OTHER`
    status: int
    began: float  # by `perf_counter`, as parts have it
    seconds: float
    at: float  # when it began, in seconds since 1970
    request_id: str
    environment: str  # its name when this process last looked the key up; "" where no key was known
    key_id: int | None
    traceparent: str
    noted: Sequence[Noted]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts in the order in which they ended. A wait for a thread is first, and lies before `began`."""
        return tuple(map(Part._make, self.noted))


_new = tuple.__new__  # takes half as long as to call the class
Observer = Callable[[AnsweredRequest], None]
_observers: tuple[tuple[Observer, float], ...] = ()  # each with the least seconds of requests that it is told of
_least = math.inf  # the least of those


def observe(observer: Observer, least: float = 0.0) -> None:
    """Tell the observer, from now on, of all requests that take at least `least` seconds."""
    _set_observers((*_observers, (observer, least)))
    note_connecting()


def stop(observer: Observer) -> None:
    _set_observers(tuple([each for each in _observers if each[0] != observer]))


def _set_observers(observers: tuple[tuple[Observer, float], ...]) -> None:
    global _observers, _least
    _observers, _least = observers, min([least for _, least in observers], default=math.inf)
    spans.watch(bool(observers))


@cache
def _endpoints() -> frozenset[str]:
    return frozenset(f"/{path}" for path in import_string(f"{settings.ROOT_URLCONF}.endpoints"))


def name_of(path: str) -> str:
    """Return the path if an endpoint has it, else `admin`, `docs`, `static` or `other`: one of few names."""
    if path in _endpoints():
        return path
    first = path[1:].partition("/")[0]
    return first if first in FOR_PEOPLE else OTHER


def tell(
    endpoint: str,
    method: str,
    status: int,
    began: float,
    request_id: str,
    caller: Caller | None = None,
    traceparent: str = "",
    parts: spans.Parts | None = None,
) -> None:
    """Tell of a request that `began` then, by `perf_counter`, and is answered now. Never raises an `Exception`."""
    seconds = time.perf_counter() - began
    spans.end()
    if seconds < _least:
        return
    environment, key_id = (caller.environment, caller.key_id) if caller is not None else ("", None)
    method = method if method in METHODS else ANY_OTHER
    at = time.time() - seconds
    seen = _new(
        AnsweredRequest,
        (endpoint, method, status, began, seconds, at, request_id, environment, key_id, traceparent, parts or ()),
    )
    for observer, least in _observers:
        try:
            if seconds >= least:
                observer(seen)
        except Exception:
            log.exception("request %s: observer failed", request_id)
