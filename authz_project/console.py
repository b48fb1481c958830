"""The admin site, with its navigation and its home page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template import Context
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.urls.resolvers import RoutePattern
from django.utils.http import urlencode
from django.utils.module_loading import import_string

from authz_project import environments, examples
from authz_project.examples import ExampleQuestion
from authz_project.limits import LoginForm
from authz_project.spaces import seen, slugs_elsewhere, spaces
from checks.ask_pages.question import query_of, suggestions
from facts.history import revisions_of
from facts.keyset_pages import Count, counts, search_columns
from facts.models import Signature
from policy import publishing
from policy.active import program_of_version
from policy.core.journal import by_admin
from policy.errors import AuthzError, Unavailable
from policy.models import DEFAULT_SLUG, Environment, PolicyVersion, Revision, default_environment, environment_named
from policy.publishing import RecordedResults
from policy.rules.program import Program

# ---- navigation and current environment ---------------------------------------------------------------------------
# Pages such as Check belong to a policy version. `/admin/go/ask/` redirects to the page of the active version, in the
# environment that was viewed last.

ENVIRONMENT = "environment"  # session key: the short name of the environment that was viewed last


@dataclass(frozen=True)
class NavigationEntry:
    """A navigation entry: the required permissions, and the pages on which it is highlighted (first match)."""

    name: str
    title: str
    needs: tuple[str, ...]  # models that the user must be allowed to view or change
    pages: tuple[str, ...]  # prefixes of URL names


_POLICY, _FACTS, _KEYS = "authz_policy.policyversion", "authz_facts.signature", "authz_project.apikey"
_POLICIES = "authz_policy_policyversion"
ENTRIES = (
    NavigationEntry("home", "Home", (), ()),
    NavigationEntry("ask", "Check", (_POLICY, _FACTS), (f"{_POLICIES}_ask", f"{_POLICIES}_review")),
    NavigationEntry("picture", "Diagram", (_POLICY,), (f"{_POLICIES}_picture",)),
    NavigationEntry("preview", "Preview impact", (_POLICY, _FACTS), (f"{_POLICIES}_preview",)),
    NavigationEntry(
        "history", "History", (_FACTS,), ("authz_facts_signature_history", "authz_facts_signature_revision")
    ),
    NavigationEntry("decisions", "Decisions", (_POLICY, _FACTS), ("decisions",)),
    NavigationEntry("policy", "Policy", (_POLICY,), (_POLICIES,)),
    NavigationEntry("facts", "Facts", (_FACTS,), ("authz_facts_",)),
    NavigationEntry("keys", "API keys", (_KEYS,), ("authz_project_apikey",)),
    NavigationEntry("spaces", "Spaces", ("authz_project.space",), ("spaces",)),
)
SHOWN = ("home", "policy", "facts", "ask", "picture", "preview", "history", "decisions", "keys", "spaces")
_BY_NAME = {entry.name: entry for entry in ENTRIES}
_WITHOUT_ENVIRONMENT = {"keys", "spaces"}  # pages about all environments


@dataclass(frozen=True)
class NavigationLink:
    title: str
    url: str
    is_here: bool = False


def links(request: HttpRequest) -> list[NavigationLink]:
    """Return the entries that the user may open."""
    here = entry_of_page(request)
    entries = [_BY_NAME[name] for name in SHOWN if may_go(request, name) and is_shown(name)]
    return [NavigationLink(entry.title, url_of(entry.name), entry.name == here) for entry in entries]


def environment_links(request: HttpRequest, context: Context) -> list[NavigationLink]:
    """Return links to the same page in each environment, with the current one marked; empty if there is only one."""
    slugs = sorted([*Environment.objects.values_list("slug", flat=True), *slugs_elsewhere()])
    if len(slugs) < 2:
        return []
    name, shown = entry_of_page(request), _slug_of_page(request, context)
    url = url_of(name if name and name not in _WITHOUT_ENVIRONMENT else "home")
    return [NavigationLink(slug, f"{url}?environment={slug}", slug == shown) for slug in slugs]


def url_of(name: str) -> str:
    return reverse("admin:index") if name == "home" else reverse("admin:go", args=[name])


def may_go(request: HttpRequest, name: str) -> bool:
    """Return whether the user may view or change all models that an entry requires."""
    return all(may_view(request, model) for model in _BY_NAME[name].needs)


def is_shown(name: str) -> bool:
    """Return whether the navigation has the entry: those of decisions and spaces only if there are some."""
    return {"decisions": bool(settings.DECISION_LOG), "spaces": name == "spaces" and bool(spaces())}.get(name, True)


def may_view(request: HttpRequest, model: str) -> bool:
    app, _, name = model.partition(".")
    return any(request.user.has_perm(f"{app}.{what}_{name}") for what in ("view", "change"))


def entry_of_page(request: HttpRequest) -> str:
    """Return the name of the entry that the page belongs to; empty if none."""
    page = (request.resolver_match and request.resolver_match.url_name) or ""
    return "home" if page == "index" else next((entry.name for entry in ENTRIES if page.startswith(entry.pages)), "")


# ---- environments ----------------------------------------------------------------------------------------------------


def _slug_of_page(request: HttpRequest, context: Context) -> str:
    """Return the environment of a page; if it has none, the one that was viewed last."""
    of_page = getattr(context.get("version"), "environment", None) or context.get("environment")
    return of_page.slug if isinstance(of_page, Environment) else str(request.session.get(ENVIRONMENT, DEFAULT_SLUG))


def last_environment(request: HttpRequest) -> Environment:
    slug = request.session.get(ENVIRONMENT)
    chosen = environment_named(slug) if isinstance(slug, str) else None
    return chosen or default_environment()


def choose_environment(request: HttpRequest) -> Environment:
    """Return the environment named in the URL and remember it; without a name, the last one."""
    chosen = environment_named(request.GET.get("environment", ""))
    if chosen is None:
        return last_environment(request)
    if request.session.get(ENVIRONMENT) != chosen.slug:
        request.session[ENVIRONMENT] = chosen.slug
    return chosen


# ---- home ---------------------------------------------------------------------------------------------------------
# The home page: health, stored facts, recent changes, and checks to try.

CHANGES = 8  # latest changes of an environment
KINDS, LOOKED_AT = 10, 60  # kinds of facts to show, and to count
COUNTED = 20_000  # facts of a kind to count at most


@dataclass(frozen=True)
class Sign:
    """A health indicator: `state` is good, warn or bad."""

    name: str
    state: str
    text: str
    url: str = ""


def shown(request: HttpRequest, environment: Environment) -> dict[str, object]:
    version = publishing.active_version(environment.pk)
    program, trouble = _program(version)
    amounts = _amounts(environment) if may_go(request, "facts") else []
    return {
        "environment": environment,
        "signs": list(_signs(request, environment, version, program, trouble)),
        "amounts": amounts[:KINDS],
        "more_kinds": max(0, len(amounts) - KINDS),
        "changes": _changes(environment) if may_go(request, "history") else [],
        "suggested": suggestions(environment.pk, program) if program and may_go(request, "ask") else {},
        "may_ask": program is not None and may_go(request, "ask"),
        "examples": examples.examples() if version is None and not amounts and may_load_examples(request) else (),
        "tries": _tries(version, environment) if version and may_go(request, "ask") else (),
        "lacks_policy": version is None,
        "lacks_facts": not amounts,
        "may_publish": request.user.has_perm("authz_policy.add_policyversion"),
        "may_add_facts": request.user.has_perm("authz_facts.add_signature"),
        "may_make_keys": request.user.has_perm("authz_project.add_apikey"),
    }


def may_load_examples(request: HttpRequest) -> bool:
    return request.user.has_perm("authz_policy.add_policyversion") and request.user.has_perm(
        "authz_facts.add_signature"
    )


def _tries(version: PolicyVersion, environment: Environment) -> list[tuple[ExampleQuestion, str]]:
    """Return checks to try with their URLs, if the policy is that of an example."""
    example = next((each for each in examples.examples() if each.policy == version.source), None)
    if example is None:
        return []
    ask = url_of("ask")
    return [
        (each, f"{ask}?{urlencode({'environment': environment.slug, **each.parameters})}") for each in example.questions
    ]


def _program(version: PolicyVersion | None) -> tuple[Program | None, str]:
    """Return the active program; if its text no longer compiles, the reason."""
    if version is None:
        return None, ""
    try:
        return program_of_version(version.pk), ""
    except AuthzError as reason:
        return None, reason.message


# ---- health ----------------------------------------------------------------------------------------------------------


def _signs(
    request: HttpRequest, environment: Environment, version: PolicyVersion | None, program: Program | None, trouble: str
) -> Iterator[Sign]:
    yield Sign("Database", "good", environments.database_version())
    if (asked := decisions_last_minute()) is not None:
        yield Sign("Decisions", "good", f"{asked:,} in the last minute")
    if not may_view(request, "authz_policy.policyversion"):
        return
    if version is None:
        yield Sign("Policy", "warn", "No active policy: every check is denied")
        return
    if program is None:
        yield Sign("Policy", "bad", f"Version {version.number} no longer compiles: {trouble}", url_of("policy"))
        return
    warnings = len(program.warnings)
    told = f", with {warnings} warning{'s'[: warnings > 1]}" if warnings else ""
    yield Sign("Policy", "warn" if warnings else "good", f"Version {version.number}{told}", url_of("policy"))
    yield _sign_of_tests(version, program)
    if waiting := publishing.open_requests(environment.pk).first():
        url = reverse("admin:authz_policy_policyversion_change", args=[waiting.version_id])
        yield Sign("Approval", "warn", f"Version {waiting.version.number} waits for approval", url)
    if not may_go(request, "facts"):
        return
    unused = publishing.ignored_facts(environment.pk, program)
    facts = "fact" if unused.count == 1 and not unused.or_more else "facts"
    text = f"{unused} {facts} the policy doesn't use" if unused.count else "All used by the policy"
    yield Sign("Facts", "warn" if unused.count else "good", text, url_of("facts") if unused.count else "")


def decisions_last_minute() -> int | None:
    """Return the number of checks by all workers in the last minute; None if metrics are disabled."""
    if not settings.METRICS_FOLDER:
        return None
    value_of: Callable[[Path, str], float | None] = import_string("authz_project.metrics.value_of")
    found = value_of(Path(settings.METRICS_FOLDER), "authz_decisions_last_minute")
    return None if found is None else int(found)


def _sign_of_tests(version: PolicyVersion, program: Program) -> Sign:
    """Return the test results from when the version was published; older versions have none."""
    if not program.tests:
        return Sign("Tests", "warn", "The policy has no tests", url_of("policy"))
    figures = RecordedResults.of_version(version)
    tests = figures.tests_text or f"{len(program.tests):,} in the policy"
    covered = f"; {figures.coverage_text} covered" if figures.coverage_text else ""
    return Sign("Tests", figures.tests_mood or "good", f"{tests}{covered}", url_of("policy"))


# ---- stored facts and recent changes ---------------------------------------------------------------------------------


def _amounts(environment: Environment) -> list[tuple[Signature, Count]]:
    """Return the kinds of facts and how many there are, most frequent first."""
    kinds = Signature.objects.filter(environment=environment).order_by("predicate", "types")[:LOOKED_AT]
    found = [(kind, count) for kind, count in zip(kinds, counts(search_columns(kinds), COUNTED)) if count.number]
    return sorted(found, key=lambda each: -each[1].number)


def _changes(environment: Environment) -> list[tuple[Revision, Revision | None]]:
    """Return the latest revisions, each with the one before it."""
    found = list(revisions_of(environment.pk).order_by("-number")[: CHANGES + 1])
    return list(zip(found, [*found[1:], None]))[:CHANGES]


# ---- site ---------------------------------------------------------------------------------------------------------
# The console's own URLs: the home page, and redirects to pages of the active policy.

_OF_VERSIONS = {"policy": "change", "ask": "ask", "picture": "picture", "preview": "preview", "review": "review"}
_NEEDED = {"review": "preview"}  # URLs with the permissions of another entry
_PREFIXED = ("authz_policy/", "authz_facts/")
_OTHERS = {"editor": "policy", "versions": "policy"}


class Console(AdminSite):
    site_header = site_title = "Authorization"
    index_title = "Home"
    site_url = "/docs/"
    login_form = LoginForm
    enable_nav_sidebar = False

    def get_urls(self) -> list[URLResolver | URLPattern]:
        beside = [each for pages in self._registry.values() for each in getattr(pages, "site_urls", list)()]
        of_models = super().get_urls()
        for each in of_models:  # labels of apps have a prefix for other projects; addresses here do without
            if isinstance(each, URLResolver) and str(each.pattern).startswith(_PREFIXED):
                each.pattern = RoutePattern(str(each.pattern).removeprefix("authz_"))
        return [
            path("go/<slug:name>/", self.admin_view(self.go), name="go"),
            path("examples/<slug:name>/", self.admin_view(self.load_example), name="load_example"),
            path("spaces/", self.admin_view(self.spaces_view), name="spaces"),
            path("policy/", self.admin_view(self.app_index)),
            path("facts/", self.admin_view(self.app_index)),
            *beside,
            *of_models,
        ]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        environment = choose_environment(request)
        context = self.each_context(request) | {"title": "Home", **shown(request, environment)}
        return TemplateResponse(request, "admin/console/home.html", context | (extra_context or {}))

    def spaces_view(self, request: HttpRequest) -> HttpResponse:
        """List the spaces, with what is in them."""
        if not may_go(request, "spaces"):
            raise PermissionDenied
        context = self.each_context(request) | {"title": "Spaces", "spaces": seen()}
        return TemplateResponse(request, "admin/console/spaces.html", context)

    def app_index(  # type: ignore[override]  # a redirect in place of a page
        self, request: HttpRequest, app_label: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the home page: the navigation and the account menu list what an app's page would."""
        return HttpResponseRedirect(reverse("admin:index"))

    def go(self, request: HttpRequest, name: str) -> HttpResponse:
        """Redirect to a page of the environment in the URL, or else of the last one, keeping the query string."""
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
        address = reverse(f"admin:authz_policy_policyversion_{_OF_VERSIONS[name]}", args=[version.pk])
        asked = _question(request.GET)
        return HttpResponseRedirect(f"{address}?{asked}" if asked else address)

    def load_example(self, request: HttpRequest, name: str) -> HttpResponse:
        example = next((each for each in examples.examples() if each.name == name), None)
        if example is None:
            raise Http404("This example does not exist.")
        if not may_load_examples(request):
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
            return f"{reverse('admin:authz_facts_signature_changelist')}?environment={environment.pk}"
        case "history":
            return f"{reverse('admin:authz_facts_signature_history')}?environment={environment.pk}"
        case "decisions":
            return f"{reverse('admin:decisions')}?environment={environment.slug}"
        case "editor":
            return f"{reverse('admin:authz_policy_policyversion_add')}?environment={environment.slug}"
        case "versions":
            return f"{reverse('admin:authz_policy_policyversion_changelist')}?environment__id__exact={environment.pk}"
        case "spaces":
            return reverse("admin:spaces")
        case "keys":
            return reverse("admin:authz_project_apikey_changelist")
    return reverse("admin:index")


def _question(sent: QueryDict) -> str:
    """Return the rest of the query string: the filled fields of a check."""
    return query_of({name: str(text) for name, text in sent.items() if name != "environment"})
