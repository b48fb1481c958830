"""The WSGI application: endpoints by direct dispatch, everything else by Django."""

import gc
import os
import re
import sys
import threading
from http import HTTPStatus

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connections

gc.disable()  # during imports, which leave no garbage

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")

# Django REST framework imports these if they are installed. The service does not use that, and saves 10 MB.
UNUSED = ("django.contrib.postgres", "pygments", "requests")
sys.modules.update({name: None for name in UNUSED if name not in sys.modules})  # type: ignore[misc]  # is an ImportError
import rest_framework.compat  # noqa: E402, F401

for name in UNUSED:
    if sys.modules[name] is None:
        del sys.modules[name]

django_application = get_wsgi_application()

from django.utils.module_loading import import_string  # noqa: E402

from authz_project.middleware import foreign_because, is_too_large  # noqa: E402
from authz_project.route import ANSWERED_WITH, Environ, HTTPAnswer, routes_of  # noqa: E402

# Import every view now rather than at the first request.
ROUTES = routes_of(import_string(f"{settings.ROOT_URLCONF}.endpoints"))

# Connections belong to threads here, never to coroutines. Django's storage checks for a coroutine first, which takes a
# microsecond, twice per request.
_of_thread = threading.local()
_of_thread.__dict__.update({each.alias: each for each in connections.all(initialized_only=True)})
connections._connections = _of_thread  # type: ignore[attr-defined]

# Imported objects are permanent: freeze them. Requests allocate much and leave no garbage behind.
gc.collect()
gc.freeze()
gc.set_threshold(10_000, 20, 20)
gc.enable()

STATUS_LINES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
_LEADING_SLASHES = re.compile(r"\A/{2,}(?!admin/)")  # a proxy that does not forward /admin/ may forward //admin/
_BOUNDARY = re.compile(r""";\s*boundary=("[^"]*"|[^;\s"]+)""", re.IGNORECASE)


def application(environ, start_response):
    answer = short_answer(environ)
    if answer is None:
        return by_django(environ, start_response)
    start_response(STATUS_LINES[answer.status], answer.headers)
    return [answer.content]


def short_answer(environ: Environ) -> HTTPAnswer | None:
    """Return the response by direct dispatch; None if Django is to answer."""
    # Clients configured with a URL with a trailing slash request //api/….
    path = environ["PATH_INFO"] = _LEADING_SLASHES.sub("/", environ.get("PATH_INFO", "/"))
    route = ROUTES.get(path)
    if route is None or foreign_because(environ) or is_too_large(environ):
        return None
    return route.answer(environ)


def by_django(environ, start_response):
    def start(status, headers, *failure):
        return start_response(status, headers + ANSWERED_WITH, *failure)

    if ";" in environ.get("CONTENT_TYPE", ""):
        environ["CONTENT_TYPE"] = _plain(environ["CONTENT_TYPE"])
    return django_application(environ, start)


def _plain(content_type: str) -> str:
    """Drop parameters except a form's boundary: all is UTF-8, but Django would decode URLs by `charset`."""
    kind = content_type.partition(";")[0]
    boundary = _BOUNDARY.search(content_type)
    return f"{kind}; boundary={boundary[1]}" if boundary else kind
