"""The product's paths, and two that do what /authorize does but ask: what the rest of a request costs."""

from typing import ClassVar

from authz_project.urls import endpoints as of_the_product
from authz_project.urls import handler400, handler403, handler404, handler500, paths_of
from authz_project.urls import urlpatterns as paths_of_the_product
from checks.asking import run
from checks.engine.rules.clauses import Slot
from checks.engine.sql.text import finished
from checks.serializers import AuthorizeQuery
from policy.active import Scope, key_check
from policy.endpoint import Endpoint, Request, Response, decoded, unconfirmed_caller
from policy.errors import KeyRefused

__all__ = ["endpoints", "handler400", "handler403", "handler404", "handler500", "urlpatterns"]


class Empty(Endpoint):
    """The same key, the same body, always the same answer."""

    scopes: ClassVar = {"POST": Scope.READ}

    def post(self, request: Request) -> Response:
        decoded(AuthorizeQuery, request.data)
        return Response({"allowed": True})


class Confirmed(Empty):
    """The same, once the database has confirmed the key: as questions have it do, and by the same way."""

    def post(self, request: Request) -> Response:
        if not run.execute(IS_GOOD, {"key": unconfirmed_caller(request).key_hash}):
            raise KeyRefused
        return super().post(request)


CHECK = key_check()
AFTER = CHECK.after(run.dialect().is_to_come(CHECK.expires_at))
GATE = (f"SELECT e.policy_version_id FROM {CHECK.before}", Slot("key"), AFTER)
IS_GOOD = finished(GATE, run.dialect())

more: dict[str, Endpoint] = {"api/empty": Empty(), "api/confirmed": Confirmed()}
endpoints = of_the_product | more
urlpatterns = [*paths_of(more), *paths_of_the_product]
