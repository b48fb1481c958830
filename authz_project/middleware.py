"""Middleware for all requests: request ids, hosts, size limits, and sessions for the admin."""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import JsonResponse
from django.http.request import split_domain_port, validate_host
from django.middleware.csrf import CsrfViewMiddleware
from django.utils.deprecation import MiddlewareMixin

from authz_project import observers
from authz_project.database import HEALTH, READINESS
from authz_project.route import too_large
from authz_project.spaces import space_of_page
from policy.core import spans
from policy.core.config import settings
from policy.core.spaces import HOME, entered
from policy.core.spans import enter, leave, request_id_of
from policy.endpoint import public_url_of

SPACE = "space"  # the session's space

# The admin has no inline scripts or styles, so only our own scripts may run, and forms may post only to ourselves.
ADMIN_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def request_ids(get_response):
    """Respond with the request's `X-Request-ID`, or a new one, and with the duration; report both to observers."""

    def respond(request):
        request.started = time.perf_counter()
        since = request.META.get(spans.WAITS_SINCE, 0.0)
        parts = spans.begin(request.started, since) if spans.is_on else None
        request.request_id = request_id_of(request.META.get("HTTP_X_REQUEST_ID", ""))
        enter(request.request_id, observers.name_of(request.path))
        response = get_response(request)
        if response.status_code >= 400 and (response.streaming or not response.content):
            response = _with_message(response)
        response["X-Request-ID"] = request.request_id
        if request.path.startswith("/admin/"):
            response.setdefault("Content-Security-Policy", ADMIN_POLICY)
        if not response.streaming:
            response["Content-Length"] = str(len(response.content))
        response["Server-Timing"] = f"oso;dur={(time.perf_counter() - request.started) * 1000:.3f}"
        if parts is not None:
            traceparent, who = request.META.get("HTTP_TRACEPARENT", ""), getattr(request, "caller", None)
            name, request_id = observers.name_of(request.path), request.request_id
            observers.tell(
                name, request.method, response.status_code, request.started, request_id, who, traceparent, parts
            )
        leave()
        return response

    return respond


def _with_message(response):
    """Replace an error response without a body, such as the file server's, by JSON with the reason phrase."""
    response.close()
    return JsonResponse({"message": response.reason_phrase.lower()}, status=response.status_code)


class _AdminOnly(MiddlewareMixin):
    """Runs the middleware below /admin/ only: requests with an API key need no session, and should not pay for one."""

    def __call__(self, request):
        return super().__call__(request) if request.path.startswith("/admin/") else self.get_response(request)


class AdminSessions(_AdminOnly, SessionMiddleware):
    pass


class AdminCsrf(_AdminOnly, CsrfViewMiddleware):
    """Only the admin uses cookies. The check runs as a view hook, from which endpoints with API keys are exempt."""

    def _origin_verified(self, request):
        public = "/".join(public_url_of(request.META).lower().split("/")[:3])  # as browsers send it
        return request.META["HTTP_ORIGIN"] == public or super()._origin_verified(request)  # type: ignore[misc]


class AdminLogins(_AdminOnly, AuthenticationMiddleware):
    pass


class AdminMessages(_AdminOnly, MessageMiddleware):
    pass


def admin_spaces(get_response):
    """Answer a page of the admin from the space of the environment in its URL, or of the one that was viewed last."""

    def respond(request):
        space = _space_of_page(request) if request.path.startswith("/admin/") else HOME
        with entered(space):
            response = get_response(request)
        if space and response.streaming:
            response.streaming_content = _streamed(space, response.streaming_content)
        return response

    return respond


def _space_of_page(request):
    if not request.user.is_authenticated:
        return HOME
    before = request.session.get(SPACE, HOME)
    space = space_of_page(request.GET.get("environment", ""), before)
    if space != before:
        request.session[SPACE] = space
    return space


def _streamed(space, parts):
    """Produce the parts of a response in the space, although they are sent after the view has returned."""
    parts = iter(parts)
    end = object()
    while True:
        with entered(space):
            part = next(parts, end)
        if part is end:
            return
        yield part


# ---- allowed hosts ------------------------------------------------------------------------------------------------

FOREIGN_HOST = "the host name of this request is not allowed; add it to ALLOWED_HOSTS"
NOT_LOOPBACK = "`authz serve --dev` only accepts requests to localhost, 127.0.0.1 and [::1]"
CROSS_SITE = "`authz serve --dev` rejects cross-origin requests from browsers"
LONGEST_NAME = 260  # characters of a host name with port


def foreign_because(environ: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return status and message if the request's host is not allowed; health checks always are."""
    allowed, is_dev = settings.ALLOWED_HOSTS, settings.DEV_SERVER
    if "*" in allowed and not is_dev:
        return None
    host = environ.get("HTTP_HOST") or environ.get("SERVER_NAME", "")
    if is_dev:
        is_answered = _is_loopback(host) and not _is_cross_site(environ, host)
    else:
        is_answered = len(host) <= LONGEST_NAME and _is_allowed(host, (*allowed,))
    if is_answered or environ["PATH_INFO"] in (*HEALTH, READINESS):
        return None
    if is_dev:
        return (403, CROSS_SITE) if _is_loopback(host) else (400, NOT_LOOPBACK)
    return 400, FOREIGN_HOST


@lru_cache(1000)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    return validate_host(split_domain_port(host)[0], allowed)


def _is_loopback(host: str) -> bool:
    """Return whether the name is this machine's own: for others, DNS may have led a browser here (DNS rebinding)."""
    name = split_domain_port(host)[0]
    with suppress(ValueError):
        return name == "localhost" or ip_address(name.strip("[]")).is_loopback
    return False


def _is_cross_site(environ: Mapping[str, Any], host: str) -> bool:
    """Return whether a browser sends this on behalf of a page of another origin, other than by following a link.

    Another port of this machine is another origin. Programs send none of these headers.
    """
    origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE", "none")
    if origin is not None:
        return bool(origin.partition("://")[2] != host)
    is_link = environ["REQUEST_METHOD"] in ("GET", "HEAD") and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    return site not in ("none", "same-origin") and not is_link


def refuse_foreign(get_response):
    """Reject requests with a foreign host name; with `serve --dev`, also cross-origin requests."""

    def respond(request):
        if because := foreign_because(request.META):
            status, message = because
            return JsonResponse({"message": message}, status=status)
        return get_response(request)

    return respond


def is_too_large(environ: Mapping[str, Any]) -> bool:
    """Return whether the body exceeds the limit, according to Content-Length."""
    length, limit = environ.get("CONTENT_LENGTH") or "0", settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return not (len(length) < 20 and length.isdecimal() and int(length) <= limit)


def body_limit(get_response):
    """Reject bodies over the limit before they are read into memory."""

    def respond(request):
        if is_too_large(request.META):
            return JsonResponse({"message": too_large().message}, status=413)
        return get_response(request)

    return respond
