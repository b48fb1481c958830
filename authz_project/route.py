"""Dispatch of a request to its endpoint: authentication, JSON parsing and rendering, and error responses.

Servers call `Route.answer` directly, bypassing the framework: what is the same for all requests is computed once, at
startup. Under plain Django (`manage.py runserver`, the test client), `view_class` mounts the same route as a view.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import orjson
from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, MethodNotAllowed
from rest_framework.metadata import SimpleMetadata
from rest_framework.views import APIView

from authz_project import observers
from authz_project.database import (
    AWAY,
    Trouble,
    is_scarcity,
    lacks_tables,
    let_go_if_broken,
    note_loss,
    refresh_connection,
    trouble_of,
)
from authz_project.keys import caller_of_token, forget, hash_of, is_remembered, token_of
from authz_project.limits import TooManyRequests, take_token
from authz_project.log_formats import OncePerSecond, more, without_details
from authz_project.spaces import directory, in_place
from checks.errors import QueryTooSlow
from facts.feed import BeforeHorizon
from policy.active import Caller
from policy.core import memory, spans
from policy.core.config import settings
from policy.core.journal import was_cancelled
from policy.core.memory import exhausted
from policy.core.spaces import here
from policy.core.spans import WAITS_SINCE, current, enter, leave, request_id_of
from policy.endpoint import RESPONDS_LATER, Endpoint, Request, Response
from policy.errors import AuthzError, Cancelled, KeyRefused, NotFound, ScopeMissing, TooLarge, Unavailable, one_line
from policy.replicas.reading import primary

Environ = dict[str, Any]  # as specified by WSGI
Headers = list[tuple[str, str]]
Handled = Callable[[BaseDatabaseWrapper, Request], Response]  # with the connection of the thread

# On every response: no content type sniffing, and no paths in Referer headers to other sites.
ANSWERED_WITH = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "same-origin")]
JSON = "application/json"

primary.prepare = refresh_connection  # called before the primary answers what no replica has answered


class HTTPAnswer(NamedTuple):
    status: int
    headers: Headers
    content: bytes


SEND_LATER = "authz.send_later"  # in an environ: takes it and its `HTTPAnswer`, once `SENT_LATER` stands for that
SENT_LATER = HTTPAnswer(0, [], b"")
_COUNTED = "authz.counted"  # in a request's environ: whether it has counted towards the rate limit of its key
ANSWER_AGAIN = "authz.answer_again"  # beside it: takes the environ, and has a thread answer the request from its start


class Route:
    """An endpoint, with the headers shared by all of its responses."""

    def __init__(self, path: str, endpoint: Endpoint):
        handlers, description = endpoint.handlers, description_of(endpoint)
        if "GET" in handlers:
            handlers["HEAD"] = handlers["GET"]
        handlers["OPTIONS"] = lambda request: Response(description)
        known = [name.upper() for name in APIView.http_method_names]
        self._path, self._endpoint, self._handlers = path, endpoint, handlers
        self._authentication = KeyAuthentication(endpoint) if endpoint.needs_key else None
        self._common = [
            ("Allow", ", ".join(name for name in known if name in handlers)),
            ("X-Frame-Options", settings.X_FRAME_OPTIONS),
        ]

    def answer(self, environ: Environ) -> HTTPAnswer:
        """Answer a request. Never raises an `Exception`: errors become responses."""
        started = time.perf_counter()
        parts = spans.begin(started, environ.get(WAITS_SINCE, 0.0)) if spans.is_on else None
        request_id = request_id_of(environ.get("HTTP_X_REQUEST_ID", ""))
        enter(request_id, self._path)
        method = environ["REQUEST_METHOD"].upper()
        request = Request(method, environ, lambda: body_of(environ), request_id, started)
        if SEND_LATER in environ:
            request.respond_later = partial(self._answer_later, parts)
            if ANSWER_AGAIN in environ:
                request.answer_again = partial(environ[ANSWER_AGAIN], environ)
        answer = self.answer_request(request)
        if answer is SENT_LATER:
            spans.end()
        else:
            self._complete(request, answer, parts)
        leave()
        return answer

    def _complete(self, request: Request, answer: HTTPAnswer, parts: spans.Parts | None) -> None:
        """Add the headers that are common to all responses of the service, and tell observers."""
        status, headers, content = answer
        headers.append(("X-Request-ID", request.id))
        headers.append(("Content-Length", str(len(content))))
        headers.append(("Server-Timing", f"oso;dur={(time.perf_counter() - request.started) * 1000:.3f}"))
        headers += ANSWERED_WITH
        if parts is not None:
            traceparent = request.headers.get("HTTP_TRACEPARENT", "")
            observers.tell(
                self._path, request.method, status, request.started, request.id, request.auth, traceparent, parts
            )

    def _answer_later(self, parts: spans.Parts | None, request: Request, respond: Callable[[], Response]) -> None:
        """Send the response that `respond` returns, from this thread, which may be answering another request."""
        here = current.request_id, current.path, current.caller
        enter(request.id, self._path)
        current.caller = request.auth
        try:
            answer = self.answer_request(request, lambda mine, request: respond())
            if answer is not SENT_LATER:
                self._complete(request, answer, parts)
        except Exception as error:
            status, body, _ = refusal_of(error, request.id)
            answer = HTTPAnswer(status, [("Content-Type", JSON)], written(body))
        if answer is not SENT_LATER:
            request.headers[SEND_LATER](request.headers, answer)
        current.request_id, current.path, current.caller = here

    def answer_request(self, request: Request, handled: Handled | None = None) -> HTTPAnswer:
        """Answer a request, without the headers that are common to all responses of the service.

        `handled` is what follows after the endpoint has returned `RESPONDS_LATER`. If it refuses the key, the endpoint
        handles the request again: its environment may have moved meanwhile.
        """
        try:
            needs_key = self._authentication is not None
            is_first_place = handled is not None or not (needs_key and directory.spaces)
            response = self._response_here(request, handled or self._handled) if is_first_place else None
            if response is None or (needs_key and response.status == 401):
                response = self._in_its_space(request, None if handled else response)
            if response is RESPONDS_LATER:
                return SENT_LATER
            if request.method == "GET" or request.method in self._endpoint.questions:  # not a change that was made
                memory.demand_to_write()
            content = written(response.data)
        except Exception as error:  # the data is not serializable, or the endpoint's error handling failed
            response = refused(Endpoint(), request, error)
            content = written(response.data)
        headers = [("Content-Type", JSON)] if "Content-Type" not in response.headers else []
        headers += response.headers.items()
        headers += self._common
        return HTTPAnswer(response.status, headers, content)

    def _in_its_space(self, request: Request, found: Response | None) -> Response:
        """Respond from the space of the key's environment. `found` is the response here, if there is one."""

        def answer() -> Response:
            request.begin()
            return self._response_here(request, self._handled)

        return in_place(token_of(request.headers), answer, lambda response: response.status == 401, found)

    def _response_here(self, request: Request, handled: Handled) -> Response:
        try:
            mine = let_go_if_broken()
            if settings.FOLLOW is not None and self._authentication is not None:
                return settings.FOLLOW.answered(request, self._endpoint, self._path, partial(handled, mine))
            return handled(mine, request)
        except Exception as error:
            is_deleted = here.name and isinstance(error, DatabaseError) and lacks_tables(error)  # the space
            response = refused(self._endpoint, request, KeyRefused() if is_deleted else error)
            let_go_if_broken()
            return response

    def _handled(self, mine: BaseDatabaseWrapper, request: Request) -> Response:
        if self._authentication is not None:
            _, request.auth = self._authentication.authenticate(request, mine)
            current.caller = request.auth
        handler = self._handlers.get(request.method)
        if handler is None:
            raise MethodNotAllowed(request.method)
        return handler(request)


def routes_of(table: Mapping[str, Endpoint]) -> dict[str, Route]:
    """Return a route for each endpoint of the table, keyed by its path with a leading slash."""
    return {f"/{path}": Route(f"/{path}", endpoint) for path, endpoint in table.items()}


def refused(endpoint: Endpoint, request: Request, error: Exception) -> Response:
    """Return the response to a request that raised `error`. Uncache the key if the error refuses it."""
    error = endpoint.reason(request, error)
    if isinstance(error, KeyRefused) and not isinstance(error, ScopeMissing):
        forget(token_of(request.headers))
    status, body, headers = refusal_of(error, request.id, request.started)
    return Response(endpoint.refusal(request, status, body), status, headers)


# ---- routes as Django views ---------------------------------------------------------------------------------------


class View(APIView):
    route: Route

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        sent: Any = request  # the middleware has set an id, a time, and a place for its caller
        asked = Request(sent.method, sent.META, lambda: sent.body, sent.request_id, sent.started)
        status, headers, content = self.route.answer_request(asked)
        sent.caller = asked.auth
        return HttpResponse(content, status=status, headers=dict(headers))


def view_class(path: str, endpoint: Endpoint) -> type[View]:
    """Return a view class with the name and docstring of the endpoint's class."""
    kind = type(endpoint)
    return type(kind.__name__, (View,), {"__doc__": kind.__doc__, "route": Route(path, endpoint)})


def description_of(endpoint: Endpoint) -> dict[str, object]:
    """Return the response to OPTIONS: name, docstring and media types."""
    nobody: Any = None  # the result does not depend on the request
    view = type(type(endpoint).__name__, (APIView,), {"__doc__": type(endpoint).__doc__})
    return dict(SimpleMetadata().determine_metadata(nobody, view()))


# ---- keys ---------------------------------------------------------------------------------------------------------


class KeyAuthentication(BaseAuthentication):
    """Authenticates a request by its bearer key, and refuses keys without the required scope."""

    def __init__(self, endpoint: Endpoint):
        self._questions = endpoint.questions
        self._scopes = {method: endpoint.scope_of(method) for method in (*endpoint.handlers, "HEAD")}

    def authenticate(self, request: Any, mine: BaseDatabaseWrapper | None = None) -> tuple[None, Caller]:
        """Return no user, since requests are not made by users, and the caller; `mine` is the thread's connection.

        Raise `KeyRefused` without a valid key, `ScopeMissing` if the key lacks the required scope, and
        `TooManyRequests` if the key has exceeded its rate limit.
        """
        token = token_of(request.headers)
        if not (request.method in self._questions and settings.REPLICAS and is_remembered(token)):
            refresh_connection(mine)  # otherwise, a replica may answer without it
        try:
            caller = caller_of_token(token, self._scopes.get(request.method))  # None for an unhandled method: any key
        except ScopeMissing:  # the key is valid, so this counts towards its rate limit
            _count_once(request.headers, hash_of(token))
            raise
        _count_once(request.headers, caller.key_hash)
        return None, caller


def _count_once(environ: Environ, key_hash: str) -> None:
    """Count a request towards the rate limit of its key, once however often it is answered again (`answer_again`)."""
    if settings.RATE_LIMIT is not None and _COUNTED not in environ:
        take_token(key_hash, settings.RATE_LIMIT)
        environ[_COUNTED] = True


# ---- bodies -------------------------------------------------------------------------------------------------------


def body_of(environ: Environ) -> bytes:
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isdecimal() and int(length)):
        return b""
    try:
        text: bytes = environ["wsgi.input"].read(int(length))
    except OSError as error:
        raise UnreadablePostError(*error.args) from error
    return text


def written(data: object) -> bytes:
    """Return the data as JSON; bytes are returned unchanged."""
    return data if isinstance(data, bytes) else orjson.dumps(data)


# ---- error responses ------------------------------------------------------------------------------------------------
# Every error of a request maps to one response, wherever it is raised. The service's own faults are logged.

log = logging.getLogger("authz.request")


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
        _log_seldom(f"request {request_id}: {_message(error, request_id)}: {said}", kind=type(error))
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
    _log_seldom(f"request {request_id}: {trouble.message}: {without_details(str(error))}", kind=trouble.message)
    return Refusal(trouble.status, {"message": trouble.message}, trouble.headers)


def _reason_for_cancelling(started: float) -> Exception:
    """Distinguish a timeout from a cancelled statement by the clock: PostgreSQL reports both with the same error."""
    limit = settings.STATEMENT_TIMEOUT
    return QueryTooSlow(limit) if 0 < limit <= time.perf_counter() - started else Cancelled()


def too_large() -> TooLarge:
    return TooLarge(f"the request body is larger than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes")


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


_once = OncePerSecond()


def _log_seldom(text: str, kind: object) -> None:
    """Log one line per second and kind of error: while a database is down, every request has the same one."""
    left_out = _once.left_out_before(kind)
    if left_out is not None:
        log.error("%s%s", one_line(text), more(left_out))
