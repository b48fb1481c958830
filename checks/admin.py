"""The workbench: pages of a policy version where questions are asked, answers explained, and changes previewed.

They belong to the version's own page, so the version's admin is registered again, with these pages added.
"""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from checks.explain.tree import shown_value
from checks.workbench.differences import Compared
from checks.workbench.graph import other_rules, sheets_of
from checks.workbench.pages import (
    KINDS,
    PageAnswer,
    QuestionForm,
    answer_for_page,
    page_lines,
    suggestions,
    versions_to_choose,
)
from checks.workbench.picture import picture_of
from checks.workbench.preview import Preview, preview
from checks.workbench.review import State
from checks.workbench.reviewed import ReviewForm, ReviewPage, review_for_page
from policy.active import program_of_version
from policy.admin import PolicyVersionAdmin
from policy.errors import AuthzError
from policy.language.rejection import PolicyRejected
from policy.models import PolicyVersion
from policy.pages.excerpts import excerpts_of_problems
from policy.pages.highlight import highlighted_lines
from policy.rules.program import Program
from policy.values import Value, quoted

_MOST_RULES = 300  # on the page of the picture
_MOST_FLIPS = 300  # answers that differ, on the page of what would change
_FIELDS = ("kind", "actor", "action", "resource", "context", "revision", "at")

admin.site.unregister(PolicyVersion)


@admin.register(PolicyVersion)
class WorkbenchAdmin(PolicyVersionAdmin):
    list_display = ["title", "state", "pages", *PolicyVersionAdmin.list_display[2:]]

    @admin.display(description="")
    def pages(self, version: PolicyVersion) -> SafeString:
        """Links to the pages that are wanted most often."""
        links = [(_url(name, version.pk), title) for name, title in (("ask", "Ask"), ("picture", "Picture"))]
        return format_html_join(" · ", '<a href="{}">{}</a>', links)

    def get_urls(self):
        pages = {
            "ask": self.ask_view, "ids": self.ids_view, "picture": self.picture_view, "preview": self.preview_view,
            "review": self.review_view,
        }  # fmt: skip
        wrap = self.admin_site.admin_view
        extra = [
            path(f"<path:object_id>/{name}/", wrap(view), name=f"policy_policyversion_{name}")
            for name, view in pages.items()
        ]
        return extra + super().get_urls()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        page = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(page, TemplateResponse):
            page.template_name = "admin/checks/source.html"
        return page

    def _seen(self, request: HttpRequest, object_id: str) -> PolicyVersion | None:
        """Return the version, for those who may also see the facts that explanations show."""
        if not request.user.has_perm("facts.view_signature"):
            raise PermissionDenied
        return self._version(request, object_id)

    # ---- asking -----------------------------------------------------------------------------------------------

    def ask_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        sent = request.POST if request.method == "POST" else request.GET
        chosen = sent.get("version", str(version.pk))
        if request.method == "GET" and chosen != str(version.pk) and self._version(request, chosen):
            return HttpResponseRedirect(f"{_url('ask', chosen)}?{request.GET.urlencode()}")
        form = QuestionForm({**sent.dict(), "version": chosen}) if "kind" in sent else QuestionForm()
        return self._workbench(request, version, form, sent)

    def _workbench(
        self, request: HttpRequest, version: PolicyVersion, form: QuestionForm, sent: QueryDict
    ) -> TemplateResponse:
        answered, trouble, source = None, {}, version.source
        if form.is_bound and form.is_valid():
            asked = form.cleaned_data
            version, source = asked["version"], asked["text"] or asked["version"].source
            if not self.has_view_or_change_permission(request, version):
                raise PermissionDenied
            try:
                answered = answer_for_page(version, asked["text"], asked["question"], asked["moment"])
            except AuthzError as reason:
                trouble = _trouble(reason)
        program, suggested = _program(version), {}
        if program is not None:
            suggested = suggestions(version.environment_id, program)
        return self._page(
            request, "ask", version,
            form=form, sent=sent, kinds=KINDS, kind=sent.get("kind", "authorize"),
            answered=answered, suggested=suggested, **trouble,
            versions=versions_to_choose(version),
            text=sent.get("text", ""), source=source,
            answers=_answers(version, sent, answered), environment=version.environment,
        )  # fmt: skip

    def ids_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Answer what a field may be completed to, as JSON."""
        version = self._seen(request, object_id)
        program = _program(version) if version else None
        if version is None or program is None:
            return JsonResponse({})
        found = suggestions(version.environment_id, program, request.GET.get("start", ""))
        return JsonResponse(found)

    # ---- the picture -------------------------------------------------------------------------------------------

    def picture_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        program = _program(version)
        sheets = [(sheet, picture_of(sheet)) for sheet in sheets_of(program)] if program else []
        others = other_rules(program) if program else []
        rules = [(line, highlighted_lines(text)[0]) for line, text in others[:_MOST_RULES]]
        shown = {"sheets": sheets, "others": rules, "hidden": len(others[_MOST_RULES:])}
        return self._page(request, "picture", version, **shown, is_nav_sidebar_enabled=False)

    # ---- what would change --------------------------------------------------------------------------------------

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Compare the active policy of the version's environment with this version, or with a text that is sent."""
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        text = request.POST.get("text", version.source).replace("\r\n", "\n")
        questions = request.POST.get("questions", "")
        found, trouble = None, {}
        if request.method == "POST":
            try:
                asked = questions if questions.strip() else None
                found = preview(version.environment_id, text, version.filename or "", asked)
            except AuthzError as reason:
                trouble = _trouble(reason)
        shown = {"found": found, **(_previewed(found) if found else {}), "text": text, "questions": questions}
        return self._page(request, "preview", version, **shown, **trouble)

    # ---- who had what, and what changed ---------------------------------------------------------------------------

    def review_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Compare who may do what in the version's environment at two moments, or list it at one."""
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        form = ReviewForm(request.GET) if {"start", "at"} & request.GET.keys() else ReviewForm()
        found, trouble = None, {}
        if form.is_bound and form.is_valid():
            try:
                found = review_for_page(version.environment, form.cleaned_data)
            except AuthzError as reason:
                trouble = _trouble(reason)
        program = _program(version)
        declared = program.types if program else {}
        return self._page(
            request, "review", version,
            form=form, sent=request.GET, found=found, lines=_reviewed(found) if found else (), **trouble,
            types=sorted(declared), actions=sorted({name for each in declared.values() for name in each.permissions}),
            is_nav_sidebar_enabled=False,
        )  # fmt: skip

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        page = super()._page(request, name, version, **shown)
        if name in ("ask", "picture", "preview", "review"):
            page.template_name = f"admin/checks/{name}.html"
        return page


def _program(version: PolicyVersion) -> Program | None:
    """Return the version's program; None where the compiler does not take its text any more."""
    try:
        return program_of_version(version.pk)
    except AuthzError:
        return None


def _trouble(reason: AuthzError) -> dict[str, object]:
    """Return what went wrong for the page: in a text, beside the lines that it is about."""
    if isinstance(reason, PolicyRejected):
        return {"excerpts": excerpts_of_problems(reason.source, reason.problems)}
    return {"trouble": reason.message}


def _previewed(found: Preview) -> dict[str, object]:
    """Return what the page shows of a preview that its template cannot work out."""
    flips = found.flips[:_MOST_FLIPS]
    return {
        "flips": [(flip, [(side, page_lines(side)) for side in flip.sides]) for flip in flips],
        "differ": f"{found.differ:,}",
        "hidden": f"{found.differ - len(flips):,}" if found.differ > len(flips) else "",
        "failing": sum(bool(test.failures) for test in found.draft.report.tests),
        "kinds": [(each.kind, _numbers(each), each.extent) for each in found.asked.kinds],
    }


def _reviewed(found: ReviewPage) -> list[tuple[str, tuple[str, ...], str]]:
    """Return the lines, each with the address that explains it as of the moment when it held."""
    explained = []
    for state, texts in found.lines:
        moment = found.moments[0 if state == State.LOST else -1]
        asked = QueryDict(mutable=True)
        asked.update({"kind": "authorize", **dict(zip(("actor", "action", "resource"), texts))})
        asked.update({"version": str(moment.version), "revision": str(moment.revision)})
        explained.append((state, texts, f"{_url('ask', moment.version)}?{asked.urlencode()}"))
    return explained


def _numbers(compared: Compared) -> list[str]:
    tally = compared.tally
    return [f"{number:,}" for number in (tally.answers, tally.gained, tally.lost)]


def _answers(version: PolicyVersion, sent: QueryDict, answered: PageAnswer | None) -> list[tuple[str, str]]:
    """Return the answers of a list, each with the address that explains it; a text that was sent has no address."""
    if answered is None or answered.answers is None:
        return []
    if sent.get("text"):
        return [(text, "") for text in answered.answers]
    return [(text, _address(version, sent, text)) for text in answered.answers]


def _address(version: PolicyVersion, sent: QueryDict, answer: str) -> str:
    asked = QueryDict(mutable=True)
    fields = sent.dict()
    asked.update({name: str(fields[name]) for name in _FIELDS if fields.get(name)})
    if fields["kind"] == "list":
        type_name = str(fields["resource"]).partition(":")[0].strip()
        asked["resource"] = f"{type_name}:*" if answer == "*" else shown_value(Value(type_name, answer))
    else:
        asked["action"] = quoted(answer) if answer.startswith('"') else answer
    asked["kind"], asked["version"] = "authorize", str(version.pk)
    return f"{_url('ask', version.pk)}?{asked.urlencode()}"


def _url(name: str, pk: object) -> str:
    return reverse(f"admin:policy_policyversion_{name}", args=[pk])
