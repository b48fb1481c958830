"""The console's own addresses: the first page, and the ways to the pages of the active policy."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse

from authz_project import examples
from authz_project.console import home
from authz_project.console.navigation import ENTRIES, choose_environment, may_go
from authz_project.limits import LoginForm
from checks.ask_pages.question import query_of
from policy import publishing
from policy.errors import AuthzError, Unavailable
from policy.ground.journal import by_admin
from policy.models import DEFAULT_SLUG, Environment, environment_named

_OF_VERSIONS = {"policy": "change", "ask": "ask", "picture": "picture", "preview": "preview", "review": "review"}
_NEEDED = {"review": "preview"}  # addresses that need what an entry needs
_OTHERS = {"editor": "policy", "versions": "policy"}


class Console(AdminSite):
    site_header = site_title = "Authorization"
    index_title = "Home"
    site_url = "/docs/"
    login_form = LoginForm
    enable_nav_sidebar = False

    def get_urls(self) -> list[URLResolver | URLPattern]:
        beside = [each for pages in self._registry.values() for each in getattr(pages, "site_urls", list)()]
        return [
            path("go/<slug:name>/", self.admin_view(self.go), name="go"),
            path("examples/<slug:name>/", self.admin_view(self.load_example), name="load_example"),
            *beside,
            *super().get_urls(),
        ]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        environment = choose_environment(request)
        context = self.each_context(request) | {"title": "Home", **home.shown(request, environment)}
        return TemplateResponse(request, "admin/console/home.html", context | (extra_context or {}))

    def go(self, request: HttpRequest, name: str) -> HttpResponse:
        """Lead to a place, for the environment that the address names or else the last one; a question is kept."""
        if name not in {entry.name for entry in ENTRIES} | _NEEDED.keys() | _OTHERS.keys():
            raise Http404("This page does not exist.")
        if not may_go(request, _NEEDED.get(name) or _OTHERS.get(name) or name):
            raise PermissionDenied
        environment = choose_environment(request)
        if name in _OF_VERSIONS:
            return self._to_version(request, name, environment)
        return HttpResponseRedirect(_address(name, environment))

    def _to_version(self, request: HttpRequest, name: str, environment: Environment) -> HttpResponse:
        version = publishing.active_version(environment.pk)
        if version is None:
            messages.info(
                request, f"Environment “{environment.slug}” has no active policy. Publish a policy, or load an example."
            )
            return HttpResponseRedirect(reverse("admin:index"))
        address = reverse(f"admin:policy_policyversion_{_OF_VERSIONS[name]}", args=[version.pk])
        asked = _question(request.GET)
        return HttpResponseRedirect(f"{address}?{asked}" if asked else address)

    def load_example(self, request: HttpRequest, name: str) -> HttpResponse:
        """Give an environment that is empty the policy and facts of an example."""
        example = next((each for each in examples.examples() if each.name == name), None)
        if example is None:
            raise Http404("This example does not exist.")
        if not home.may_load_examples(request):
            raise PermissionDenied
        if request.method == "POST":
            environment = environment_named(request.GET.get("environment", DEFAULT_SLUG))
            if environment is None:
                raise Http404("This environment does not exist.")
            try:
                loaded = examples.load(environment.pk, example, by_admin(request))
                told = f"Loaded: {example.title}, with {loaded.facts:,} facts. Try a question below."
                messages.success(request, told)
            except (AuthzError, Unavailable) as reason:
                messages.error(request, reason.message)
        return HttpResponseRedirect(reverse("admin:index"))


def _address(name: str, environment: Environment) -> str:
    match name:
        case "facts":
            return f"{reverse('admin:facts_signature_changelist')}?environment={environment.pk}"
        case "history":
            return f"{reverse('admin:facts_signature_history')}?environment={environment.pk}"
        case "editor":
            return f"{reverse('admin:policy_policyversion_add')}?environment={environment.slug}"
        case "versions":
            return f"{reverse('admin:policy_policyversion_changelist')}?environment__id__exact={environment.pk}"
        case "keys":
            return reverse("admin:authz_project_apikey_changelist")
    return reverse("admin:index")


def _question(sent: QueryDict) -> str:
    """Return what else the address says: of a question, the fields that are filled in."""
    return query_of({name: str(text) for name, text in sent.items() if name != "environment"})
