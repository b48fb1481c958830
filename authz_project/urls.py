"""URL configuration. The API is below /api; the rest is for people and load balancers."""

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, include, path
from django.views.generic import RedirectView

import checks.authzen.views
import checks.urls
import facts.views
import localsql.views
import policy.urls
from authz_project import documents, following, views
from authz_project.openapi import OpenAPIDocument, OpenAPIPage
from authz_project.route import view_class
from policy.endpoint import Endpoint

_below_api: dict[str, Endpoint] = {
    **checks.urls.endpoints,
    **facts.views.endpoints,
    **policy.urls.endpoints,
    **localsql.views.endpoints,
    **following.endpoints,
    "": views.Hello(),
    "healthcheck": views.Health(),
}
# The single table of endpoints: `wsgi` dispatches by it, and under plain Django `urlpatterns` does.
endpoints: dict[str, Endpoint] = {
    **{f"api/{name}": endpoint for name, endpoint in _below_api.items()},
    "api": views.Hello(),
    "healthcheck": views.Health(),
    "readyz": views.ReadyEndpoint(),
    "test_environment": views.TestEnvironment(),
    **checks.authzen.views.endpoints,
}
endpoints |= {"api/openapi.json": OpenAPIDocument(endpoints), "api/docs": OpenAPIPage(endpoints)}


def paths_of(table: dict[str, Endpoint]) -> list[URLPattern]:
    return [path(place, view_class(f"/{place}", endpoint).as_view()) for place, endpoint in table.items()]


admin.autodiscover()

urlpatterns = [
    path("", views.front),
    *paths_of(endpoints),
    path("scim/v2/<path:place>", view_class("/scim/v2", views.Scim()).as_view()),
    *documents.urlpatterns,
    path("favicon.ico", RedirectView.as_view(url="/static/authz_project/icon.svg")),  # for pages without an icon link
    path("admin", RedirectView.as_view(url="/admin/")),
    *([path("admin/oidc/", include("authz_project.sso"))] if settings.OIDC_ISSUER else []),
    path("admin/", admin.site.urls),
]

handler400 = handler403 = handler404 = "authz_project.views.refused"
handler500 = "authz_project.views.broken"
