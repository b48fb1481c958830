"""The workbench: pages of a policy version for checking access, explanations, and impact previews.

They belong to the version's own page, so the version's admin is registered again with these pages added.
"""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from checks.analysis.questions import compared_on_page, without_effect
from checks.analysis.search import REQUEST_SECONDS, request_solver
from checks.ask_pages.pages import ask_page, questions_about, short_address, trouble_of, version_chosen
from checks.ask_pages.question import filled, page_url, program_or_none, suggestions
from checks.compare.preview import preview, previewed
from checks.compare.review_page import ReviewForm, empty_review_page, review_for_page
from checks.decisions.page import page_of_log
from checks.picture.drawing import layout_of_sheet, picture_of
from checks.picture.graph import sheets_of
from checks.picture.page import KINDS as FILE_KINDS
from checks.picture.page import PictureRequest, exported, picture_page
from facts.history_pages import activated_url
from facts.models import Signature
from facts.pages.admin import FactAdmin
from policy.endpoint import public_url_of
from policy.errors import AuthzError
from policy.language.source import Source
from policy.models import Environment, PolicyVersion, default_environment, environment_named
from policy.pages.admin import PolicyVersionAdmin
from policy.pages.editing import LatestOnly, Pane, editor_url_name, program_of
from policy.publishing import active_version
from policy.rules.program import Program
from policy.values import Value

_NO_VERSION = "this policy version does not exist"
_EDITOR_SECONDS = 1.0  # time limit of the impact pane
_EDITOR_FLIPS = 20
_EDITOR_SHEETS = 40
_comparing, _analysing = LatestOnly(), LatestOnly()

admin.site.unregister(PolicyVersion)


@admin.register(PolicyVersion)
class WorkbenchAdmin(PolicyVersionAdmin):
    list_display = [*PolicyVersionAdmin.list_display, "pages"]

    @admin.display(description="pages")
    def pages(self, version: PolicyVersion) -> SafeString:
        """Return links to the most used pages."""
        links = [(page_url(name, version.pk), title) for name, title in (("ask", "Check"), ("picture", "Diagram"))]
        return format_html_join(" · ", '<a href="{}">{}</a>', links)

    def get_urls(self):
        pages = {
            "ask": self.ask_view, "ids": self.ids_view, "picture": self.picture_view, "preview": self.preview_view,
            "review": self.review_view,
        }  # fmt: skip
        beside = {
            "change": self.editor_change_view, "picture": self.editor_picture_view,
            "analysis": self.editor_analysis_view,
        }  # fmt: skip
        wrap = self.admin_site.admin_view
        extra = [path(f"add/{name}/", wrap(view), name=editor_url_name(name)) for name, view in beside.items()]
        extra += [
            path(f"<path:object_id>/{name}/", wrap(view), name=f"authz_policy_policyversion_{name}")
            for name, view in pages.items()
        ]
        return extra + super().get_urls()

    def site_urls(self):
        """Return the URL of the page of decisions, which belongs to no version."""
        return [path("decisions/", self.admin_site.admin_view(self.decisions_view), name="decisions")]

    def decisions_view(self, request: HttpRequest) -> HttpResponse:
        """Show the decision log."""
        if not self._may_compare(request):
            raise PermissionDenied
        environment = environment_named(request.GET.get("environment", "")) or default_environment()
        shown = page_of_log(request, environment) | {"environments": Environment.objects.all()}
        context = self.admin_site.each_context(request) | {"title": "Decisions", "opts": self.opts} | shown
        return TemplateResponse(request, "admin/authz_checks/decisions.html", context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        page = super().change_view(request, object_id, form_url, extra_context)
        if isinstance(page, TemplateResponse) and page.context_data is not None:
            page.template_name = "admin/authz_checks/source.html"
            if request.user.has_perm("authz_facts.view_signature"):
                page.context_data["history_url"] = activated_url(page.context_data["version"])
        return page

    def _seen(self, request: HttpRequest, object_id: str) -> PolicyVersion | None:
        """Return the version, or None if it does not exist; deny users who may not see the facts in explanations."""
        if not request.user.has_perm("authz_facts.view_signature"):
            raise PermissionDenied
        return self._version(request, object_id)

    # ---- checks -----------------------------------------------------------------------------------------------

    def ask_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Answer the question in the URL, by the version's policy or by a draft that is sent."""
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        if request.method == "GET":
            address = short_address(version, request.GET)
            if address:
                return HttpResponseRedirect(address)
        sent = request.GET.dict() | request.POST.dict()
        chosen = version_chosen(str(sent.get("version", version.pk)))
        if chosen is None:
            return self._page(request, "ask", version, **ask_page(version, {}, "", ""), trouble=_NO_VERSION)
        if not self.has_view_or_change_permission(request, chosen):
            raise PermissionDenied
        text = str(sent.get("text", "")).replace("\r\n", "\n").replace("\r", "\n")
        shown = ask_page(chosen, filled(sent), text, public_url_of(request.META), "ways" in sent)
        return self._page(request, "ask", chosen, **shown)

    def ids_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return suggestions for the fields of a question, as JSON."""
        version = self._seen(request, object_id)
        program = program_or_none(version) if version else None
        if version is None or program is None:
            return JsonResponse({})
        found = suggestions(version.environment_id, program, request.GET.get("start", ""))
        return JsonResponse(found)

    # ---- the diagram -------------------------------------------------------------------------------------------

    def picture_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version = self._version(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        program, asked = program_or_none(version), PictureRequest.of(request.GET.dict())
        kind = request.GET.get("format", "")
        if program is not None and kind in FILE_KINDS:
            return self._file(version, program, kind, asked)
        page = picture_page(program, asked) if program else None
        return self._page(request, "picture", version, page=page, is_nav_sidebar_enabled=False)

    def _file(self, version: PolicyVersion, program: Program, kind: str, asked: PictureRequest) -> HttpResponse:
        """Return the diagram as a download. Its headers keep scripts from running even if it is opened as a page."""
        try:
            text = exported(program, kind, asked.type, asked.leads_to)
        except AuthzError as reason:
            return HttpResponse(reason.message, "text/plain; charset=utf-8", 404)
        content_type, ending = FILE_KINDS[kind]
        name = f"policy-{version.environment.slug}-{version.number}.{ending}"
        return HttpResponse(
            text,
            content_type,
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
                "X-Content-Type-Options": "nosniff",
            },
        )

    # ---- impact preview -----------------------------------------------------------------------------------------

    def preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Compare the active policy of the version's environment with this version, or with a draft that is sent."""
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        text = request.POST.get("text", version.source).replace("\r\n", "\n")
        questions = request.POST.get("questions", "")
        found, trouble = None, {}
        if request.method == "POST":
            try:
                if "over_all" in request.POST:
                    shown = {"text": text, "questions": questions, "lines": len(text.splitlines())}
                    shown["over_all"] = compared_on_page(version.environment_id, text)
                    return self._page(request, "preview", version, **shown)
                asked = questions if questions.strip() else None
                found = preview(version.environment_id, text, version.filename or "", asked)
            except AuthzError as reason:
                trouble = trouble_of(reason)
        outcome = previewed(found) if found else {}
        shown = {"found": found, **outcome, "text": text, "questions": questions}
        shown["lines"] = len(text.splitlines())
        return self._page(request, "preview", version, **shown, **trouble)

    def _impact(self, version: PolicyVersion) -> dict[str, object]:
        """Return what a requested version would change, for the page that asks to approve it."""
        try:
            found = preview(
                version.environment_id, version.source, version.filename or "", seconds=_EDITOR_SECONDS, explains=False
            )
        except AuthzError:  # the page says so itself
            return {}
        return {"found": found, **previewed(found, _EDITOR_FLIPS)}

    # ---- beside the editor ------------------------------------------------------------------------------------------

    def panes(self, request: HttpRequest) -> list[Pane]:
        titles = {"change": "Impact", "picture": "Diagram", "analysis": "Analysis"}
        panes = [Pane(name, title, reverse(f"admin:{editor_url_name(name)}")) for name, title in titles.items()]
        return [pane for pane in panes if pane.name != "change" or self._may_compare(request)]

    def _may_compare(self, request: HttpRequest) -> bool:
        """Return whether the user may see the active policy's answers over the stored facts."""
        return self.has_view_or_change_permission(request) and request.user.has_perm("authz_facts.view_signature")

    def editor_change_view(self, request: HttpRequest) -> HttpResponse:
        """Summarize the impact of the draft in the editor, as an HTML fragment for the editor's page."""
        if not self._may_compare(request):
            raise PermissionDenied

        def fragment(sent: dict) -> dict[str, object]:
            with _comparing.turn(sent["window"]):
                found = preview(
                    sent["environment"].pk, sent["source"], sent["filename"], seconds=_EDITOR_SECONDS, explains=False
                )
            active = active_version(sent["environment"].pk)
            whole = page_url("preview", active.pk) if active else ""
            return _piece("editor_change", found=found, whole=whole, **previewed(found, _EDITOR_FLIPS))

        return self._answer(request, fragment)

    def editor_picture_view(self, request: HttpRequest) -> HttpResponse:
        """Draw the diagram of the draft in the editor, as an HTML fragment for the editor's page."""

        def fragment(sent: dict) -> dict[str, object]:
            sheets = sheets_of(program_of(Source(sent["source"], sent["filename"]), sent["window"]))
            drawn = [
                (sheet, picture_of(layout_of_sheet(sheet), f"Roles and permissions on {sheet.title}"))
                for sheet in sheets[:_EDITOR_SHEETS]
            ]
            return _piece("editor_picture", sheets=drawn, more=len(sheets[_EDITOR_SHEETS:]))

        return self._answer(request, fragment)

    def editor_analysis_view(self, request: HttpRequest) -> HttpResponse:
        """List what has no effect in the draft in the editor, as an HTML fragment for the editor's page."""

        def fragment(sent: dict) -> dict[str, object]:
            source = Source(sent["source"], sent["filename"])
            program = program_of(source, sent["window"])
            with _analysing.turn(sent["window"]), request_solver() as solver:
                notices, is_whole = without_effect(program, solver)
            lines = [(source.position(each.span.start)[0], each) for each in notices]
            return _piece("editor_analysis", lines=lines, is_whole=is_whole, seconds=REQUEST_SECONDS)

        return self._answer(request, fragment)

    # ---- access reviews -------------------------------------------------------------------------------------------

    def review_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Compare who may do what in the version's environment at two moments, or list it at one."""
        version = self._seen(request, object_id)
        if version is None:
            return self._gone(request, object_id)
        form = ReviewForm(request.GET) if {"start", "at"} & request.GET.keys() else ReviewForm()
        shown, trouble = {}, {}
        if form.is_bound and form.is_valid():
            try:
                shown = review_for_page(version, form.cleaned_data)
            except AuthzError as reason:
                trouble = trouble_of(reason)
        shown |= empty_review_page(version, request.GET.dict())
        return self._page(request, "review", version, form=form, **shown, **trouble)

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        if name == "activate" and version is not None and shown.get("asked") and self._may_compare(request):
            shown |= self._impact(version)
        page = super()._page(request, name, version, **shown)
        if name in ("activate", "ask", "picture", "preview", "review", "editor"):
            page.template_name = f"admin/authz_checks/{name}.html"
        return page


admin.site.unregister(Signature)


@admin.register(Signature)
class AnsweringFactAdmin(FactAdmin):
    """The pages of facts. For users who may see policy versions, a value's page links to what the value may do."""

    def answers(self, request: HttpRequest, environment: Environment, value: Value) -> dict[str, object]:
        may_ask = any(request.user.has_perm(f"authz_policy.{what}_policyversion") for what in ("view", "change"))
        return {"questions": questions_about(environment, value) if may_ask else {}}


def _piece(name: str, **shown: object) -> dict[str, object]:
    return {"html": render_to_string(f"admin/authz_checks/{name}.html", shown)}
