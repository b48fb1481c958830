"""Where documents are. What renders them is imported with the first request for one, for neither commands nor the
interface need it."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.module_loading import import_string
from django.views.generic import RedirectView


def _view(name: str) -> Callable[..., HttpResponse]:
    def answer(request: HttpRequest, **given: str) -> HttpResponse:
        response: HttpResponse = import_string(f"authz_project.documents.views.{name}")(request, **given)
        return response

    return answer


urlpatterns: list[URLPattern] = [
    path("docs", RedirectView.as_view(url="/docs/", query_string=True)),
    path("docs/", _view("front"), name="docs"),
    path("docs/index/", RedirectView.as_view(url="/docs/")),
    path("docs/<slug:name>", RedirectView.as_view(url="/docs/%(name)s/")),
    path("docs/<slug:name>/", _view("page"), name="docs_page"),
    path("docs/<str:name>", _view("picture"), name="docs_picture"),
]
