"""How large a body may be, depending on who sends it: asked before any of it is read."""

from functools import cache

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie

from authz_project.connections import refresh_connection
from authz_project.keys import caller_of_token, is_remembered, token_of
from authz_project.short_way import Environ

SMALL = 1 << 16  # bytes: what a form without a login may have
UNLIMITED = 1 << 62


@cache
def largest() -> int:
    return settings.MAX_BODY_BYTES or UNLIMITED


def quick_allowance(environ: Environ) -> int:
    """Bytes that may be read without asking the database."""
    if _is_for_people(environ):
        return min(SMALL, largest())
    return largest() if is_remembered(token_of(environ)) else 0


def allowance(environ: Environ) -> int:
    """Bytes that may be read; raises `KeyRefused` where there must be a key, and is none."""
    refresh_connection()
    if _is_for_people(environ):
        return largest() if _is_logged_in(environ) else min(SMALL, largest())
    caller_of_token(token_of(environ))
    return largest()


def _is_for_people(environ: Environ) -> bool:
    return environ["PATH_INFO"].startswith("/admin/")


def _is_logged_in(environ: Environ) -> bool:
    session = parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    if not session:
        return False
    request = HttpRequest()
    request.session = SessionStore(session)
    user = get_user(request)
    return user.is_active and user.is_staff
