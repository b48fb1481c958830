"""Takes a request to its endpoint past the framework: what is the same for every request is found out at the start.

Under plain Django, the views of `endpoint_views.py` answer the same, byte for byte;
`tests/authz_project/test_two_ways.py` compares the two.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.http import UnreadablePostError
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.views import APIView

from authz_project import observing
from authz_project.api import JSON, caller_of, parsed, refused, written
from authz_project.database import let_go_if_broken
from authz_project.endpoint_views import description_of
from authz_project.logs.formats import current, enter, leave
from authz_project.middleware import request_id_of
from policy.ground import memory, spans
from policy.ground.endpoint import Endpoint, Request, Response
from policy.ground.spans import WAITS_SINCE

Environ = dict[str, Any]  # as the specification of WSGI has it
Headers = list[tuple[str, str]]

# On every response: browsers keep to the content type that it gives, and tell no other site our paths.
ANSWERED_WITH = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "same-origin")]


class Answer(NamedTuple):
    status: int
    headers: Headers
    content: bytes


class Route:
    """An endpoint, with the headers that all of its responses share."""

    def __init__(self, path: str, endpoint: Endpoint):
        handlers, description = endpoint.handlers, description_of(endpoint)
        if "GET" in handlers:
            handlers["HEAD"] = handlers["GET"]
        handlers["OPTIONS"] = lambda request: Response(description)
        known = [name.upper() for name in APIView.http_method_names]
        self._path, self._endpoint, self._handlers = path, endpoint, handlers
        self._scopes = {name: endpoint.scope_of(name) for name in handlers if endpoint.needs_key}
        self._common = [
            ("Allow", ", ".join(name for name in known if name in handlers)),
            ("X-Frame-Options", settings.X_FRAME_OPTIONS),
        ]

    def answer(self, environ: Environ) -> Answer:
        """Answer a request. Never raises an `Exception`: it becomes a response."""
        started = time.perf_counter()
        parts = spans.begin(started, environ.get(WAITS_SINCE, 0.0)) if spans.is_on else None
        request_id = request_id_of(environ.get("HTTP_X_REQUEST_ID", ""))
        enter(request_id, self._path)
        method = environ["REQUEST_METHOD"].upper()
        request = Request(method, environ, lambda: body_of(environ), read, request_id, started)
        try:
            response = self._response(request)
            if method == "GET" or method in self._endpoint.questions:  # a change that is made is not to be refused
                memory.demand_to_write()
            content = written(response.data)
        except Exception as error:  # no JSON can be made of the data, or the endpoint fails to refuse
            response = refused(Endpoint(), request, error)
            content = written(response.data)
        headers = [("Content-Type", JSON)] if "Content-Type" not in response.headers else []
        headers += response.headers.items()
        headers += self._common
        headers.append(("X-Request-ID", request_id))
        headers.append(("Content-Length", str(len(content))))
        headers.append(("Server-Timing", f"oso;dur={(time.perf_counter() - started) * 1000:.3f}"))
        headers += ANSWERED_WITH
        if parts is not None:
            traceparent = environ.get("HTTP_TRACEPARENT", "")
            observing.tell(self._path, method, response.status, started, request_id, request.auth, traceparent, parts)
        leave()
        return Answer(response.status, headers, content)

    def _response(self, request: Request) -> Response:
        try:
            mine = let_go_if_broken()
            if self._endpoint.needs_key:
                is_question = request.method in self._endpoint.questions
                scope = self._scopes.get(request.method)
                request.auth = current.caller = caller_of(request.headers, scope, is_question, mine)
            handler = self._handlers.get(request.method)
            if handler is None:
                raise MethodNotAllowed(request.method)
            return handler(request)
        except Exception as error:
            response = refused(self._endpoint, request, error)
            let_go_if_broken()
            return response


def body_of(environ: Environ) -> bytes:
    length = environ.get("CONTENT_LENGTH") or ""
    if not (length.isdecimal() and int(length)):
        return b""
    try:
        text: bytes = environ["wsgi.input"].read(int(length))
    except OSError as error:
        raise UnreadablePostError(*error.args) from error
    return text


def read(body: bytes) -> Any:
    """Return the parsed body; as with the framework, an empty body is an empty object."""
    return parsed(body) if body else {}


def routes_of(table: Mapping[str, Endpoint]) -> dict[str, Route]:
    """Return a route for each endpoint of the table, by its path with the leading slash."""
    return {f"/{path}": Route(f"/{path}", endpoint) for path, endpoint in table.items()}
