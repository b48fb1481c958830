"""The product's paths, and one that does what /authorize does but ask: what the rest of a request costs."""

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response

from authz_project.urls import about, handler400, handler403, handler404, handler500, interface
from authz_project.urls import urlpatterns as of_the_product
from checks.serializers import AuthorizeQuery, decoded
from policy.endpoint import Endpoint

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


class Empty(Endpoint):
    """The same key, the same body, always the same answer."""

    def post(self, request: Request) -> Response:
        decoded(AuthorizeQuery, request.data)
        return Response({"allowed": True})


# Beside /authorize, so that it is found as fast; in place of the product's paths below /api.
urlpatterns = [path("api/", include([path("empty", Empty.as_view()), *interface, *about])), *of_the_product[1:]]
