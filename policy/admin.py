"""Policies for people: versions, their text, what differs, and an editor. Whatever changes goes through publishing."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from policy import publishing
from policy.active import program_of_version
from policy.errors import AuthzError, Unavailable
from policy.models import Environment, PolicyVersion, default_environment
from policy.pages import editor
from policy.pages.author import by_admin
from policy.pages.differing_lines import difference
from policy.pages.editor import Outcome, PolicyForm
from policy.pages.excerpts import excerpts_of_problems
from policy.pages.highlight import highlighted_lines
from policy.publishing import Published

_PAGES = "admin/policy/policyversion"
_MOST_LINES = 20_000  # on a page; commands show the rest


@admin.register(PolicyVersion)
class PolicyVersionAdmin(admin.ModelAdmin):
    list_display = ["title", "state", "environment", "published_at", "filename", "fingerprint"]
    list_filter = ["environment"]
    list_select_related = ["environment"]
    list_per_page = 50
    actions = None

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        return super().get_queryset(request).defer("source")

    def get_urls(self):
        wrap = self.admin_site.admin_view
        extra = [
            path("<path:object_id>/difference/", wrap(self.difference_view), name="policy_policyversion_difference"),
            path("<path:object_id>/activate/", wrap(self.activate_view), name="policy_policyversion_activate"),
        ]
        return extra + super().get_urls()

    def has_delete_permission(self, request: HttpRequest, version: PolicyVersion | None = None) -> bool:
        return False  # versions are the history of what was allowed

    # ---- the list -------------------------------------------------------------------------------------------

    class Media:
        css = {"all": ["policy/policy.css"]}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": "Policy versions"} | (extra_context or {}))

    @admin.display(description="version", ordering="number")
    def title(self, version: PolicyVersion) -> str:
        return f"Version {version.number}"

    @admin.display(description="", empty_value="\u00a0")
    def state(self, version: PolicyVersion) -> str:
        is_active = version.pk == version.environment.policy_version_id
        return format_html('<span class="badge active">{}</span>', "active") if is_active else ""

    @admin.display(description="published", ordering="created_at")
    def published_at(self, version: PolicyVersion) -> str:
        return f"{version.created_at:%Y-%m-%d %H:%M} UTC"

    @admin.display(description="fingerprint")
    def fingerprint(self, version: PolicyVersion) -> str:
        return version.digest[:12]

    # ---- one version ----------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A version is never changed; this shows it."""
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        return self._page(request, "source", version, **_contents(version), **_lines(version.source))

    def _gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Says so, and shows the list."""
        redirect = self._get_obj_does_not_exist_redirect  # type: ignore[attr-defined]  # Django's own, of any ModelAdmin
        return redirect(request, self.opts, object_id)

    def difference_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """From another version, of the same environment, to this one."""
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        others = PolicyVersion.objects.filter(environment=version.environment).exclude(pk=version.pk)
        asked = request.GET.get("from", "")
        if asked.isascii() and asked.isdecimal() and len(asked) < 10:
            chosen = others.filter(number=int(asked)).first()
        else:
            chosen = _compared_by_default(version, others)
        rows = difference(chosen.source if chosen else "", version.source)
        numbers = others.values_list("number", flat=True)
        return self._page(request, "difference", version, chosen=chosen, numbers=numbers, **_sides(rows))

    def activate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Asks, shows what would change, and returns to the version."""
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        if not self.has_change_permission(request, version):
            raise PermissionDenied
        if request.method == "POST":
            return self._activate(request, version)
        active = publishing.active_version(version.environment_id)
        rows = difference(active.source if active else "", version.source)
        return self._page(request, "activate", version, chosen=active, **_contents(version), **_sides(rows))

    def _activate(self, request: HttpRequest, version: PolicyVersion) -> HttpResponse:
        try:
            published = publishing.activate(version.environment_id, version.number, by=by_admin(request))
        except (AuthzError, Unavailable) as reason:
            self.message_user(request, reason.message, messages.ERROR)
            return HttpResponseRedirect(_url("change", version))
        self.log_change(request, version, "made active")
        return self._done(request, published)

    def _version(self, request: HttpRequest, object_id: str) -> PolicyVersion | None:
        version = self.get_object(request, unquote(object_id))
        if version is not None and not self.has_view_or_change_permission(request, version):
            raise PermissionDenied
        return version

    # ---- the editor -----------------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Edit a policy, from the text of an earlier one, check it, and publish it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return self._editor(request, PolicyForm(initial=self._start(request)), Outcome())
        form = PolicyForm(request.POST)
        if not form.is_valid():
            return self._editor(request, form, Outcome(trouble="nothing is published, because of the fields below"))
        sent = form.cleaned_data
        outcome = editor.check(sent) if "_check" in request.POST else editor.publish(sent, by_admin(request))
        if outcome.published is None:
            return self._editor(request, form, outcome)
        if not outcome.published.is_unchanged:
            self.log_addition(request, outcome.published.version, "published")
        return self._done(request, outcome.published)

    def _start(self, request: HttpRequest) -> dict[str, object]:
        """The text to begin with: that of the version asked for, else of the one that is active."""
        origin = self.get_object(request, request.GET.get("from", ""))
        if origin is not None and not self.has_view_or_change_permission(request, origin):
            raise PermissionDenied
        environment = origin.environment if origin else _environment_asked(request)
        if origin is None and self.has_view_or_change_permission(request):
            origin = publishing.active_version(environment.pk)
        start = {"environment": environment, "seen": _active_number(environment)}
        return start | ({"source": origin.source, "filename": origin.filename or ""} if origin else {})

    def _editor(self, request: HttpRequest, form: PolicyForm, outcome: Outcome) -> HttpResponse:
        sent = getattr(form, "cleaned_data", form.initial)
        environment = sent.get("environment") or default_environment()
        source = sent.get("source", "")
        return self._page(
            request,
            "editor",
            None,
            form=form,
            outcome=outcome,
            environments=Environment.objects.all(),
            environment=environment,
            filename=form["filename"].value() or "",
            source=source,
            rows=max(24, source.count("\n") + 3),
            numbers=editor.line_numbers(source, outcome.excerpts),
            seen=_active_number(environment),
            force=bool(sent.get("force")),
        )

    # ---- pages ----------------------------------------------------------------------------------------------

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        context = self.admin_site.each_context(request) | {
            "title": f"Policy version {version.number}" if version else "Edit the policy",
            "opts": self.opts,
            "version": version,
            "is_active": version is not None and version.pk == version.environment.policy_version_id,
            "may_publish": self.has_add_permission(request),
            "may_activate": self.has_change_permission(request),
        }
        return TemplateResponse(request, f"{_PAGES}/{name}.html", context | shown)

    def _done(self, request: HttpRequest, published: Published) -> HttpResponse:
        message = published.message[0].upper() + published.message[1:] + "."
        self.message_user(request, message, messages.WARNING if published.ignored.count else messages.SUCCESS)
        if not self.has_view_or_change_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        return HttpResponseRedirect(_url("change", published.version))


def _contents(version: PolicyVersion) -> dict[str, object]:
    """What the text amounts to, and what the compiler says about it."""
    try:
        program = program_of_version(version.pk)
    except AuthzError as reason:
        return {"trouble": reason.message}
    warnings = excerpts_of_problems(program.source, program.warnings)
    ignored = publishing.ignored_facts(version.environment_id, program)
    return {"program": program, "warnings": warnings, "ignored": ignored}


def _lines(text: str) -> dict[str, object]:
    lines = text.split("\n", _MOST_LINES)
    rest = lines.pop() if len(lines) > _MOST_LINES else ""
    return {"lines": highlighted_lines("\n".join(lines)) if text else [], "hidden": rest.count("\n") + bool(rest)}


def _compared_by_default(version: PolicyVersion, others: QuerySet) -> PolicyVersion | None:
    """The active version; for that one itself, the version before it."""
    active = others.filter(pk=version.environment.policy_version_id).first()
    return active or others.filter(number__lt=version.number).order_by("-number").first()


def _sides(rows: list) -> dict[str, object]:
    return {
        "rows": rows[:_MOST_LINES],
        "hidden": max(0, len(rows) - _MOST_LINES),
        "added": sum(row.kind == "added" for row in rows),
        "removed": sum(row.kind == "removed" for row in rows),
    }


def _environment_asked(request: HttpRequest) -> Environment:
    return Environment.objects.filter(slug=request.GET.get("environment", "")).first() or default_environment()


def _active_number(environment: Environment) -> int | None:
    active = publishing.active_version(environment.pk)
    return active.number if active else None


def _url(name: str, version: PolicyVersion) -> str:
    return reverse(f"admin:policy_policyversion_{name}", args=[version.pk])
