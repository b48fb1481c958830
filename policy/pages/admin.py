"""The admin's pages about policies: versions, their text, diffs, an editor. All changes go through publishing."""

from dataclasses import replace
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
from policy.core.journal import by_admin
from policy.errors import AuthzError, Unavailable
from policy.models import Environment, PolicyVersion, PublishRequest
from policy.pages.editing import EditingAdmin, may_view_facts
from policy.pages.highlight import difference, excerpts_of_problems, highlighted_lines, trial_of
from policy.publishing import ActiveVersionChanged, Ignored, PolicyTestsFailed, Published, RecordedResults
from policy.rules.program import Program
from policy.values import MAX_VERSION, whole_number

_PAGES = "admin/authz_policy/policyversion"
_MOST_LINES = 20_000  # per page; commands show the rest
_MOST_COMPARED = 3_000  # lines of a text that is compared with the preceding version on a version's own page


@admin.register(PolicyVersion)
class PolicyVersionAdmin(EditingAdmin):
    list_display = ["title", "state", "note_told", "published_at", "tests_text", "coverage_text", "environment", "file"]
    list_filter = ["environment"]
    list_select_related = ["environment"]
    list_per_page = 50
    show_facets = admin.ShowFacets.NEVER
    actions = None

    def get_queryset(self, request: HttpRequest) -> QuerySet:
        return super().get_queryset(request).defer("source")

    def get_urls(self):
        wrap = self.admin_site.admin_view
        extra = [
            path(
                "<path:object_id>/difference/", wrap(self.difference_view), name="authz_policy_policyversion_difference"
            ),
            path("<path:object_id>/activate/", wrap(self.activate_view), name="authz_policy_policyversion_activate"),
        ]
        return extra + super().get_urls()

    def has_delete_permission(self, request: HttpRequest, version: PolicyVersion | None = None) -> bool:
        return False  # versions are an audit trail of what was allowed

    # ---- the list -------------------------------------------------------------------------------------------

    class Media:
        css = {"all": ["policy/policy.css", "policy/versions.css"]}

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        is_one = "environment__id__exact" in request.GET or Environment.objects.count() < 2
        return [name for name in self.list_display if name != "environment" or not is_one]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        shown = {
            "title": "Policy versions",
            "has_add_permission": self.may_edit(request),
        }  # the button opens the editor
        return super().changelist_view(request, shown | (extra_context or {}))

    @admin.display(description="version", ordering="number")
    def title(self, version: PolicyVersion) -> str:
        return f"Version {version.number}"

    @admin.display(description="state", empty_value="\u00a0")
    def state(self, version: PolicyVersion) -> str:
        is_active = version.pk == version.environment.policy_version_id
        return format_html('<span class="badge active">{}</span>', "active") if is_active else ""

    @admin.display(description="note", empty_value="\u00a0")
    def note_told(self, version: PolicyVersion) -> str:
        return format_html('<span class="told-note">{}</span>', version.note) if version.note else ""

    @admin.display(description="published", ordering="created_at")
    def published_at(self, version: PolicyVersion) -> str:
        by = format_html(' <span class="quiet">by {}</span>', version.author) if version.author else ""
        return format_html("<time>{}</time>{}", f"{version.created_at:%Y-%m-%dT%H:%MZ}", by)

    @admin.display(description="tests", empty_value="\u00a0")
    def tests_text(self, version: PolicyVersion) -> str:
        figures = RecordedResults.of_version(version)
        text = figures.tests_text
        return format_html('<span class="pill {}">{}</span>', figures.tests_mood, text) if text else ""

    @admin.display(description="coverage", empty_value="\u00a0")
    def coverage_text(self, version: PolicyVersion) -> str:
        percent = RecordedResults.of_version(version).percent
        if percent is None:
            return ""
        return format_html('<meter min="0" max="100" value="{0}" title="of the rules">{0} %</meter> {0} %', percent)

    @admin.display(description="file", empty_value="\u00a0")
    def file(self, version: PolicyVersion) -> str:
        return format_html('<span title="{}">{}</span>', version.digest, version.filename) if version.filename else ""

    # ---- one version ----------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a version, which is read-only. With `?run=tests`, run its tests as well."""
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        contents = _contents(version, may_view_facts(request))
        program = contents.get("program")
        if isinstance(program, Program) and request.GET.get("run") == "tests":
            contents["trial"] = trial_of(program, covering=True)
        contents["asked"] = version.requests.filter(outcome="").exists()
        return self._page(request, "source", version, **contents, **_since_before(version), **_lines(version.source))

    def _gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect as Django's admin does for an object that does not exist, with its message."""
        redirect = self._get_obj_does_not_exist_redirect  # type: ignore[attr-defined]  # Django's own, of any ModelAdmin
        return redirect(request, self.opts, object_id)

    def difference_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the diff from another version of the same environment, `?from=`, to this one."""
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        others = PolicyVersion.objects.filter(environment=version.environment).exclude(pk=version.pk)
        asked = whole_number(request.GET.get("from", ""), MAX_VERSION)
        chosen = _compared_by_default(version, others) if asked is None else others.filter(number=asked).first()
        rows = difference(chosen.source if chosen else "", version.source)
        numbers = others.values_list("number", flat=True)
        return self._page(request, "difference", version, chosen=chosen, numbers=numbers, **_sides(rows))

    def activate_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Preview activating the version, and ask for confirmation; on POST, activate it and redirect to its page.

        The form has the number of the version that the page showed as active. If another one is active by then, nothing
        is changed, and the page shows what activating would change now.
        """
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        if not self.has_change_permission(request, version):
            raise PermissionDenied
        refusal, asked = "", publishing.open_requests(version.environment_id).filter(version=version).first()
        if request.method == "POST":
            decides = "request" in request.POST
            answer = self._decide(request, asked) if decides else self._activate(request, version)
            if isinstance(answer, HttpResponse):
                return answer
            refusal = answer
        active = publishing.active_version(version.environment_id)
        rows = difference(active.source if active else "", version.source)
        contents = _contents(version, may_view_facts(request))
        program = contents.get("program")
        if isinstance(program, Program) and version.pk != version.environment.policy_version_id:
            contents["trial"] = trial_of(program)
        if asked is not None:
            contents |= {
                "outdated": publishing.outdated_because(asked), "is_own": publishing.is_own(asked, by_admin(request)),
            }  # fmt: skip
        source_page = f"{_url('change', version)}#L"
        return self._page(
            request, "activate", version,
            chosen=active, source_page=source_page, refusal=refusal, asked=asked, **contents, **_sides(rows),
        )  # fmt: skip

    def _decide(self, request: HttpRequest, asked: PublishRequest | None) -> HttpResponse | str:
        """Approve or reject the open request that the page showed; otherwise as `_activate`."""
        if asked is None or request.POST["request"] != str(asked.pk):
            return "the request is no longer open"
        comment, by = request.POST.get("comment", ""), by_admin(request)
        try:
            if "approve" not in request.POST:
                publishing.reject(asked, by, comment)
                self.log_change(request, asked.version, "Rejected the request.")
                self.message_user(request, "The request is rejected.", messages.SUCCESS)
                return HttpResponseRedirect(_url("change", asked.version))
            published = publishing.approve(asked, by, comment)
        except (AuthzError, Unavailable) as reason:
            return reason.message.partition("\n")[0]
        self.log_change(request, asked.version, "Approved the request, and activated.")
        return self._done(request, published)

    def _activate(self, request: HttpRequest, version: PolicyVersion) -> HttpResponse | str:
        """Activate the version and return a redirect; return the reason for refusing if the page is to ask again."""
        by, force, where = by_admin(request), "force" in request.POST, version.environment_id
        replaces = whole_number(request.POST.get("seen", ""), MAX_VERSION) or 0
        try:
            published = publishing.activate(where, version.number, force=force, by=by, replaces=replaces)
        except PolicyTestsFailed:
            return "its tests fail. Select the box below to activate it anyway"
        except ActiveVersionChanged as reason:
            return f"{reason.message}. Review the changes below and try again"
        except (AuthzError, Unavailable) as reason:
            self.message_user(request, reason.message, messages.ERROR)
            return HttpResponseRedirect(_url("change", version))
        self.log_change(request, version, "Requested to activate." if published.is_requested else "Activated.")
        return self._done(request, published)

    def _version(self, request: HttpRequest, object_id: str) -> PolicyVersion | None:
        version = self.get_object(request, unquote(object_id))
        if version is not None and not self.has_view_or_change_permission(request, version):
            raise PermissionDenied
        return version

    # ---- pages ----------------------------------------------------------------------------------------------

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        context = self.admin_site.each_context(request) | {
            "title": f"Policy version {version.number}" if version else "Edit policy",
            "opts": self.opts,
            "version": version,
            "is_active": version is not None and version.pk == version.environment.policy_version_id,
            "may_edit": self.may_edit(request),
            "may_publish": self.has_add_permission(request),
            "may_activate": self.has_change_permission(request),
            "figures": RecordedResults.of_version(version) if version else None,
            "requests": version.requests.all() if version else (),
        }
        return TemplateResponse(request, f"{_PAGES}/{name}.html", context | shown)

    def _done(self, request: HttpRequest, published: Published) -> HttpResponse:
        if not may_view_facts(request):
            published = replace(published, ignored=Ignored())
        message = published.message[0].upper() + published.message[1:] + "."
        drafted = published.draft
        is_untested = drafted and (drafted.untested or not drafted.report.success)
        is_doubtful = published.is_requested or published.ignored.count or is_untested
        self.message_user(request, message, messages.WARNING if is_doubtful else messages.SUCCESS)
        if not self.has_view_or_change_permission(request):
            return HttpResponseRedirect(reverse("admin:index"))
        return HttpResponseRedirect(_url("change", published.version))


def _contents(version: PolicyVersion, with_facts: bool) -> dict[str, object]:
    """Return the program and its warnings, or its compile errors; `with_facts`, also the number of unused facts."""
    try:
        program = program_of_version(version.pk)
    except AuthzError as reason:
        return {"trouble": reason.message}
    warnings = excerpts_of_problems(program.source, program.warnings)
    ignored = publishing.ignored_facts(version.environment_id, program) if with_facts else None
    return {"program": program, "warnings": warnings, "ignored": ignored}


def _since_before(version: PolicyVersion) -> dict[str, object]:
    """Return the diff from the preceding version; empty if one of the texts is too long to be compared here."""
    earlier = PolicyVersion.objects.filter(environment_id=version.environment_id, number__lt=version.number)
    before = earlier.order_by("-number").first()
    if before is None or max(version.source.count("\n"), before.source.count("\n")) > _MOST_COMPARED:
        return {}
    sides = _sides(difference(before.source, version.source))
    return {"before": before, "hidden_rows": sides.pop("hidden")} | sides


def _lines(text: str) -> dict[str, object]:
    lines = text.split("\n", _MOST_LINES)
    rest = lines.pop() if len(lines) > _MOST_LINES else ""
    return {"lines": highlighted_lines("\n".join(lines)) if text else [], "hidden": rest.count("\n") + bool(rest)}


def _compared_by_default(version: PolicyVersion, others: QuerySet) -> PolicyVersion | None:
    """Return the active version or, if `version` is the active one, the version before it."""
    active = others.filter(pk=version.environment.policy_version_id).first()
    return active or others.filter(number__lt=version.number).order_by("-number").first()


def _sides(rows: list) -> dict[str, object]:
    return {
        "rows": rows[:_MOST_LINES],
        "hidden": max(0, len(rows) - _MOST_LINES),
        "added": sum(row.kind == "added" for row in rows),
        "removed": sum(row.kind == "removed" for row in rows),
    }


def _url(name: str, version: PolicyVersion) -> str:
    return reverse(f"admin:authz_policy_policyversion_{name}", args=[version.pk])
