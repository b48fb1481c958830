"""How HTTP meets the parts: keys in, JSON in and out."""

import math
from collections.abc import Mapping
from typing import Any

import orjson
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from authz_project.connections import refresh_connection
from authz_project.errors import refusal_of
from authz_project.keys import caller_of_token, forget, token_of
from policy.active import Caller
from policy.errors import KeyRefused, MalformedRequest

# ---- keys ----------------------------------------------------------------------------------------------


class KeyAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[None, Caller]:
        refresh_connection()
        return None, caller_of_token(token_of(request.META))

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


# ---- JSON ----------------------------------------------------------------------------------------------


class Parser(BaseParser):
    """Any body is JSON, whatever it says it is; no body at all is null."""

    media_type = "*/*"

    def parse(self, stream, media_type=None, parser_context=None):
        try:
            text = stream.read()
            return orjson.loads(text) if text.strip() else None
        except orjson.JSONDecodeError as error:
            raise MalformedRequest("", f"the body is not JSON: {error}") from None


class Renderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: object, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)


class AlwaysJson(BaseContentNegotiation):
    """Whatever `Accept` and `Content-Type` say."""

    def select_parser(self, request, parsers):
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


# ---- what went wrong --------------------------------------------------------------------------------------


def handle_exception(error: Exception, context: dict) -> Response:
    """Every answer that is not a success, as `{"message": …}`."""
    request = context["request"]
    if isinstance(error, KeyRefused):
        forget(token_of(request.META))
    status, body, headers = refusal_of(
        error, getattr(request, "request_id", ""), getattr(request, "started", math.inf)
    )
    if isinstance(error, MethodNotAllowed):
        headers = {"Allow": ", ".join(context["view"].allowed_methods)}
    return Response(body, status, headers=headers)
