"""Endpoints as views of the framework: for plain Django, as `manage.py runserver` and the client of tests have it."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework import request as framework_request
from rest_framework import response as framework_response
from rest_framework.authentication import BaseAuthentication
from rest_framework.metadata import SimpleMetadata
from rest_framework.views import APIView

from authz_project.api import KeyAuthentication, refused
from authz_project.logs.formats import current
from policy.ground.endpoint import Endpoint, Request, Response


class View(APIView):
    endpoint: Endpoint
    asked: Request

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [KeyAuthentication(self.endpoint)] if self.endpoint.needs_key else []

    def initial(self, request: framework_request.Request, *args: Any, **kwargs: Any) -> None:
        asked: Any = request  # which has more than its type: the middleware's, and our own kind of caller
        receive, read = lambda: asked._request.body, lambda body: asked.data
        self.asked = Request(asked.method, asked.META, receive, read, asked.request_id, asked.started)
        super().initial(request, *args, **kwargs)
        self.asked.auth = asked._request.caller = current.caller = asked.auth  # the middleware tells of it

    def handle_exception(self, error: Exception) -> framework_response.Response:
        return _of_framework(refused(self.endpoint, self.asked, error))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        # Request, view and response refer to one another. With that cycle broken, large bodies are freed with their
        # request, and need not wait for the garbage collector.
        self.request.parser_context.clear()
        if isinstance(response, framework_response.Response):
            response.render()
            response.renderer_context.clear()  # type: ignore[attr-defined]  # which the view has given it
        return response


def view_class(endpoint: Endpoint) -> type[View]:
    """Return a view class with the name and docstring of the endpoint's class: OPTIONS answers with both."""
    kind = type(endpoint)
    handlers = {method.lower(): _handler(method) for method in endpoint.handlers}
    return type(kind.__name__, (View,), {"__doc__": kind.__doc__, "endpoint": endpoint, **handlers})


def description_of(endpoint: Endpoint) -> dict[str, object]:
    """Return what OPTIONS is answered with."""
    nobody: Any = None  # it is the same for all requests
    return dict(SimpleMetadata().determine_metadata(nobody, view_class(endpoint)()))


def _handler(method: str) -> Callable[[View, framework_request.Request], framework_response.Response]:
    return lambda view, request: _of_framework(view.endpoint.handlers[method](view.asked))


def _of_framework(response: Response) -> framework_response.Response:
    kind = response.headers.get("Content-Type")
    return framework_response.Response(response.data, response.status, headers=response.headers, content_type=kind)
