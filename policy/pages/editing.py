"""The page where a policy is written, and the requests that it sends while somebody writes."""

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
from policy.drafts import DraftText, SavedElsewhere
from policy.errors import AuthzError, TooLarge, Unavailable
from policy.language.completion import completions
from policy.language.format import formatted
from policy.language.parser import MAX_BYTES
from policy.language.source import Source
from policy.models import Environment, PolicyDraft, PolicyVersion, default_environment, environment_named
from policy.pages import submission, typed
from policy.pages.author import by_admin, may_view_facts
from policy.pages.meanwhile import Meanwhile, published_meanwhile
from policy.pages.submission import PolicyForm, Submitted
from policy.publishing import Published


class Pane(NamedTuple):
    """A pane beside the text. The page sends the text to `address`, which answers with a piece of HTML."""

    name: str
    title: str
    address: str


class TypedForm(PolicyForm):
    """A text as it is typed. `window` tells the open pages of one user apart."""

    place = forms.IntegerField(required=False, min_value=0)
    window = forms.CharField(required=False, max_length=40)


JsonObject = dict[str, object]

_OPENED_BY_ANOTHER = "this page was opened by somebody else"
_SOMEBODY_ELSE = f"{_OPENED_BY_ANOTHER}: look whose name is above, and publish again"


class EditingAdmin(admin.ModelAdmin):
    """Shows the editor in place of Django's form for a new version."""

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
            return self._editor(request, PolicyForm(initial=self._start(request)), Submitted())
        form = PolicyForm(request.POST)
        is_valid = form.is_valid()
        if not _is_theirs(request):
            return self._editor(request, form, Submitted(trouble=_SOMEBODY_ELSE))
        if not is_valid:
            return self._editor(request, form, Submitted(trouble="nothing is published, because of the fields below"))
        sent = form.cleaned_data
        if "_check" in request.POST:
            outcome = submission.check(sent, may_view_facts(request))
        else:
            outcome = submission.publish(sent, by_admin(request))
        if outcome.published is None:
            return self._editor(request, form, outcome)
        drafts.discard_published(request.user, sent["environment"], sent["source"], sent["stamp"])
        if not outcome.published.is_unchanged:
            self.log_addition(request, outcome.published.version, "published")
        return self._done(request, outcome.published)

    def _start(self, request: HttpRequest) -> dict[str, object]:
        """Return the first values of the form: from the version asked for, else the draft, else the active version."""
        origin = self.get_object(request, request.GET.get("from", ""))
        if origin is not None and not self.has_view_or_change_permission(request, origin):
            raise PermissionDenied
        environment = origin.environment if origin else _environment_asked(request)
        if origin is None and (draft := drafts.draft_of(request.user, environment)):
            return {
                "environment": environment, "source": draft.source, "filename": draft.filename, "seen": draft.seen,
                "stamp": draft.stamp, "draft": draft,
            }  # fmt: skip
        active = publishing.active_version(environment.pk)  # read once: `seen` must be the version whose text is shown
        if origin is None and self.has_view_or_change_permission(request):
            origin = active
        start = {"environment": environment, "seen": active.number if active else None}
        return start | ({"source": origin.source, "filename": origin.filename or ""} if origin else {})

    def _editor(self, request: HttpRequest, form: PolicyForm, outcome: Submitted) -> HttpResponse:
        sent = getattr(form, "cleaned_data", form.initial)
        environment = sent.get("environment") or default_environment()
        source, seen = sent.get("source", ""), sent.get("seen")
        draft: PolicyDraft | None = sent.get("draft")
        meanwhile = published_meanwhile(environment, seen) if draft or form.is_bound else None
        if meanwhile is not None and not draft:  # the page shows what changed until this version
            seen = meanwhile.active.number if meanwhile.active else None
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
            numbers=submission.line_numbers(source, outcome.excerpts),
            seen=seen,
            stamp=sent.get("stamp"),
            draft=draft,
            other_draft=None if draft or form.is_bound else drafts.draft_of(request.user, environment),
            meanwhile=self._shown(request, meanwhile),
            force=bool(sent.get("force")),
            panes=self.panes(request),
            is_bound=form.is_bound,
        )

    def panes(self, request: HttpRequest) -> list[Pane]:
        """Return the panes beside the text; subclasses add theirs."""
        return []

    def _shown(self, request: HttpRequest, found: Meanwhile | None) -> dict[str, object] | None:
        if found is None:
            return None
        return {"meanwhile": found, "may_look": self.has_view_or_change_permission(request)}

    def discard_view(self, request: HttpRequest) -> HttpResponse:
        """Delete the draft, and redirect to a new page."""
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
        """Answer with the problems of the text, and the number of the active version."""
        return self._answer(request, self._problems)

    def completions_view(self, request: HttpRequest) -> HttpResponse:
        """Answer with what can be written at the place."""
        return self._answer(request, lambda sent: typed.completions_to_json(completions(*_text_and_place(sent))))

    def tests_view(self, request: HttpRequest) -> HttpResponse:
        """Run the test at the place, or all tests, and answer with the results."""
        window = self._window(request)
        return self._answer(request, lambda sent: typed.tests_to_json(_source(sent), sent["place"], window))

    def format_view(self, request: HttpRequest) -> HttpResponse:
        """Answer with the formatted text."""
        return self._answer(request, lambda sent: {"text": formatted(sent["source"])})

    def meanwhile_view(self, request: HttpRequest) -> HttpResponse:
        """Answer with what was published since the text was begun, as HTML; empty if nothing was."""

        def answer(sent: dict) -> JsonObject:
            found = published_meanwhile(sent["environment"], sent["seen"])
            if found is None:
                return {"html": "", "active": sent["seen"]}
            shown = self._shown(request, found)
            html = render_to_string("admin/policy/policyversion/meanwhile.html", shown, request)
            return {"html": html, "active": found.active.number if found.active else None}

        return self._answer(request, answer)

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """Save the text as the user's draft, and answer with its stamp: None if the text is the active policy's."""

        def answer(sent: dict) -> JsonObject:
            written = DraftText(sent["source"], sent["filename"], sent["seen"])
            draft = drafts.keep(request.user, sent["environment"], written, sent["stamp"])
            return _draft_to_json(draft) if draft else {"stamp": None}

        return self._answer(request, answer)

    def _problems(self, sent: dict) -> JsonObject:
        found = typed.problems_to_json(_source(sent), sent["window"])
        return {**found, "active": _active_number(sent["environment"])}

    def _window(self, request: HttpRequest) -> object:
        return request.user.pk, request.POST.get("window", "")

    def _answer(self, request: HttpRequest, answer: Callable[[dict], JsonObject]) -> HttpResponse:
        """Answer a typed text with JSON. A text that is not a policy yet is not an error of the request: status 200."""
        form = self._sent(request)
        if isinstance(form, HttpResponse):
            return form
        if not _is_theirs(request):
            # Answer nothing about the present user's texts: the page was opened by another user.
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
            return JsonResponse({"other": _draft_to_json(reason.draft)})
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
    """Say whether the user opened this page: another user may have logged in since, in another browser window."""
    return request.POST.get("person") == str(request.user.pk)


def _refused(form: TypedForm) -> JsonResponse:
    reasons = [f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]
    return JsonResponse({"message": "; ".join(reasons)}, status=400)


def _source(sent: dict) -> Source:
    return Source(sent["source"], sent["filename"])


def _text_and_place(sent: dict) -> tuple[str, int]:
    return sent["source"], min(sent["place"] or 0, len(sent["source"]))


def _draft_to_json(draft: PolicyDraft) -> JsonObject:
    """Return the draft as JSON. The stamp is a string: as a number, it would be too large for JavaScript."""
    return {"stamp": str(draft.stamp), "saved_at": draft.saved_at.isoformat(), "source": draft.source}


def _environment_asked(request: HttpRequest) -> Environment:
    return environment_named(request.GET.get("environment", "")) or default_environment()


def _active_number(environment: Environment) -> int | None:
    active = publishing.active_version(environment.pk)
    return active.number if active else None
