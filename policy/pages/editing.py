"""The page where a policy is written, and what it asks while somebody writes there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse

from policy import drafts, publishing
from policy.drafts import SavedElsewhere, Written
from policy.errors import AuthzError, TooLarge, Unavailable
from policy.language.completion import completions
from policy.language.format import formatted
from policy.language.plumbing import MAX_BYTES
from policy.language.source import Source
from policy.models import Environment, PolicyDraft, PolicyVersion, default_environment, environment_named
from policy.pages import editor, typed
from policy.pages.author import by_admin, may_view_facts
from policy.pages.editor import Outcome, PolicyForm
from policy.pages.meanwhile import published_meanwhile
from policy.publishing import Published


class Pane(NamedTuple):
    """What the page shows beside the text: `address` answers a text that is sent there with a piece of a page."""

    name: str
    title: str
    address: str


class TypedForm(PolicyForm):
    """A text as it is typed. `window` tells one page from another of the same person."""

    place = forms.IntegerField(required=False, min_value=0)
    window = forms.CharField(required=False, max_length=40)


Told = dict[str, object]

_OPENED_BY_ANOTHER = "this page was opened by somebody else"
_SOMEBODY_ELSE = f"{_OPENED_BY_ANOTHER}: look whose name is above, and publish again"


class EditingAdmin(admin.ModelAdmin):
    """Policies are written in the place of Django's form for a new version."""

    def get_urls(self):
        views = {
            "problems": self.problems_view, "completions": self.completions_view, "tests": self.tests_view,
            "format": self.format_view, "meanwhile": self.meanwhile_view, "draft": self.draft_view,
            "discard": self.discard_view,
        }  # fmt: skip
        wrap = self.admin_site.admin_view
        extra = [path(f"add/{name}/", wrap(view), name=editor_url_name(name)) for name, view in views.items()]
        return extra + super().get_urls()

    # ---- the page -------------------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Edit a policy, from the text of an earlier one, check it, and publish it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return self._editor(request, PolicyForm(initial=self._start(request)), Outcome())
        form = PolicyForm(request.POST)
        is_valid = form.is_valid()
        if not _is_theirs(request):
            return self._editor(request, form, Outcome(trouble=_SOMEBODY_ELSE))
        if not is_valid:
            return self._editor(request, form, Outcome(trouble="nothing is published, because of the fields below"))
        sent = form.cleaned_data
        if "_check" in request.POST:
            outcome = editor.check(sent, may_view_facts(request))
        else:
            outcome = editor.publish(sent, by_admin(request))
        if outcome.published is None:
            return self._editor(request, form, outcome)
        drafts.discard_published(request.user, sent["environment"], sent["source"], sent["stamp"])
        if not outcome.published.is_unchanged:
            self.log_addition(request, outcome.published.version, "published")
        return self._done(request, outcome.published)

    def _start(self, request: HttpRequest) -> dict[str, object]:
        """The text to begin with: that of the version asked for, else the draft, else what is active."""
        origin = self.get_object(request, request.GET.get("from", ""))
        if origin is not None and not self.has_view_or_change_permission(request, origin):
            raise PermissionDenied
        environment = origin.environment if origin else _environment_asked(request)
        if origin is None and (draft := drafts.draft_of(request.user, environment)):
            return {
                "environment": environment, "source": draft.source, "filename": draft.filename, "seen": draft.seen,
                "stamp": draft.stamp, "draft": draft,
            }  # fmt: skip
        if origin is None and self.has_view_or_change_permission(request):
            origin = publishing.active_version(environment.pk)
        start = {"environment": environment, "seen": _active_number(environment)}
        return start | ({"source": origin.source, "filename": origin.filename or ""} if origin else {})

    def _editor(self, request: HttpRequest, form: PolicyForm, outcome: Outcome) -> HttpResponse:
        sent = getattr(form, "cleaned_data", form.initial)
        environment = sent.get("environment") or default_environment()
        source, seen = sent.get("source", ""), sent.get("seen")
        draft: PolicyDraft | None = sent.get("draft")
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
            seen=seen if draft else _active_number(environment),
            stamp=sent.get("stamp"),
            draft=draft,
            other_draft=None if draft or form.is_bound else drafts.draft_of(request.user, environment),
            meanwhile=self._meanwhile(request, environment, seen) if draft or form.is_bound else None,
            force=bool(sent.get("force")),
            panes=self.panes(request),
            is_bound=form.is_bound,
        )

    def panes(self, request: HttpRequest) -> list[Pane]:
        """What others show beside the text."""
        return []

    def _meanwhile(self, request: HttpRequest, environment: Environment, seen: int | None) -> dict[str, object] | None:
        found = published_meanwhile(environment, seen)
        if found is None:
            return None
        return {"meanwhile": found, "may_look": self.has_view_or_change_permission(request)}

    def discard_view(self, request: HttpRequest) -> HttpResponse:
        """Let go of the draft, and begin anew."""
        form = self._sent(request)
        if isinstance(form, HttpResponse):
            return form
        if "environment" not in form.cleaned_data:
            return _refused(form)
        environment = form.cleaned_data["environment"]
        if _is_theirs(request):
            drafts.discard(request.user, environment)
            self.message_user(request, "The draft is discarded.")
        else:
            self.message_user(request, "Nothing is discarded: the page was opened by somebody else.", messages.ERROR)
        return HttpResponseRedirect(f"{reverse('admin:policy_policyversion_add')}?environment={environment.slug}")

    # ---- while somebody writes ------------------------------------------------------------------------------

    def problems_view(self, request: HttpRequest) -> HttpResponse:
        """What is wrong with the text, and which version is active now."""
        return self._told(request, self._problems)

    def completions_view(self, request: HttpRequest) -> HttpResponse:
        """What can stand at the place."""
        return self._told(request, lambda sent: typed.told_of_completions(completions(*_text_and_place(sent))))

    def tests_view(self, request: HttpRequest) -> HttpResponse:
        """What comes of the test at the place, or of all tests."""
        window = self._window(request)
        return self._told(request, lambda sent: typed.told_of_tests(_source(sent), sent["place"], window))

    def format_view(self, request: HttpRequest) -> HttpResponse:
        """The text in the one layout."""
        return self._told(request, lambda sent: {"text": formatted(sent["source"])})

    def meanwhile_view(self, request: HttpRequest) -> HttpResponse:
        """What was published since the text was begun, as a piece of the page."""

        def told(sent: dict) -> Told:
            found = self._meanwhile(request, sent["environment"], sent["seen"])
            html = render_to_string("admin/policy/policyversion/meanwhile.html", found, request) if found else ""
            return {"html": html, "active": _active_number(sent["environment"])}

        return self._told(request, told)

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """Keep the text."""

        def told(sent: dict) -> Told:
            written = Written(sent["source"], sent["filename"], sent["seen"])
            draft = drafts.keep(request.user, sent["environment"], written, sent["stamp"])
            return _told_of_draft(draft) if draft else {"stamp": None}

        return self._told(request, told)

    def _problems(self, sent: dict) -> Told:
        told = typed.told_of_problems(_source(sent), sent["window"])
        return {**told, "active": _active_number(sent["environment"])}

    def _window(self, request: HttpRequest) -> object:
        return request.user.pk, request.POST.get("window", "")

    def _told(self, request: HttpRequest, answer: Callable[[dict], Told]) -> HttpResponse:
        """Answer a text that is typed as JSON. That it is no policy yet is no failure of the request."""
        form = self._sent(request)
        if isinstance(form, HttpResponse):
            return form
        if not _is_theirs(request):
            # Nothing of theirs is told either: it would be shown in the page of another.
            return JsonResponse({"message": _OPENED_BY_ANOTHER, "somebody_else": True}, status=403)
        if not form.is_valid():
            return _refused(form)
        sent = form.cleaned_data
        try:
            if len(sent["source"]) > MAX_BYTES:
                raise TooLarge(f"the policy is longer than {MAX_BYTES} bytes")
            return JsonResponse(answer({**sent, "window": self._window(request)}))
        except typed.Overtaken:
            return JsonResponse({"overtaken": True})
        except SavedElsewhere as reason:
            return JsonResponse({"other": _told_of_draft(reason.draft)})
        except (AuthzError, Unavailable) as reason:
            return JsonResponse({"refused": reason.message})

    def _sent(self, request: HttpRequest) -> TypedForm | HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        form = TypedForm(request.POST)
        form.is_valid()
        return form

    # ---- what the page of versions has ------------------------------------------------------------------------

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        raise NotImplementedError

    def _done(self, request: HttpRequest, published: Published) -> HttpResponse:
        raise NotImplementedError


def editor_url_name(name: str) -> str:
    return f"policy_policyversion_editor_{name}"


def _is_theirs(request: HttpRequest) -> bool:
    """Whether who sends it opened the page: another may have logged in since, in another window of the browser."""
    return request.POST.get("person") == str(request.user.pk)


def _refused(form: TypedForm) -> JsonResponse:
    reasons = [f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
    return JsonResponse({"message": "; ".join(reasons)}, status=400)


def _source(sent: dict) -> Source:
    return Source(sent["source"], sent["filename"])


def _text_and_place(sent: dict) -> tuple[str, int]:
    return sent["source"], min(sent["place"] or 0, len(sent["source"]))


def _told_of_draft(draft: PolicyDraft) -> Told:
    """The stamp is a text: it is longer than the numbers that browsers count with."""
    return {"stamp": str(draft.stamp), "saved_at": draft.saved_at.isoformat(), "source": draft.source}


def _environment_asked(request: HttpRequest) -> Environment:
    return environment_named(request.GET.get("environment", "")) or default_environment()


def _active_number(environment: Environment) -> int | None:
    active = publishing.active_version(environment.pk)
    return active.number if active else None
