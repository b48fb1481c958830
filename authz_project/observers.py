"""Reports each answered request to observers: metrics, logs, traces.

The thread that answered a request calls the observers, before the response is sent, whichever way it was answered.
Without observers, this costs a request one comparison at its beginning and one at its end.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import NamedTuple

from django.conf import settings
from django.utils.module_loading import import_string

from authz_project.database import note_connecting
from policy.active import Caller
from policy.core import spans
from policy.core.spans import Noted, Part

log = logging.getLogger("authz.observers")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
ANY_OTHER = "_OTHER"  # any other method, as in OpenTelemetry's conventions
FOR_PEOPLE = frozenset({"admin", "docs", "static"})  # first path segments of what Django serves
OTHER = "other"


class AnsweredRequest(NamedTuple):
    """An answered request. Of the values that callers choose, it has only the request id and `traceparent`."""

    endpoint: str  # its path if it is in the table; or `admin`, `docs`, `static`, `other`
    method: str  # one of `METHODS`, or `_OTHER`
    status: int
    began: float  # by `perf_counter`, as in parts
    seconds: float
    at: float  # when it began, as a Unix time
    request_id: str
    environment: str  # its name when this process last looked the key up; "" without a known key
    key_id: int | None
    traceparent: str
    noted: Sequence[Noted]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts in the order in which they ended. A wait for a thread comes first, before `began`."""
        return tuple(map(Part._make, self.noted))


_new = tuple.__new__  # twice as fast as calling the class
Observer = Callable[[AnsweredRequest], None]
_observers: tuple[tuple[Observer, float], ...] = ()  # each with the minimum duration of its requests, in seconds
_least = math.inf  # the lowest minimum


def observe(observer: Observer, least: float = 0.0) -> None:
    """Report all requests that take at least `least` seconds to the observer, from now on."""
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
    """Return the path if it is an endpoint's, else `admin`, `docs`, `static` or `other` (bounded cardinality)."""
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
    """Report a request that `began` at this `perf_counter` time and ends now. Never raises an `Exception`."""
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


# ---- traces -------------------------------------------------------------------------------------------------------

PROTOCOL = "http/protobuf"


def begin_traces() -> None:
    """Start tracing if OpenTelemetry's variables enable it. Call it once per server process.

    Only then is OpenTelemetry imported. If tracing is impossible, the reason is logged, and requests are answered
    normally.
    """
    log = logging.getLogger("authz.traces")
    if not settings.OTEL_ENDPOINT:
        return
    if settings.OTEL_PROTOCOL not in ("", PROTOCOL):
        log.error("tracing is disabled: OTEL_EXPORTER_OTLP_PROTOCOL must be %s, the only supported protocol", PROTOCOL)
        return
    try:
        traces = import_module("authz_project.traces")
    except ImportError as reason:
        log.error('tracing is disabled: %s; run pip install "authz-project[otel]"', reason)
        return
    traces.start()
