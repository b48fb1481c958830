"""Map every error of a request to one HTTP response, wherever it is raised, and log the service's own faults."""

import logging
import math
import time
from typing import NamedTuple

from django.conf import settings
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework.exceptions import APIException

from authz_project.database import AWAY, Trouble, is_scarcity, note_loss, trouble_of
from authz_project.limits import TooManyRequests
from authz_project.logs.formats import OncePerSecond, more, without_details
from checks.errors import QueryTooSlow
from facts.feed import BeforeHorizon
from policy.core.journal import was_cancelled
from policy.core.memory import exhausted
from policy.errors import AuthzError, Cancelled, KeyRefused, NotFound, ScopeMissing, TooLarge, Unavailable

log = logging.getLogger("authz.request")

LONGEST_LINE = 500  # characters

STATUS = (  # the first match counts
    (ScopeMissing, 403),
    (KeyRefused, 401),
    (TooManyRequests, 429),
    (NotFound, 404),
    (BeforeHorizon, 410),
    (TooLarge, 413),
    (AuthzError, 400),
    (RequestDataTooBig, 413),
    (SuspiciousOperation, 400),
    (BadRequest, 400),
    (MultiPartParserError, 400),
    (UnreadablePostError, 400),
    (Http404, 404),
    (PermissionDenied, 403),
    (Unavailable, 503),
)


class Refusal(NamedTuple):
    """An error response."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


def refusal_of(error: Exception, request_id: str, started: float = math.inf) -> Refusal:
    """Return the response to an error, and log the error if it is the service's fault.

    `started` is when the request began, by `perf_counter`.
    """
    if isinstance(error, APIException):
        return Refusal(error.status_code, {"message": _sentence(error)}, {})
    if was_cancelled(error):
        error = _reason_for_cancelling(started)
    if trouble := _trouble_of(error):
        return _refusal_of(trouble, error, request_id)
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    if status == 500:
        log.error("request %s failed", request_id, exc_info=error)
    elif status > 500:
        said = without_details(str(error))
        _seldom.error(f"request {request_id}: {_message(error, request_id)}: {said}", kind=type(error))
    return Refusal(status, _body(error, request_id), _headers(error))


def _trouble_of(error: Exception) -> Trouble | None:
    """Return what is wrong with the database or the machine, if known."""
    if isinstance(error, (OperationalError, InterfaceError)):
        return trouble_of(error) or AWAY
    return trouble_of(error) if isinstance(error, DatabaseError) or is_scarcity(error) else None


def _refusal_of(trouble: Trouble, error: Exception, request_id: str) -> Refusal:
    if trouble is AWAY:
        note_loss()
    if isinstance(error, MemoryError):
        exhausted()
    _seldom.error(f"request {request_id}: {trouble.message}: {without_details(str(error))}", kind=trouble.message)
    return Refusal(trouble.status, {"message": trouble.message}, trouble.headers)


def _reason_for_cancelling(started: float) -> Exception:
    """Distinguish a timeout from a cancelled statement by the clock: PostgreSQL reports both with the same error."""
    limit = settings.STATEMENT_TIMEOUT
    return QueryTooSlow(limit) if 0 < limit <= time.perf_counter() - started else Cancelled()


def too_large() -> TooLarge:
    return TooLarge(f"the request body is larger than {settings.MAX_BODY_BYTES:,} bytes (MAX_BODY_BYTES)")


def _body(error: Exception, request_id: str) -> dict[str, object]:
    return error.body if isinstance(error, AuthzError) else {"message": _message(error, request_id)}


def _message(error: Exception, request_id: str) -> str:
    match error:
        case RequestDataTooBig():
            return too_large().message
        case TooManyFieldsSent():
            return f"the request has more than {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} parameters"
        case SuspiciousOperation() | BadRequest() | MultiPartParserError() | UnreadablePostError():
            return "the request is malformed"
        case Http404():
            return "Not found"
        case PermissionDenied():
            return "Not allowed"
        case Unavailable():
            return error.message
    return f"internal server error; see request {request_id} in the log"


def _headers(error: Exception) -> dict[str, str]:
    match error:
        case ScopeMissing():
            return {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{error.scope}"'}
        case TooManyRequests():
            return {"Retry-After": str(error.seconds)}
        case KeyRefused():
            return {"WWW-Authenticate": "Bearer"}
        case Unavailable():
            return {"Retry-After": "1"}
    return {}


def _sentence(error: APIException) -> str:
    """Return the framework's first message, uncapitalized, after the path of the field: `a.b: may not be null`."""
    detail, path = error.detail, ""
    while isinstance(detail, dict | list):
        key, detail = next(iter(detail.items())) if isinstance(detail, dict) else ("", detail[0])
        path = path if key in ("", "non_field_errors") else f"{path}.{key}" if path else str(key)
    text = str(detail).rstrip(".")
    text = text[:1].lower() + text[1:]
    return f"{path}: {text}" if path else text


class _Seldom:
    """Logs one line per second and kind of error: while a database is down, every request has the same one."""

    def __init__(self) -> None:
        self._once = OncePerSecond()

    def error(self, text: str, kind: object) -> None:
        left_out = self._once.left_out_before(kind)
        if left_out is not None:
            log.error("%s%s", " ".join(text.split())[:LONGEST_LINE], more(left_out))


_seldom = _Seldom()
