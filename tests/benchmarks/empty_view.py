"""The product's paths, and two that do what /authorize does but ask: what the rest of a request costs."""

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response

from authz_project.urls import about, handler400, handler403, handler404, handler500, interface
from authz_project.urls import urlpatterns as of_the_product
from checks.serializers import AuthorizeQuery, decoded
from policy.endpoint import Endpoint, caller

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


class Empty(Endpoint):
    """The same key, the same body, always the same answer."""

    def post(self, request: Request) -> Response:
        decoded(AuthorizeQuery, request.data)
        return Response({"allowed": True})


class Confirmed(Empty):
    """The same, once the database has confirmed the key: the least statement that a secure answer needs."""

    def post(self, request: Request) -> Response:
        caller(request)
        return super().post(request)


# Beside /authorize, so that they are found as fast; in place of the product's paths below /api.
views = [path("empty", Empty.as_view()), path("confirmed", Confirmed.as_view())]
urlpatterns = [path("api/", include([*views, *interface, *about])), *of_the_product[1:]]
