"""How HTTP meets the endpoints: keys in, JSON in and out, and one answer to whatever goes wrong.

A request comes to its endpoint by `direct_route`, or by `endpoint_views` through the framework. What both share is
here.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from django.db.backends.base.base import BaseDatabaseWrapper
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request as FrameworkRequest

from authz_project.database import refresh_connection
from authz_project.errors import refusal_of
from authz_project.keys import caller_of_token, forget, hash_of, is_remembered, token_of
from authz_project.limits import take_token
from policy.active import Caller
from policy.errors import KeyRefused, MalformedRequest, ScopeMissing
from policy.ground.cache import configured
from policy.ground.endpoint import Endpoint, Request, Response
from policy.ground.memory import demand, size_of_parsed
from policy.replicas.reading import primary
from policy.scopes import Scope

JSON = "application/json"
DEEPEST = 200  # levels of a body
_WRITABLE = 254  # levels that orjson writes; it reads 1,024
_SMALL = 1 << 16  # bytes: there is always memory for what is made of as many
_LARGE = 1 << 20  # bytes: of what is larger, most of which are changes, the levels are not looked at

primary.prepare = refresh_connection  # called before the primary is asked what no replica has answered

# ---- keys ----------------------------------------------------------------------------------------------


def caller_of(
    headers: Mapping[str, Any], needs: Scope | None, is_question: bool = False, mine: BaseDatabaseWrapper | None = None
) -> Caller:
    """Return who sends the request, by its key; `mine` is the thread's connection, if it is at hand.

    Raise `KeyRefused` without a good key, `ScopeMissing` where the key lacks the scope that the request `needs`, and
    `TooManyRequests` where the key has sent too many lately.
    """
    token = token_of(headers)
    if not (is_question and configured.REPLICAS and is_remembered(token)):  # else a replica may answer without it
        refresh_connection(mine)
    try:
        caller = caller_of_token(token, needs)
    except ScopeMissing:  # the key is good, so this counts like any other of its requests
        if configured.RATE_LIMIT is not None:
            take_token(hash_of(token), configured.RATE_LIMIT)
        raise
    if configured.RATE_LIMIT is not None:
        take_token(caller.key_hash, configured.RATE_LIMIT)
    return caller


class KeyAuthentication(BaseAuthentication):
    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint

    def authenticate(self, request: FrameworkRequest) -> tuple[None, Caller]:
        return None, caller_of(request.META, self._endpoint.scope_of(str(request.method)))

    def authenticate_header(self, request: FrameworkRequest) -> str:
        return "Bearer"


# ---- JSON ----------------------------------------------------------------------------------------------


def parsed(text: bytes) -> Any:
    """Return the parsed body, which must be JSON whatever its content type; None for one of nothing but whitespace."""
    if len(text) > _SMALL:
        demand(size_of_parsed(text))
    try:
        body = orjson.loads(text) if text.strip() else None
    except SystemError:  # it had no memory to go on, and says so in a way of its own
        raise MemoryError from None
    except orjson.JSONDecodeError as error:
        if "memory" in error.msg:  # it says nothing of the text: the parser had no room to begin
            raise MemoryError from None
        raise MalformedRequest("", f"the body is not JSON: {error}") from None
    if len(text) <= _LARGE and text.count(b"[") + text.count(b"{") > DEEPEST and _is_too_deep(body):
        raise MalformedRequest("", f"the body nests deeper than {DEEPEST} levels")
    return body


def _is_too_deep(body: object) -> bool:
    """Say whether orjson cannot write the body within so many lists: that is found out faster than by a walk."""
    for _ in range(_WRITABLE - DEEPEST):
        body = [body]
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return True
    return False


def written(data: object) -> bytes:
    """Return the data as JSON; bytes are returned as they are."""
    return data if isinstance(data, bytes) else orjson.dumps(data)


class Parser(BaseParser):
    media_type = "*/*"

    def parse(self, stream, media_type=None, parser_context=None):
        return parsed(stream.read())


class Renderer(BaseRenderer):
    media_type = JSON
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: object, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return written(data)


class AlwaysJson(BaseContentNegotiation):
    """Chooses JSON, whatever `Accept` and `Content-Type` say."""

    def select_parser(self, request, parsers):
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


# ---- what went wrong --------------------------------------------------------------------------------------


def refused(endpoint: Endpoint, request: Request, error: Exception) -> Response:
    """Return the response to a request that raised the error. Forget the key, if the error refuses it."""
    error = endpoint.reason(request, error)
    if isinstance(error, KeyRefused) and not isinstance(error, ScopeMissing):
        forget(token_of(request.headers))
    status, body, headers = refusal_of(error, request.id, request.started)
    return Response(endpoint.refusal(request, status, body), status, headers)
