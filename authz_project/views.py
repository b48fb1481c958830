"""Views that belong to no app: health, greeting, test environments, and error pages."""

import sys
from typing import ClassVar

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.utils.module_loading import import_string

from authz_project.database import current
from authz_project.environments import create_test_environment
from authz_project.middleware import ADMIN_POLICY
from authz_project.route import refusal_of
from policy.active import Scope
from policy.endpoint import Doc, Endpoint, Handler, QueryParameter, Request, Response, caller, ref
from policy.templatetags.sentences import sentence

API_VERSION = 0


class Health(Endpoint):
    """Ready as soon as it answers; it takes no connection, so that it answers when all are taken."""

    needs_key = False
    docs: ClassVar = {
        "GET": Doc(
            "Check liveness",
            ref("Message"),
            "Does not use a database connection, so it responds even if all are in use.",
        )
    }

    def get(self, request: Request) -> Response:
        return Response({"message": "ready"})


class ReadyEndpoint(Endpoint):
    """Whether to send requests here. A server answers from a thread of its own: `server/readiness_probe.py`."""

    needs_key = False
    docs: ClassVar = {
        "GET": Doc(
            "Check readiness",
            ref("Message"),
            "Ready if the database responds and its schema matches this version.",
            statuses={503: "Not ready; `reason` says why. Send requests to another instance."},
            refused_bodies={503: "Unready"},
        )
    }

    def get(self, request: Request) -> Response:
        found = current()
        headers = {"Retry-After": "1"} if found.reason else {}
        return Response(found.body, found.status, headers)


class Hello(Endpoint):
    scopes: ClassVar = {"GET": None}
    docs: ClassVar = {"GET": Doc("Get a greeting", ref("Greeting"), deprecated_for="GET /api/healthcheck")}

    def get(self, request: Request) -> Response:
        caller(request)
        return Response({"hello": "authz", "api_version": API_VERSION})


class TestEnvironment(Endpoint):
    """A key to a fresh environment: empty, or with `?copy=true` a copy of the default one. Development only."""

    needs_key = False
    docs: ClassVar = {
        "POST": Doc(
            "Create a test environment",
            ref("Token"),
            "Only with `authz serve --dev`. Creates an empty environment, or a copy of the default one.",
            parameters=(QueryParameter("copy", "`true` copies the policy and the facts of the default environment."),),
            statuses={404: "The server was not started with `--dev`."},
        )
    }

    def post(self, request: Request) -> Response:
        if not settings.DEV_SERVER:
            raise Http404
        copied = request.query_params.get("copy", "").lower() in ("true", "1")
        return Response({"token": create_test_environment(copied)})


# ---- the front page -----------------------------------------------------------------------------------------------

LINKS = {
    "documentation": "/docs/",
    "api_reference": "/api/docs",
    "openapi": "/api/openapi.json",
    "health": "/healthcheck",
    "readiness": "/readyz",
    "admin": "/admin/",
}


def front(request: HttpRequest) -> HttpResponse:
    """Redirect browsers to the admin; return links to programs."""
    if request.method not in ("GET", "HEAD"):
        raise Http404
    found = HttpResponseRedirect("/admin/") if is_browser(request) else JsonResponse({"message": "authz", **LINKS})
    found["Vary"] = "Accept"
    return found


def is_browser(request: HttpRequest) -> bool:
    """Return whether the client prefers HTML to JSON. Programs accept anything, or JSON."""
    return request.get_preferred_type(["application/json", "text/html"]) == "text/html"


# ---- errors outside of endpoints ------------------------------------------------------------------------------

_ADVICE = {
    403: "Your account does not have the permission for this. Ask an administrator of the service.",
    404: "There is no page at this address.",
}


def answer_to(error: Exception, request: HttpRequest) -> HttpResponse:
    """Return the error response: JSON for programs, a page for browsers, and for anyone in the admin."""
    status, body, headers = refusal_of(error, getattr(request, "request_id", ""))
    is_admin = request.path.startswith("/admin/")
    if status != 413 and (is_browser(request) or (is_admin and status != 404)):
        message = "Page not found" if status == 404 else sentence(str(body["message"]))
        content = render_to_string("authz_project/error.html", {"message": message, "advice": _ADVICE.get(status, "")})
        return HttpResponse(content, status=status, headers={"Content-Security-Policy": ADMIN_POLICY, **headers})
    return JsonResponse(body, status=status, headers=headers)


def refused(request: HttpRequest, exception: Exception) -> HttpResponse:
    return answer_to(exception, request)


def broken(request: HttpRequest) -> HttpResponse:
    """Handle Django's 500, which is called while the exception is being handled."""
    error = sys.exc_info()[1]
    assert isinstance(error, Exception), "Django handles no others"
    return answer_to(error, request)


class Scim(Endpoint):
    """Provisioning: all paths below `/scim/v2/`. The module that answers is imported if `serve --scim` is used."""

    scopes: ClassVar = {"GET": Scope.READ} | dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), Scope.FACTS)

    @property
    def handlers(self) -> dict[str, Handler]:
        return dict.fromkeys(self.scopes, self.answered)

    def answered(self, request: Request) -> Response:
        if settings.SCIM_MAPPING is None:
            raise Http404("Provisioning is not enabled.")
        answer: Handler = import_string("authz_project.scim.answer")
        return answer(request)

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        """Return the error as SCIM has it."""
        schemas = ["urn:ietf:params:scim:api:messages:2.0:Error"]
        return {"schemas": schemas, "status": str(status), "detail": body.get("message")}
