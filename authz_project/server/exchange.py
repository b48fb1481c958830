"""Convert granian's requests to WSGI environs, call the application, and send its responses."""

import io
import sys
import threading
import time
from functools import lru_cache
from typing import NamedTuple

import orjson
from granian.rsgi import HTTPProtocol, Scope

from authz_project import observers
from authz_project.database import Readiness, draining
from authz_project.route import ANSWERED_WITH, SENT_LATER, Environ, HTTPAnswer, refusal_of
from authz_project.server.listening import CLIENT, in_use
from authz_project.wsgi import by_django, short_answer
from facts.pages.change import FileOnDisk
from policy.core import memory, spans
from policy.core.spans import request_id_of
from policy.endpoint import LONG_POLL
from policy.errors import Unavailable

_SAME_FOR_ALL: Environ = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": "localhost",  # Django needs one if a request has no Host header
    "SERVER_PORT": "80",
    "wsgi.version": (1, 0),
    "wsgi.errors": sys.stderr,
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
    LONG_POLL: None,
}
LARGE = 1 << 20  # bytes; responses of at least this size are handed to granian one at a time
_copying = threading.Lock()


def environ_of(scope: Scope) -> Environ:
    """Return the WSGI environ of a request, without its body."""
    client = scope.client
    environ = _SAME_FOR_ALL | {
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": _bytes_as_latin(scope.path),
        "QUERY_STRING": _bytes_as_latin(scope.query_string),
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "REMOTE_ADDR": client.rpartition(":")[0].strip("[]"),
        CLIENT: client,
        "wsgi.url_scheme": scope.scheme,
    }
    for name, value in scope.headers.items():
        key = _key(name)
        if key in environ:
            environ[key] += ("; " if key == "HTTP_COOKIE" else ",") + value
        elif key:
            environ[key] = value
    return environ


def _bytes_as_latin(text: str) -> str:
    """Return the bytes of a text in UTF-8 decoded as latin-1, as WSGI wants them."""
    return text if text.isascii() else text.encode().decode("latin-1")


@lru_cache(1000)
def _key(header: str) -> str:
    """Return a header's name in WSGI (`x-request-id` -> `HTTP_X_REQUEST_ID`), or "" if the header is to be dropped.

    Names with `_` are dropped: they would pass for the one with `-`, which a proxy may have set, checked or removed.
    """
    if "_" in header:
        return ""
    key = header.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


class UnreadBody(io.RawIOBase):
    """A request body that was not read: each attempt to read it raises `reason`.

    A new exception is raised each time, because a raised exception keeps its traceback, and with it the request and its
    connection, until the next garbage collection.
    """

    def __init__(self, reason: Exception):
        self._kind, self._args = type(reason), reason.args

    def read(self, size: int = -1) -> bytes:
        raise self._kind(*self._args)


class _Head:
    """WSGI's `start_response`."""

    __slots__ = ("headers", "status")

    def __call__(self, status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        self.status, self.headers = int(status[:3]), headers


class _File(NamedTuple):
    """A response whose body granian reads from a file, at the client's pace."""

    status: int
    headers: list[tuple[str, str]]
    path: str


def answer(environ: Environ, body: io.IOBase, length: int, protocol: HTTPProtocol, *, close: bool = False) -> bool:
    """Call the application and send its response. Pass `close=True` if part of the body was not read.

    Return False if `SEND_LATER` of the environ will be called instead, or has been.
    """
    memory.begin_request()
    try:
        return _answer(environ, body, length, protocol, close)
    finally:
        memory.end_request()


def _answer(environ: Environ, body: io.IOBase, length: int, protocol: HTTPProtocol, close: bool) -> bool:
    environ["CONTENT_LENGTH"] = str(length)
    environ["wsgi.input"] = body
    in_use.add(environ[CLIENT])
    try:
        answered = short_answer(environ) or _answer_of_django(environ)
    except Exception as error:
        in_use.discard(environ[CLIENT])
        _break(environ, protocol, error)
        return True
    if answered is SENT_LATER:
        return False
    send(environ, protocol, answered, close)
    return True


def send(environ: Environ, protocol: HTTPProtocol, answered: HTTPAnswer | _File, close: bool = False) -> None:
    in_use.discard(environ[CLIENT])  # before the client can send its next request
    if close or draining.is_set():
        answered.headers.append(("Connection", "close"))
    if isinstance(answered, _File):
        protocol.response_file(answered.status, answered.headers, answered.path)
    elif len(answered.content) < LARGE:
        protocol.response_bytes(answered.status, answered.headers, answered.content)
    else:
        _send_large(environ, protocol, answered)


def _send_large(environ: Environ, protocol: HTTPProtocol, answered: HTTPAnswer) -> None:
    """Send a large response if there is memory for granian's copy; without it, the copy would abort the process."""
    with _copying:
        try:
            memory.demand(len(answered.content))
        except Unavailable as error:
            _break(environ, protocol, error)
        else:
            protocol.response_bytes(answered.status, answered.headers, answered.content)


def _break(environ: Environ, protocol: HTTPProtocol, error: Exception) -> None:
    request_id = request_id_of(environ.get("HTTP_X_REQUEST_ID", ""))
    status = _broken(protocol, request_id, error)
    _observe(environ["PATH_INFO"], environ["REQUEST_METHOD"], status, request_id)


def _answer_of_django(environ: Environ) -> HTTPAnswer | _File:
    head = _Head()
    answered = by_django(environ, head)
    if isinstance(answered, FileOnDisk):
        answered.close()
        return _File(head.status, head.headers, answered.path)
    content = b"".join(answered)
    answered.close()
    return HTTPAnswer(head.status, head.headers, content)


def say(scope: Scope, protocol: HTTPProtocol, status: int, message: str, *, close: bool = False) -> None:
    """Send a JSON response with this status and message, without calling the application."""
    request_id = request_id_of(scope.headers.get("x-request-id", ""))
    _say(protocol, status, {"message": message}, request_id, close)
    _observe(scope.path, scope.method, status, request_id)


def say_readiness(scope: Scope, protocol: HTTPProtocol, found: Readiness) -> None:
    request_id = request_id_of(scope.headers.get("x-request-id", ""))
    _say(protocol, found.status, found.body, request_id, close=False)
    _observe(scope.path, scope.method, found.status, request_id)


def say_broken(scope: Scope, protocol: HTTPProtocol, error: Exception) -> None:
    request_id = request_id_of(scope.headers.get("x-request-id", ""))
    status = _broken(protocol, request_id, error)
    _observe(scope.path, scope.method, status, request_id)


def _observe(path: str, method: str, status: int, request_id: str) -> None:
    """Report a request that bypassed the application, or at which it failed, to observers; its time counts as 0."""
    if spans.is_on:
        observers.tell(observers.name_of(path), method, status, time.perf_counter(), request_id)


def _broken(protocol: HTTPProtocol, request_id: str, error: Exception) -> int:
    """Log an error that the application could not handle, send the response for it, and return its status."""
    refusal = refusal_of(error, request_id)
    _say(protocol, refusal.status, refusal.body, request_id, close=True)
    return refusal.status


def _say(protocol: HTTPProtocol, status: int, body: dict[str, object], request_id: str, close: bool) -> None:
    headers = [("Content-Type", "application/json"), ("X-Request-ID", request_id), *ANSWERED_WITH]
    if status == 503:
        headers.append(("Retry-After", "1"))
    if close or draining.is_set():
        headers.append(("Connection", "close"))
    protocol.response_bytes(status, headers, orjson.dumps(body))
