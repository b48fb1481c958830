"""Paths that belong to no part: health, the greeting, test environments, and pages for what went wrong."""

from django.conf import settings
from django.http import Http404, JsonResponse
from django.views import defaults
from rest_framework.response import Response

from authz_project.test_environments import create_test_environment
from policy.endpoint import Endpoint, caller

API_VERSION = 0


class Health(Endpoint):
    """Ready as soon as it answers; it takes no connection, so that it answers when all are taken."""

    authentication_classes = ()

    def get(self, request):
        return Response({"message": "ready"})


class Hello(Endpoint):
    def get(self, request):
        caller(request)
        return Response({"hello": "authz", "api_version": API_VERSION})


class TestEnvironment(Endpoint):
    """A key to a fresh environment: empty, or with `?copy=true` a copy of the default one. Development only."""

    authentication_classes = ()

    def post(self, request):
        if not settings.DEV_SERVER:
            raise Http404
        copied = request.query_params.get("copy", "").lower() in ("true", "1")
        return Response({"token": create_test_environment(copied)})


# ---- errors outside of any endpoint ---------------------------------------------------------------------------


def bad_request(request, exception):
    return JsonResponse({"message": "the request is malformed"}, status=400)


def forbidden(request, exception):
    return _page(request, defaults.permission_denied, 403, "not allowed", exception)


def not_found(request, exception):
    return _page(request, defaults.page_not_found, 404, "no such path", exception)


def broken(request):
    message = f"something went wrong here; it is logged as request {getattr(request, 'request_id', '')}"
    return _page(request, defaults.server_error, 500, message)


def _page(request, html, status: int, message: str, *exception):
    """People in the admin get a page, programs get JSON."""
    if request.path.startswith("/admin/"):
        return html(request, *exception)
    return JsonResponse({"message": message}, status=status)
