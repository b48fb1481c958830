"""How HTTP meets the parts: keys in, JSON in and out, and one table from what went wrong to an answer."""

import logging

import orjson
from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, MethodNotAllowed
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from authz_project.connections import note_loss, refresh_connection
from authz_project.keys import caller_of_token, token_of
from checks.errors import PolicyMoved, QueryTooSlow
from policy.errors import AuthzError, KeyRefused, MalformedRequest, NotFound, TooLarge

log = logging.getLogger("authz.request")

# ---- keys ----------------------------------------------------------------------------------------------


class KeyAuthentication(BaseAuthentication):
    def authenticate(self, request: Request):
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

    def render(self, data, accepted_media_type=None, renderer_context=None) -> bytes:
        return b"" if data is None else orjson.dumps(data)


class AlwaysJson(BaseContentNegotiation):
    """Whatever `Accept` and `Content-Type` say."""

    def select_parser(self, request, parsers):
        return parsers[0]

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type


# ---- what went wrong --------------------------------------------------------------------------------------

QUERY_CANCELED = "57014"  # PostgreSQL's code for a statement that ran out of time

STATUS = (  # the first that fits
    (KeyRefused, 401),
    (NotFound, 404),
    (TooLarge, 413),
    (AuthzError, 400),
    (RequestDataTooBig, 413),
    (Http404, 404),
    (PermissionDenied, 403),
    (PolicyMoved, 503),
    (OperationalError, 503),
    (InterfaceError, 503),
)


def handle_exception(error: Exception, context: dict) -> Response:
    """Every answer that is not a success, as `{"message": …}`."""
    if isinstance(error, APIException):
        return Response({"message": _sentence(error)}, error.status_code, headers=_headers(error, context))
    if _ran_out_of_time(error):
        error = QueryTooSlow(settings.STATEMENT_TIMEOUT)
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    if isinstance(error, (OperationalError, InterfaceError)):
        note_loss()
    if status >= 500:
        log.error("request %s failed", _request_id(context), exc_info=error)
    return Response(_body(error, context), status, headers=_headers(error, context))


def _body(error: Exception, context: dict) -> dict:
    match error:
        case AuthzError():
            return error.body
        case RequestDataTooBig():
            return too_large().body
        case Http404():
            return {"message": "no such path"}
        case PermissionDenied():
            return {"message": "not allowed"}
        case PolicyMoved():
            return {"message": "the policy keeps changing, try again"}
        case OperationalError() | InterfaceError():
            return {"message": "the database cannot be reached, try again"}
    return {"message": f"something went wrong here; it is logged as request {_request_id(context)}"}


def too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {settings.MAX_BODY_BYTES} bytes, the limit of MAX_BODY_BYTES")


def _headers(error: Exception, context: dict) -> dict[str, str]:
    match error:
        case KeyRefused():
            return {"WWW-Authenticate": "Bearer"}
        case MethodNotAllowed():
            return {"Allow": ", ".join(context["view"].allowed_methods)}
        case OperationalError() | InterfaceError() | PolicyMoved():
            return {"Retry-After": "1"}
    return {}


def _sentence(error: APIException) -> str:
    """What the framework found, with the path to the field where it found it."""
    detail, path = error.detail, ""
    while isinstance(detail, dict | list):
        key, detail = next(iter(detail.items())) if isinstance(detail, dict) else ("", detail[0])
        path = path if key in ("", "non_field_errors") else f"{path}.{key}" if path else str(key)
    text = str(detail).rstrip(".")
    text = text[:1].lower() + text[1:]
    return f"{path}: {text}" if path else text


def _ran_out_of_time(error: Exception) -> bool:
    return getattr(error.__cause__, "sqlstate", None) == QUERY_CANCELED


def _request_id(context: dict) -> str:
    return getattr(context.get("request"), "request_id", "")
