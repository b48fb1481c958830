"""The policy editor, and the requests that its page sends."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse

from policy import publishing, rules
from policy.core.clock import time_of
from policy.core.journal import By, Kind, by_admin
from policy.core.memory import Recent
from policy.errors import AuthzError, TooLarge, Unavailable
from policy.language.completion import completions
from policy.language.format import formatted
from policy.language.parser import MAX_BYTES
from policy.language.source import PolicyRejected, Problem, Source
from policy.models import (
    EDIT_DRAFTS,
    Environment,
    PolicyDraft,
    PolicyVersion,
    Revision,
    default_environment,
    environment_named,
)
from policy.pages import highlight
from policy.rules.program import Program, Test
from policy.views import MAX_FILENAME

# ---- Feedback on a text while it is being edited ------------------------------------------------------------------
# Each process compiles one text at a time and tests one text at a time, so that editors take little time from requests
# for decisions. If several texts of one window wait, only the last of them is compiled or tested.

_KEPT = 400_000  # characters of all texts whose compiled programs are cached


class Superseded(Exception):
    """Raised if a later text of the same window arrived while this one waited for its turn."""


class LatestOnly:
    """A lock for only the latest waiter of each name: the others raise `Superseded` when they acquire it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._there: Counter[object] = Counter()  # number of waiters and holders by name
        self._latest: dict[object, int] = {}  # kept until the last one leaves: earlier waiters compare with it

    @contextmanager
    def turn(self, name: object) -> Iterator[None]:
        with self._counting:
            self._there[name] += 1
            number = self._latest[name] = self._latest.get(name, 0) + 1
        try:
            with self._turn:
                if self._latest[name] != number:
                    raise Superseded
                yield
        finally:
            with self._counting:
                self._there[name] -= 1
                if not self._there[name]:
                    del self._there[name], self._latest[name]


_compiling, _testing = LatestOnly(), LatestOnly()
_programs: Recent[str, Program] = Recent(_KEPT, lambda text, program: len(program.source.text) + 1)  # by digest


def program_of(source: Source, window: object) -> Program:
    """Return the text's program, from the cache or compiled; raise `PolicyRejected` or `Superseded`."""
    digest = sha256(source.text.encode(errors="surrogatepass")).hexdigest()
    if (known := _programs.get(digest)) is not None:
        return known
    with _compiling.turn(window):
        program = _programs.get(digest) or rules.compile_source(source)
    if len(source.text) < _KEPT:
        _programs.store(digest, program)
    return program


# ---- problems ----------------------------------------------------------------------------------------------------


def problems_to_json(source: Source, window: object) -> dict[str, object]:
    """Return the errors with their positions; for a valid policy, its warnings and counts of types, rules and tests."""
    try:
        program = program_of(source, window)
    except PolicyRejected as reason:
        return {"problems": [_problem(source, each) for each in reason.problems], "amounts": None}
    amounts = {"types": len(program.types), "rules": len(program.written), "tests": len(program.tests)}
    return {"problems": [_problem(source, each) for each in program.warnings], "amounts": amounts}


def _problem(source: Source, problem: Problem) -> dict[str, object]:
    line, column = source.position(problem.span.start)
    return {
        "severity": problem.severity, "message": problem.message, "hint": problem.hint,
        "line": line, "column": column, "start": problem.span.start, "end": problem.span.end,
    }  # fmt: skip


# ---- tests -------------------------------------------------------------------------------------------------------


def tests_to_json(source: Source, place: int | None, window: object) -> dict[str, object]:
    """Run the test at `place`, or all tests if it is None; for a rejected text, return the number of problems."""
    try:
        program = program_of(source, window)
    except PolicyRejected as reason:
        return {"tests": None, "problems": len(reason.problems)}
    chosen = program.tests if place is None else _tests_at(program, place)
    with _testing.turn((window, place is None)):
        report = publishing.run_tests(replace(program, tests=chosen), fail_fast=False)
    return {"tests": [_typed_outcome(source, test, one) for test, one in zip(chosen, report.tests)]}


def _tests_at(program: Program, place: int) -> tuple[Test, ...]:
    """Return the first test on the line of `place`, as a tuple; an empty one if there is none."""
    line = program.source.position(place)[0]
    for test in program.tests:
        first, last = program.source.position(test.span.start)[0], program.source.position(test.span.end)[0]
        if first <= line <= last:
            return (test,)
    return ()


def _typed_outcome(source: Source, test: Test, outcome: publishing.TestOutcome) -> dict[str, object]:
    failed = [one for one in outcome.assertions if not one.passed]
    spans = [highlight.span_of_line(source, one.line) for one in failed]
    failures = [
        {
            "line": one.line,
            "message": one.message,
            "explanation": list(one.explanation(publishing.line_named)),
            "text": one.text,
            "start": span.start,
            "end": span.end,
        }
        for one, span in zip(failed, spans)
    ]
    line, _ = source.position(test.span.start)
    shown = {"name": test.name, "line": line, "start": test.span.start, "end": test.span.end}
    return {**shown, "passed": outcome.passed, "total": outcome.total, "failures": failures}


# ---- submission ---------------------------------------------------------------------------------------------------
# A text submitted from the policy editor: its form, and the outcome of checking or publishing.

SPARE_NUMBERS = 500  # line numbers beyond the text, for lines that are added without JavaScript
MOST_NUMBERS = 20_000


class PolicyForm(forms.Form):
    """The form of the policy editor.

    `seen` is the version that was active when editing began: if another one is active when the text is published,
    nothing is changed, and publishing must be confirmed. `stamp` is that of the draft that the page knows.
    """

    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    filename = forms.CharField(required=False, strip=False, max_length=MAX_FILENAME)
    source = forms.CharField(required=False, strip=False, widget=forms.Textarea)
    seen = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)
    stamp = forms.IntegerField(required=False, widget=forms.HiddenInput)
    force = forms.BooleanField(required=False)
    note = forms.CharField(required=False, max_length=publishing.MAX_NOTE)  # one line: what changes, and why

    def clean_note(self) -> str:
        if fault := publishing.note_fault(self.cleaned_data["note"]):
            raise forms.ValidationError(fault)
        return self.cleaned_data["note"]

    def clean_source(self) -> str:
        # Browsers send every line end as CR LF.
        return self.cleaned_data["source"].replace("\r\n", "\n").replace("\r", "\n")


@dataclass
class Submitted:
    """The outcome that the page displays. The text is stored only if `published` is set."""

    published: publishing.Published | None = None
    note: str = ""  # success message
    trouble: str = ""
    excerpts: list[highlight.Excerpt] = field(default_factory=list)
    may_force: bool = False


def submitted(sent: dict, act: Callable[[dict, Source], Submitted]) -> Submitted:
    """Check or publish the text (`act`); convert exceptions to what the page says about them."""
    source = Source(sent["source"], sent["filename"])
    try:
        return act(sent, source)
    except PolicyRejected as reason:
        count = len(reason.problems)
        trouble = f"{count} problem{'' if count == 1 else 's'}; not published"
        return Submitted(trouble=trouble, excerpts=highlight.excerpts_of_problems(source, reason.problems))
    except publishing.PolicyTestsFailed as reason:
        trouble = f"{publishing.results_of(reason.report)}; not published"
        return Submitted(
            trouble=trouble, excerpts=highlight.excerpts_of_failures(source, reason.report), may_force=True
        )
    except publishing.ActiveVersionChanged as reason:
        became = f"version {reason.number} became active" if reason.number else "the active version was withdrawn"
        return Submitted(trouble=f"{became} while you were editing. Publish again to replace it with the text below")
    except (AuthzError, Unavailable) as reason:
        return Submitted(trouble=reason.message)


def checked(with_facts: bool, sent: dict, source: Source) -> Submitted:
    """Compile and test the text without publishing it; `with_facts`, also count the facts that it doesn't use."""
    drafted = publishing.draft(source.text, source.filename, force=True)
    ignored = publishing.ignored_facts(sent["environment"].pk, drafted.program) if with_facts else publishing.Ignored()
    note = "; ".join(["the policy is valid", *publishing.remarks_on(drafted, ignored)])
    warnings = highlight.excerpts_of_problems(source, drafted.program.warnings)
    failures = highlight.excerpts_of_failures(source, drafted.report)
    if failures:
        return Submitted(trouble=note, excerpts=failures + warnings, may_force=True)
    return Submitted(note=f"{note}; not published", excerpts=warnings)


def published(by: By, may_publish: bool, sent: dict, source: Source) -> Submitted:
    done = publishing.publish(
        sent["environment"].pk, source.text, source.filename, force=sent["force"], by=by, note=sent["note"],
        replaces=sent["seen"] or 0, may_publish=may_publish,
    )  # fmt: skip
    return Submitted(published=done)


def line_numbers(text: str, excerpts: list[highlight.Excerpt]) -> list[tuple[int, str, str]]:
    """Return number, severity and message of each line, and of empty lines that may be added."""
    meant = {one.line: one for one in reversed(excerpts)}
    count = min(text.count("\n") + 1 + SPARE_NUMBERS, MOST_NUMBERS)
    marks = ((number, meant.get(number)) for number in range(1, count + 1))
    return [(number, one.severity if one else "", one.message if one else "") for number, one in marks]


# ---- Concurrent edits: what was published since editing began, by whom, when, and the changes ----------------------

_MOST = 5  # publications that are listed; earlier ones are only counted


@dataclass(frozen=True, slots=True)
class Publication:
    """A version becoming active."""

    number: int
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NewerVersions:
    """The publications after the version that the author saw, the latest last, and the diff to the active version."""

    seen: int | None
    active: PolicyVersion | None
    publications: tuple[Publication, ...]
    more: int
    rows: tuple[highlight.DifferenceRow, ...]  # from the version that the author saw to the active one

    @property
    def added(self) -> int:
        return sum(row.kind == "added" for row in self.rows)

    @property
    def removed(self) -> int:
        return sum(row.kind == "removed" for row in self.rows)


def published_meanwhile(environment: Environment, seen: int | None) -> NewerVersions | None:
    """Return what was published since version `seen`; None if that is still the active one."""
    active = publishing.active_version(environment.pk)
    if (active.number if active else None) == seen:
        return None
    before = PolicyVersion.objects.filter(environment=environment, number=seen).first() if seen else None
    came = _publications(environment, before)
    rows = highlight.difference(before.source if before else "", active.source if active else "")
    return NewerVersions(seen, active, tuple(came[-_MOST:]), len(came[:-_MOST]), tuple(rows))


def _publications(environment: Environment, before: PolicyVersion | None) -> list[Publication]:
    kept = Revision.objects.filter(environment=environment, kind=Kind.POLICY)
    if before is not None:
        last = kept.filter(policy_version=before).order_by("-number").first()
        kept = kept.filter(number__gt=last.number) if last else kept.filter(policy_version__number__gt=before.number)
    found = kept.order_by("number").values_list("policy_version__number", "author", "at")
    return [Publication(number, author, time_of(at)) for number, author, at in found if number is not None]


# ---- The editor's page, and the requests that it sends during editing ---------------------------------------------


class Pane(NamedTuple):
    """A pane next to the text. The page posts the text to `address`, which returns an HTML fragment."""

    name: str
    title: str
    address: str


class TypedForm(PolicyForm):
    """A text during editing. `window` distinguishes the open pages of one user."""

    place = forms.IntegerField(required=False, min_value=0)
    window = forms.CharField(required=False, max_length=40)


JsonObject = dict[str, object]

_OPENED_BY_ANOTHER = "this page was opened by another user"
_SOMEBODY_ELSE = f"{_OPENED_BY_ANOTHER}. Check the user name at the top of the page, then publish again"


def may_view_facts(request: HttpRequest) -> bool:
    """Return whether the user may see stored facts, and so their number."""
    return any(request.user.has_perm(f"authz_facts.{what}_signature") for what in ("view", "change"))


class EditingAdmin(admin.ModelAdmin):
    """Replaces Django's form for a new version by the editor."""

    def may_edit(self, request: HttpRequest) -> bool:
        """Return whether the user may write drafts: publishers, and users with the permission to do only that."""
        drafts = PolicyDraft._meta
        only_drafts = f"{drafts.app_label}.{get_permission_codename(EDIT_DRAFTS, drafts)}"
        return self.has_add_permission(request) or request.user.has_perm(only_drafts)

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
        """Edit a policy, starting from the text of an earlier one; check it, and publish it."""
        if not self.may_edit(request):
            raise PermissionDenied
        if request.method != "POST":
            return self._editor(request, PolicyForm(initial=self._start(request)), Submitted())
        form = PolicyForm(request.POST)
        is_valid = form.is_valid()
        if not _is_theirs(request):
            return self._editor(request, form, Submitted(trouble=_SOMEBODY_ELSE))
        if not is_valid:
            return self._editor(request, form, Submitted(trouble="not published. Correct the errors below"))
        sent = form.cleaned_data
        publishes = partial(published, by_admin(request), self.has_add_permission(request))
        checks = partial(checked, may_view_facts(request))
        outcome = submitted(sent, checks if "_check" in request.POST else publishes)
        if outcome.published is None:
            return self._editor(request, form, outcome)
        publishing.discard_published(request.user, sent["environment"], sent["source"], sent["stamp"])
        if not outcome.published.is_unchanged:
            what = "requested to publish" if outcome.published.is_requested else "published"
            self.log_addition(request, outcome.published.version, what)
        return self._done(request, outcome.published)

    def _start(self, request: HttpRequest) -> dict[str, object]:
        """Return the form's initial values: from the requested version, else the draft, else the active version."""
        origin = self.get_object(request, request.GET.get("from", ""))
        if origin is not None and not self.has_view_or_change_permission(request, origin):
            raise PermissionDenied
        asked = origin.environment if origin else environment_named(request.GET.get("environment", ""))
        environment = asked or default_environment()
        if origin is None and (draft := publishing.draft_of(request.user, environment)):
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
        source, seen = sent.get("source", form["source"].value() or ""), sent.get("seen")
        draft: PolicyDraft | None = sent.get("draft")
        meanwhile = published_meanwhile(environment, seen) if draft or form.is_bound else None
        if meanwhile is not None and not draft:  # the page shows the changes up to this version
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
            numbers=line_numbers(source, outcome.excerpts),
            seen=seen,
            stamp=sent.get("stamp"),
            draft=draft,
            other_draft=None if draft or form.is_bound else publishing.draft_of(request.user, environment),
            meanwhile=self._shown(request, meanwhile),
            force=bool(sent.get("force")),
            panes=self.panes(request),
            is_bound=form.is_bound,
            only_requests=not self.has_add_permission(request) or environment.needs_approval,
        )

    def panes(self, request: HttpRequest) -> list[Pane]:
        """Return the panes next to the text; subclasses add theirs."""
        return []

    def _shown(self, request: HttpRequest, found: NewerVersions | None) -> dict[str, object] | None:
        if found is None:
            return None
        return {"meanwhile": found, "may_look": self.has_view_or_change_permission(request)}

    def discard_view(self, request: HttpRequest) -> HttpResponse:
        """Delete the draft that the page shows, and redirect to a new page. If another was saved, only redirect."""
        form = self._sent(request)
        if isinstance(form, HttpResponse):
            return form
        if not {"environment", "stamp"} <= form.cleaned_data.keys():
            return _refused(form)
        environment, refusal = form.cleaned_data["environment"], ""
        try:
            if _is_theirs(request):
                publishing.discard(request.user, environment, form.cleaned_data["stamp"])
            else:
                refusal = _OPENED_BY_ANOTHER
        except publishing.NewerDraftExists as reason:
            refusal = f"{reason.message}. Review it below, then discard it again if you don't need it"
        except (AuthzError, Unavailable) as reason:
            refusal = reason.message
        if refusal:
            self.message_user(request, f"Draft not discarded: {refusal}.", messages.ERROR)
        else:
            self.message_user(request, "Draft discarded.")
        return HttpResponseRedirect(f"{reverse('admin:authz_policy_policyversion_add')}?environment={environment.slug}")

    # ---- during editing -------------------------------------------------------------------------------------

    def problems_view(self, request: HttpRequest) -> HttpResponse:
        """Return the problems of the text, and the number of the active version."""
        return self._answer(request, self._problems)

    def completions_view(self, request: HttpRequest) -> HttpResponse:
        """Return the completions at the position."""
        return self._answer(request, lambda sent: asdict(completions(*_text_and_place(sent))))

    def tests_view(self, request: HttpRequest) -> HttpResponse:
        """Run the test at the position, or all tests, and return the results."""
        window = self._window(request)
        return self._answer(request, lambda sent: tests_to_json(_source(sent), sent["place"], window))

    def format_view(self, request: HttpRequest) -> HttpResponse:
        """Return the formatted text."""
        return self._answer(request, lambda sent: {"text": formatted(sent["source"])})

    def meanwhile_view(self, request: HttpRequest) -> HttpResponse:
        """Return what was published since editing began, as HTML; empty if nothing was."""

        def answer(sent: dict) -> JsonObject:
            found = published_meanwhile(sent["environment"], sent["seen"])
            if found is None:
                return {"html": "", "active": sent["seen"]}
            shown = self._shown(request, found)
            html = render_to_string("admin/authz_policy/policyversion/meanwhile.html", shown, request)
            return {"html": html, "active": found.active.number if found.active else None}

        return self._answer(request, answer)

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """Save the text as the user's draft, and return its stamp: None if the text is the active policy's."""

        def answer(sent: dict) -> JsonObject:
            written = publishing.DraftText(sent["source"], sent["filename"], sent["seen"])
            draft = publishing.keep(request.user, sent["environment"], written, sent["stamp"])
            return _draft_to_json(draft) if draft else {"stamp": None}

        return self._answer(request, answer)

    def _problems(self, sent: dict) -> JsonObject:
        found = problems_to_json(_source(sent), sent["window"])
        return {**found, "active": publishing.active_number(sent["environment"].pk)}

    def _window(self, request: HttpRequest) -> object:
        return request.user.pk, request.POST.get("window", "")

    def _answer(self, request: HttpRequest, answer: Callable[[dict], JsonObject]) -> HttpResponse:
        """Answer a request of the editor with JSON. An invalid policy is not an error of the request: status 200."""
        form = self._sent(request)
        if isinstance(form, HttpResponse):
            return form
        if not _is_theirs(request):
            # Reveal nothing about the current user's texts: the page was opened by another user.
            return JsonResponse({"message": _OPENED_BY_ANOTHER, "somebody_else": True}, status=403)
        if not form.is_valid():
            return _refused(form)
        sent = form.cleaned_data
        try:
            if len(sent["source"]) > MAX_BYTES:
                raise TooLarge(f"the policy is larger than {MAX_BYTES:,} bytes; split or shorten it")
            return JsonResponse(answer({**sent, "window": self._window(request)}))
        except Superseded:
            return JsonResponse({"overtaken": True})
        except publishing.NewerDraftExists as reason:
            return JsonResponse({"other": _draft_to_json(reason.draft)})
        except (AuthzError, Unavailable) as reason:
            return JsonResponse({"refused": reason.message})

    def _sent(self, request: HttpRequest) -> TypedForm | HttpResponse:
        if not self.may_edit(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        form = TypedForm(request.POST)
        form.is_valid()
        return form

    # ---- implemented by the admin of versions -----------------------------------------------------------------

    def _page(
        self, request: HttpRequest, name: str, version: PolicyVersion | None, **shown: object
    ) -> TemplateResponse:
        raise NotImplementedError

    def _done(self, request: HttpRequest, published: publishing.Published) -> HttpResponse:
        raise NotImplementedError


def editor_url_name(name: str) -> str:
    return f"authz_policy_policyversion_editor_{name}"


def _is_theirs(request: HttpRequest) -> bool:
    """Return whether the user opened this page: another user may have logged in since, in another browser window."""
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
