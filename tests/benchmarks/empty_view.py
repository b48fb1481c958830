"""The product's paths, and two that do what /authorize does but ask: what the rest of a request costs."""

from django.urls import include, path
from rest_framework.request import Request
from rest_framework.response import Response

from authz_project.urls import about, handler400, handler403, handler404, handler500, interface
from authz_project.urls import urlpatterns as of_the_product
from checks.asking import run
from checks.engine.rules.clauses import Slot
from checks.engine.sql.text import finished
from checks.serializers import AuthorizeQuery
from policy.active import key_check
from policy.endpoint import Endpoint
from policy.errors import KeyRefused
from policy.serializers import decoded

__all__ = ["handler400", "handler403", "handler404", "handler500", "urlpatterns"]


class Empty(Endpoint):
    """The same key, the same body, always the same answer."""

    def post(self, request: Request) -> Response:
        decoded(AuthorizeQuery, request.data)
        return Response({"allowed": True})


class Confirmed(Empty):
    """The same, once the database has confirmed the key: as questions have it do, and by the same way."""

    def post(self, request: Request) -> Response:
        if not run.execute(IS_GOOD, {"key": request.auth.key_hash}):
            raise KeyRefused
        return super().post(request)


CHECK = key_check()
GATE = (f"SELECT e.policy_version_id FROM {CHECK.before}", Slot("key"), CHECK.after)
IS_GOOD = finished(GATE, run.dialect().placeholder)

# Around /authorize, in place of the product's paths below /api: the empty view is found first, and none much later.
authorize, *others = interface
found = [path("empty", Empty.as_view()), authorize, path("confirmed", Confirmed.as_view()), *others]
urlpatterns = [path("api/", include([*found, *about])), *of_the_product[1:]]
