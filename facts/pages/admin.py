"""The admin's pages of facts: their URLs, and the permissions to view and change facts.

The pages are in `facts/pages`, and those about history in `facts/history_pages.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from facts import history_pages
from facts.accept import UnknownName, sentences, unknown_names
from facts.keyset_pages import Count
from facts.loading import Loaded
from facts.models import Signature
from facts.pages import browse, change
from facts.pages.browse import browse_url, end_of, narrowed
from facts.pages.change import FileOnDisk
from facts.read import read_snapshot
from facts.wire import Fact
from policy.core.config import is_service
from policy.core.journal import by_admin
from policy.errors import AuthzError, Unavailable
from policy.models import Environment, default_environment, environment_named
from policy.templatetags.sentences import with_code
from policy.values import Value


@admin.register(Signature)
class FactAdmin(admin.ModelAdmin):
    def get_urls(self):
        wrap = self.admin_site.admin_view
        return [
            *(() if is_service() else self._value_urls("")),
            path("", wrap(self.browse), name="authz_facts_signature_changelist"),
            path("add/", wrap(self.add), name="authz_facts_signature_add"),
            path("delete/", wrap(self.delete), name="authz_facts_signature_delete"),
            path("import/", wrap(self.import_facts), name="authz_facts_signature_import"),
            path("export/", wrap(self.export), name="authz_facts_signature_export"),
            path("ids/", wrap(self.ids), name="authz_facts_ids"),
            path("history/", wrap(self.history), name="authz_facts_signature_history"),
            path(
                "revision/<int:environment_id>/<int:number>/",
                wrap(self.revision),
                name="authz_facts_signature_revision",
            ),
        ]

    def site_urls(self):
        """Return the URLs of the pages about a value, which in the service are next to those of facts."""
        return self._value_urls("facts/")

    def _value_urls(self, folder: str) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path(f"{folder}value/", wrap(self.value), name="authz_facts_value"),
            path(f"{folder}value/history/", wrap(self.value_history), name="authz_facts_value_history"),
        ]

    # ---- viewing ----------------------------------------------------------------------------------------------

    def browse(self, request: HttpRequest) -> HttpResponse:
        self._check_view(request)
        may = {"may_add": self.has_add_permission(request), "may_delete": self.has_delete_permission(request)}
        return self._page(request, "browse", "Facts", browse.shown(request) | may)

    def ids(self, request: HttpRequest) -> HttpResponse:
        """Return completions of an id, as JSON."""
        self._check_view(request)
        asked = narrowed(request.GET)
        return JsonResponse({"ids": browse.offered(asked, asked.text) if asked.is_valid else []})

    def value(self, request: HttpRequest) -> HttpResponse:
        asked = self._value_asked(request)
        shown = browse.shown_value(request, *asked) | dict(self.answers(request, *asked))
        return self._page(request, "value", browse.short(f"{asked[1].type}:{asked[1].id}"), shown)

    def _value_asked(self, request: HttpRequest) -> tuple[Environment, Value]:
        self._check_view(request)
        if (asked := browse.value_asked(request)) is None:
            raise Http404("This value does not exist.")
        return asked

    def answers(self, request: HttpRequest, environment: Environment, value: Value) -> Mapping[str, object]:
        """Return links to what a value may do, and who may do what to it: the app above overrides this."""
        return {}

    # ---- changing ---------------------------------------------------------------------------------------------

    def add(self, request: HttpRequest) -> HttpResponse:
        self._check_add(request)
        where, ends_stay = self._environment(request), not self._may_change_ends(request)
        form = change.NewFact(by_admin(request), request.POST or None, where, ends_stay)
        if request.method == "POST" and form.is_valid():
            return self._added(request, form.cleaned_data["environment"], form.cleaned_data["stored"])
        shapes = change.shapes(browse.program_of(self._environment(request)))
        return self._page(request, "add", "Add a fact", {"form": form, "shapes": shapes})

    def _added(self, request: HttpRequest, environment: Environment, fact: Fact) -> HttpResponse:
        stored = f"{fact.noted} {end_of(fact)}".rstrip()
        self._note(request, change.kind_of(environment, fact), "Added a fact.")
        self.message_user(request, f"Stored: {stored}", messages.SUCCESS)
        self._warn_of(request, unknown_names(browse.program_of(environment), [fact]))
        there = reverse("admin:authz_facts_signature_add") + f"?environment={environment.pk}"
        first = fact.args[0]
        back = browse_url(environment.pk, predicate=fact.predicate, type=first.type, id=first.id)
        return HttpResponseRedirect(there if "_addanother" in request.POST else back)

    def delete(self, request: HttpRequest) -> HttpResponse:
        """Ask for confirmation to delete the selected facts; delete the confirmed ones."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        back = _back(request)
        if request.method != "POST":
            return HttpResponseRedirect(back)
        if "confirmed" in request.POST:
            return self._delete(request, back)
        shown, gone = change.asked_about(request.POST.getlist("selected"))
        self._tell_gone(request, gone)
        if not shown:
            self.message_user(request, "No facts were selected. Select at least one fact to delete.", messages.WARNING)
            return HttpResponseRedirect(back)
        return self._asked_about(request, shown, back)

    def _delete(self, request: HttpRequest, back: str) -> HttpResponse:
        try:
            done = change.delete(change.confirmed(request.POST.getlist("fact")), by_admin(request))
        except (AuthzError, Unavailable) as reason:
            self.message_user(request, with_code(f"No facts were deleted: {reason.message}"), messages.ERROR)
            return HttpResponseRedirect(back)
        if done.asked_again:
            changed = "No facts were deleted: some have changed since you selected them. Confirm again."
            self.message_user(request, changed, messages.WARNING)
            return self._asked_about(request, done.asked_again, back)
        for kind, number in Counter(each.kind for each in done.deleted).items():
            self._note(request, kind, "Deleted a fact." if number == 1 else f"Deleted {number:,} facts.")
        self._tell_gone(request, done.gone)
        if done.deleted:
            self.message_user(request, f"{Count(len(done.deleted)).facts} deleted.", messages.SUCCESS)
        return HttpResponseRedirect(back)

    def _asked_about(self, request: HttpRequest, shown: Sequence[change.ShownFact], back: str) -> HttpResponse:
        count = len(shown)
        title = "Delete this fact?" if count == 1 else f"Delete these {count:,} facts?"
        slugs = sorted({each.kind.environment.slug for each in shown})
        asked = {"shown": shown, "slugs": slugs, "back": request.POST.get("back", ""), "back_url": back}
        return self._page(request, "delete", title, asked)

    def _tell_gone(self, request: HttpRequest, gone: Iterable[Fact]) -> None:
        for fact in gone:
            self.message_user(request, f"Already deleted: {fact.noted}", messages.INFO)

    # ---- import and export ------------------------------------------------------------------------------------

    def import_facts(self, request: HttpRequest) -> HttpResponse:
        self._check_add(request)
        environment = self._environment(request)
        form = change.ImportForm(
            request.POST or None,
            request.FILES or None,
            initial={"environment": environment, "format": "notation"},
            label_suffix="",
        )
        if request.method == "POST" and form.is_valid():
            loaded = form.store(by_admin(request), not self._may_change_ends(request))
            if loaded is not None:
                return self._imported(request, form.cleaned_data["environment"], loaded)
        return self._page(request, "import", "Import facts", {"form": form})

    def _imported(self, request: HttpRequest, environment: Environment, loaded: Loaded) -> HttpResponse:
        self._note(request, environment, f"Imported {loaded.read:,} facts, {loaded.inserted:,} of them new.")
        imported = f"{Count(loaded.read).facts} imported, {loaded.inserted:,} new."
        self.message_user(request, imported, messages.SUCCESS)
        self._warn_of(request, loaded.unknown)
        return HttpResponseRedirect(browse_url(environment.pk))

    @read_snapshot()
    def export(self, request: HttpRequest) -> FileOnDisk:
        """Send the facts that the URL selects as a file."""
        self._check_view(request)
        form, asked = request.GET.get("format", ""), narrowed(request.GET)
        environment = browse.only_environment(asked)
        if form not in change.FORMATS or not asked.is_valid or (environment is None and asked.kinds):
            raise Http404("This export does not exist. Name a format, and an environment if there are several.")
        name = f"facts-{environment.slug if environment else 'none'}"
        return change.exported(asked.walk, form, name)

    # ---- history ----------------------------------------------------------------------------------------------

    def history(self, request: HttpRequest) -> HttpResponse:
        """Show the history of a fact, of all facts of a signature, or of an environment."""
        self._check_view(request)
        if "signature" in request.GET:
            asked = history_pages.fact_asked(request)
            if asked is None:
                raise Http404("These facts do not exist.")
            shown = history_pages.facts_page(request, *asked)
            title = "History of a fact" if asked[1] else f"History of {asked[0].predicate}"
            return self._page(request, "history", title, shown)
        environment = history_pages.environment_asked(request) or default_environment()
        shown = history_pages.timeline(request, environment)
        shown["environments"] = Environment.objects.all()
        return self._page(request, "history", f"History of {environment.slug}", shown)

    def value_history(self, request: HttpRequest) -> HttpResponse:
        shown = history_pages.value_page(request, *self._value_asked(request))
        return self._page(request, "history", "History of a value", shown)

    def revision(self, request: HttpRequest, environment_id: int, number: int) -> HttpResponse:
        self._check_view(request)
        revision = history_pages.revision_asked(environment_id, number)
        if revision is None:
            raise Http404("This revision does not exist.")
        shown = history_pages.revision_page(request, revision)
        return self._page(request, "revision", f"Revision {revision.number}", shown)

    def _warn_of(self, request: HttpRequest, unknown: Sequence[UnknownName]) -> None:
        for sentence in sentences(unknown):
            self.message_user(request, with_code(f"{sentence[0].upper()}{sentence[1:]}."), messages.WARNING)

    # ---- shared -----------------------------------------------------------------------------------------------

    def _page(self, request: HttpRequest, name: str, title: str, shown: Mapping[str, object]) -> TemplateResponse:
        context = self.admin_site.each_context(request) | {"title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/authz_facts/signature/{name}.html", context | dict(shown))

    def _check_view(self, request: HttpRequest) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _check_add(self, request: HttpRequest) -> None:
        if not self.has_add_permission(request):
            raise PermissionDenied

    def _may_change_ends(self, request: HttpRequest) -> bool:
        """Return whether the user may change the expiry of stored facts: an early one amounts to deleting."""
        return self.has_change_permission(request) or self.has_delete_permission(request)

    def _environment(self, request: HttpRequest) -> Environment:
        """Return the environment that a form is initialized with. Forms name it, so that they are sent to its space."""
        named = environment_named(request.GET.get("environment", ""))
        return history_pages.environment_asked(request) or named or default_environment()

    def _note(self, request: HttpRequest, what: Signature | Environment, message: str) -> None:
        """Log a change as the framework does. Without ids: they would outlive facts that are forgotten."""
        who = request.user.pk
        assert who is not None, "only who is logged in comes so far"
        LogEntry.objects.log_actions(who, [what], CHANGE, message, single_object=True)


def _back(request: HttpRequest) -> str:
    """Return the URL of the list in which the facts were selected, from the query string that the form sent."""
    query = request.POST.get("back", "").lstrip("?")
    return f"{browse_url()}?{query}" if query else browse_url()
