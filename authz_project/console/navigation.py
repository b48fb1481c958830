"""Where one can go from any page, and of which environment.

Pages such as Ask belong to a version of a policy. `/admin/go/ask/` leads to that of the version that is active, of the
environment that was looked at last.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.template import Context
from django.urls import reverse

from policy.models import DEFAULT_SLUG, Environment, default_environment, environment_named

ENVIRONMENT = "environment"  # in the session: the short name of the one that was looked at last


@dataclass(frozen=True)
class NavigationEntry:
    """An entry of the navigation: who may go there, and the pages on which it is marked, unless one before it is."""

    name: str
    title: str
    needs: tuple[str, ...]  # models, each of which one may view or change
    pages: tuple[str, ...]  # how the names of their addresses begin


_POLICY, _FACTS, _KEYS = "policy.policyversion", "facts.signature", "authz_project.apikey"
_POLICIES = "policy_policyversion"
_REVIEW = f"{_POLICIES}_review"
ENTRIES = (
    NavigationEntry("home", "Home", (), ()),
    NavigationEntry("ask", "Check", (_POLICY, _FACTS), (f"{_POLICIES}_ask",)),
    NavigationEntry("picture", "Diagram", (_POLICY,), (f"{_POLICIES}_picture",)),
    NavigationEntry("preview", "Preview impact", (_POLICY, _FACTS), (f"{_POLICIES}_preview",)),
    NavigationEntry("history", "History", (_FACTS,), ("facts_signature_history", "facts_signature_revision", _REVIEW)),
    NavigationEntry("policy", "Policy", (_POLICY,), (_POLICIES,)),
    NavigationEntry("facts", "Facts", (_FACTS,), ("facts_",)),
    NavigationEntry("keys", "API keys", (_KEYS,), ("authz_project_apikey",)),
)
SHOWN = ("home", "policy", "facts", "ask", "picture", "preview", "history", "keys")
_BY_NAME = {entry.name: entry for entry in ENTRIES}
_WITHOUT_ENVIRONMENT = {"keys"}  # of all environments


@dataclass(frozen=True)
class NavigationLink:
    """An entry as a page shows it."""

    title: str
    url: str
    is_here: bool = False


def links(request: HttpRequest) -> list[NavigationLink]:
    """Return the entries that who is logged in may open."""
    here = entry_of_page(request)
    entries = [_BY_NAME[name] for name in SHOWN if may_go(request, name)]
    return [NavigationLink(entry.title, url_of(entry.name), entry.name == here) for entry in entries]


def environment_links(request: HttpRequest, context: Context) -> list[NavigationLink]:
    """Return links to the same entry in each environment, the page's own marked; none if there is only one."""
    slugs = list(Environment.objects.values_list("slug", flat=True))
    if len(slugs) < 2:
        return []
    name, shown = entry_of_page(request), _slug_of_page(request, context)
    url = url_of(name if name and name not in _WITHOUT_ENVIRONMENT else "home")
    return [NavigationLink(slug, f"{url}?environment={slug}", slug == shown) for slug in slugs]


def url_of(name: str) -> str:
    return reverse("admin:index") if name == "home" else reverse("admin:go", args=[name])


def may_go(request: HttpRequest, name: str) -> bool:
    """Tell whether who is logged in may view, or change, all that an entry needs."""
    return all(may_view(request, model) for model in _BY_NAME[name].needs)


def may_view(request: HttpRequest, model: str) -> bool:
    app, _, name = model.partition(".")
    return any(request.user.has_perm(f"{app}.{what}_{name}") for what in ("view", "change"))


def entry_of_page(request: HttpRequest) -> str:
    """Return the name of the entry that the page belongs to, or nothing."""
    page = (request.resolver_match and request.resolver_match.url_name) or ""
    return "home" if page == "index" else next((entry.name for entry in ENTRIES if page.startswith(entry.pages)), "")


# ---- environments ----------------------------------------------------------------------------------------------------


def _slug_of_page(request: HttpRequest, context: Context) -> str:
    """Return of which environment a page is; where it is of none, the one that was looked at last."""
    of_page = getattr(context.get("version"), "environment", None) or context.get("environment")
    return of_page.slug if isinstance(of_page, Environment) else str(request.session.get(ENVIRONMENT, DEFAULT_SLUG))


def last_environment(request: HttpRequest) -> Environment:
    slug = request.session.get(ENVIRONMENT)
    chosen = environment_named(slug) if isinstance(slug, str) else None
    return chosen or default_environment()


def choose_environment(request: HttpRequest) -> Environment:
    """Return the environment that the address names, and remember it; without a name, the last one."""
    chosen = environment_named(request.GET.get("environment", ""))
    if chosen is None:
        return last_environment(request)
    if request.session.get(ENVIRONMENT) != chosen.slug:
        request.session[ENVIRONMENT] = chosen.slug
    return chosen
