"""Facts for people: browse, search, add, delete, look back. The rows hang on their signatures, which are few."""

from dataclasses import replace
from datetime import datetime

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import path, reverse

from facts import history_pages, read, store
from facts.ends import EndIsPast
from facts.history_pages import fact_url, timeline_url
from facts.models import Row, Signature
from facts.notation import fact_from_text
from facts.numbering import types_of_text
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, Pattern
from policy.clock import microseconds_of, time_of
from policy.errors import AuthzError, Unavailable
from policy.models import Environment, default_environment
from policy.pages.author import by_admin
from policy.revisions import By

COUNTED = 10_000  # facts: of what is more than that, no more is said


class Narrowing(forms.Form):
    """What part of the facts to show; every field may be left open."""

    environment = forms.ModelChoiceField(Environment.objects.all(), required=False, empty_label="all environments")
    predicate = forms.ChoiceField(required=False)
    type = forms.ChoiceField(required=False, label="Argument type")
    id = forms.CharField(required=False, label="Argument id", strip=False)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        kinds = Signature.objects.values_list("predicate", "types").distinct()
        predicates = sorted({predicate for predicate, _ in kinds})
        types = sorted({name for _, text in kinds for name in types_of_text(text)})
        self._offer("predicate", "all predicates", predicates)
        self._offer("type", "all types", types)

    def _offer(self, name: str, every: str, choices: list[str]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", every), *((each, each) for each in choices)]

    def kinds(self) -> list[Signature]:
        asked = self.cleaned_data
        kinds = Signature.objects.select_related("environment").order_by("environment__slug", "predicate", "types")
        if asked["environment"]:
            kinds = kinds.filter(environment=asked["environment"])
        if asked["predicate"]:
            kinds = kinds.filter(predicate=asked["predicate"])
        return [kind for kind in kinds if not asked["type"] or asked["type"] in types_of_text(kind.types)]


class NewFact(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    fact = forms.CharField(
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "size": 100}),
        help_text='such as <code>has_role(User{"ann"}, "admin", Repo{"acme"})</code>, '
        "or shorter <code>has_role(User:ann, admin, Repo:acme)</code>",
    )

    ends = forms.DateTimeField(
        required=False,
        label="Until",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}),
        help_text="in UTC; from then on the fact does not count. Without it, the fact is for good.",
    )

    def __init__(self, by: By, data: QueryDict | None):
        super().__init__(data)
        self.by = by

    def clean(self) -> dict:
        """Storing is the validation, the same as of the API."""
        super().clean()
        asked = self.cleaned_data
        if not self.errors:
            try:
                fact = _ending(fact_from_text(asked["fact"]), asked["ends"])
                store.apply(asked["environment"].id, [Inserts([fact], None)], self.by)
                asked["stored"] = fact
            except EndIsPast as reason:
                self.add_error("ends", reason.reason)
            except (AuthzError, Unavailable) as reason:
                self.add_error("fact", reason.message)
        return asked


def _ending(fact: Fact, at: datetime | None) -> Fact:
    return fact if at is None else replace(fact, expires_at=microseconds_of(at))


@admin.register(Signature)
class FactAdmin(admin.ModelAdmin):
    def get_urls(self):
        return [
            path("", self.admin_site.admin_view(self.browse), name="facts_signature_changelist"),
            path("add/", self.admin_site.admin_view(self.add), name="facts_signature_add"),
            path("history/", self.admin_site.admin_view(self.history), name="facts_signature_history"),
            path(
                "revision/<int:environment_id>/<int:number>/",
                self.admin_site.admin_view(self.revision),
                name="facts_signature_revision",
            ),
        ]

    def browse(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._delete_selected(request)
        narrowing = Narrowing(request.GET)
        kinds = narrowing.kinds() if narrowing.is_valid() else []
        return TemplateResponse(request, "admin/facts/signature/browse.html", self._shown(request, narrowing, kinds))

    def _shown(self, request: HttpRequest, narrowing: Narrowing, kinds: list[Signature]) -> dict:
        text, after = request.GET.get("id", ""), _row_of_token(request.GET.get("after", ""))
        page = read.search(kinds, text, request.GET.get("type", "")) if text else read.page_of(kinds, after)
        slugs = {kind.id: kind.environment.slug for kind in kinds}
        last = page.facts[-1].row if page.facts else None
        return self.admin_site.each_context(request) | {
            "title": "Facts",
            "opts": self.opts,
            "narrowing": narrowing,
            "facts": [
                (slugs[each.row[0]], each.fact, _end_of(each.fact), _token_of_row(each.row), _history_of(each))
                for each in page.facts
            ],
            "history_url": _history_url(narrowing, kinds),
            "summary": _summary(narrowing, kinds, page),
            "next": _query(request, after=_token_of_row(last)) if page.more and not text else "",
            "first": _query(request) if after else "",
            "may_add": self.has_add_permission(request),
            "may_delete": self.has_delete_permission(request),
        }

    def _delete_selected(self, request: HttpRequest) -> HttpResponse:
        if not self.has_delete_permission(request):
            raise PermissionDenied
        deleted = 0
        try:
            for row in filter(None, map(_row_of_token, request.POST.getlist("selected"))):
                deleted += self._delete(request, row)
        except Unavailable as reason:
            self.message_user(request, reason.message, messages.ERROR)
        self.message_user(request, f"{deleted} fact{'s are' if deleted != 1 else ' is'} deleted.", messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())

    def _delete(self, request: HttpRequest, row: Row) -> int:
        kind = Signature.objects.filter(id=row[0]).first()
        if kind is None:
            return 0
        pattern = _pattern_of_row(kind, row)
        deleted = store.apply(kind.environment_id, [Deletes([pattern])], by_admin(request)).deleted
        self._note(request, kind, f"deleted {pattern}")
        return deleted

    def add(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewFact(by_admin(request), request.POST or None)
        if request.method == "POST" and form.is_valid():
            return self._added(request, form.cleaned_data["environment"], form.cleaned_data["stored"])
        context = self.admin_site.each_context(request) | {"title": "Add a fact", "opts": self.opts, "form": form}
        return TemplateResponse(request, "admin/facts/signature/add.html", context)

    def _added(self, request: HttpRequest, environment: Environment, fact: Fact) -> HttpResponse:
        kind = next(
            kind
            for kind in Signature.objects.filter(environment=environment, predicate=fact.predicate)
            if types_of_text(kind.types) == fact.signature.types
        )
        told = f"{fact} {_end_of(fact)}".rstrip()
        self._note(request, kind, f"added {told}")
        self.message_user(request, f"Stored: {told}", messages.SUCCESS)
        there = "admin:facts_signature_add" if "_addanother" in request.POST else "admin:facts_signature_changelist"
        return HttpResponseRedirect(reverse(there))

    # ---- history --------------------------------------------------------------------------------------------

    def history(self, request: HttpRequest) -> HttpResponse:
        """Of a fact, of all facts of a kind, or of an environment."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if "signature" in request.GET:
            asked = history_pages.fact_asked(request)
            if asked is None:
                raise Http404("there are no such facts")
            shown = history_pages.facts_page(request, *asked, self._may_view_policies(request))
            title = "History of a fact" if asked[1] else "History of a kind of facts"
            return self._history_page(request, "facts_history", title, shown)
        environment = history_pages.environment_asked(request) or default_environment()
        shown = history_pages.timeline(request, environment, self._may_view_policies(request))
        shown["environments"] = Environment.objects.all()
        return self._history_page(request, "timeline", f"History of {environment.slug}", shown)

    def revision(self, request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
        """Show what one revision changed."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        revision = history_pages.revision_asked(environment_id, number)
        if revision is None:
            raise Http404("there is no such revision")
        shown = history_pages.revision_page(request, revision, self._may_view_policies(request))
        return self._history_page(request, "revision", f"Revision {revision.number}", shown)

    def _history_page(self, request: HttpRequest, name: str, title: str, shown: dict[str, object]) -> HttpResponse:
        context = self.admin_site.each_context(request) | {"title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/facts/signature/{name}.html", context | shown)

    def _may_view_policies(self, request: HttpRequest) -> bool:
        return any(request.user.has_perm(f"policy.{what}_policyversion") for what in ("view", "change"))

    def _note(self, request: HttpRequest, kind: Signature, message: str) -> None:
        who = request.user.pk
        assert who is not None, "only who is logged in comes so far"
        LogEntry.objects.log_actions(who, [kind], CHANGE, message, single_object=True)


def _history_of(filed: read.Filed) -> str:
    return fact_url(filed.row, len(filed.fact.args))


def _end_of(fact: Fact) -> str:
    """Until when a fact is stored, to the minute."""
    return "" if fact.expires_at is None else f"until {time_of(fact.expires_at):%Y-%m-%d %H:%M}"


def _summary(narrowing: Narrowing, kinds: list[Signature], page: read.Page) -> str:
    if not narrowing.is_valid():
        return "Nothing is shown: what is chosen above does not exist."
    asked = narrowing.cleaned_data
    return _found(page, asked["id"], asked["type"]) if asked["id"] else _counted(kinds)


def _history_url(narrowing: Narrowing, kinds: list[Signature]) -> str:
    """Return where the history of what is shown is: of the one kind, or else of the environment."""
    if len(kinds) == 1:
        return fact_url((kinds[0].pk,), 0)
    environment = narrowing.cleaned_data.get("environment") if narrowing.is_valid() else None
    return timeline_url(environment.pk) if environment else reverse("admin:facts_signature_history")


def _counted(kinds: list[Signature]) -> str:
    count = read.count_up_to(COUNTED + 1, [kind.id for kind in kinds])
    if count > COUNTED:
        return f"More than {COUNTED:,} facts of these kinds."
    return f"{count:,} fact{'' if count == 1 else 's'} of these kinds."


def _found(page: read.Page, text: str, type_name: str) -> str:
    """What a search came to."""
    argument = f"an argument of {type_name} with" if type_name else "an argument with"
    if not page.facts:
        return f"No fact of these kinds has {argument} the id “{text}”. Ids are compared whole, letter by letter."
    if page.more:
        return f"More than {len(page.facts)} facts have {argument} this id; these are some of them: narrow the search."
    return f"{len(page.facts)} fact{' has' if len(page.facts) == 1 else 's have'} {argument} this id."


def _query(request: HttpRequest, **changed: str) -> str:
    query = request.GET.copy()
    query.pop("after", None)
    query.update(changed)
    return "?" + query.urlencode()


def _token_of_row(row: Row | None) -> str:
    return signing.dumps(row) if row else ""


def _row_of_token(token: str) -> Row | None:
    """The row, if the token is one that this page gave out."""
    if not token:
        return None
    try:
        number, *ids = signing.loads(token)
    except signing.BadSignature:
        return None
    return (number, *ids)


def _pattern_of_row(kind: Signature, row: Row) -> Pattern:
    types = types_of_text(kind.types)
    return Pattern(kind.predicate, tuple(Argument(name, text) for name, text in zip(types, row[1:])))
