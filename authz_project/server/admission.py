"""Decides how large a request's body may be, depending on who sends it, before any of the body is read."""

from functools import cache

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie

from authz_project.connections import refresh_connection
from authz_project.direct_route import Environ
from authz_project.keys import caller_of_token, is_remembered, token_of

SMALL = 1 << 16  # bytes of body that /admin/ takes from somebody who is not logged in
UNLIMITED = 1 << 62


@cache
def largest() -> int:
    return settings.MAX_BODY_BYTES or UNLIMITED


def quick_allowance(environ: Environ) -> int:
    """Return how many bytes may be read without asking the database; 0 where the key has to be looked up first."""
    if _is_for_people(environ):
        return min(SMALL, largest())
    return largest() if is_remembered(token_of(environ)) else 0


def allowance(environ: Environ) -> int:
    """Return how many bytes may be read, asking the database. Raise `KeyRefused` where a good key is missing."""
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
