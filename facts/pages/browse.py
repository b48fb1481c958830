"""The page that lists and searches facts, and the page of a value."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest
from django.urls import reverse

from facts.accept import MOST_TOLD, stored_names, unaccepted_of, unused_signatures
from facts.history import minute
from facts.keyset_pages import (
    MARKS,
    PAGE,
    Count,
    IdRange,
    Mark,
    PagedFact,
    SearchColumn,
    beginning,
    count,
    counts,
    exactly,
    known_ids,
    listing,
    search_columns,
)
from facts.models import Signature, types_of_text
from facts.wire import Fact
from policy.active import active_program
from policy.core.pagination import ListPage, Pager, key_of, natural_key
from policy.errors import AuthzError
from policy.models import Environment
from policy.rules.program import Program
from policy.rules.types import PLACE
from policy.values import Value

# ---- URLs ---------------------------------------------------------------------------------------------------------

BROWSE = "admin:authz_facts_signature_changelist"


@cache
def address_of(name: str) -> str:
    """Return the URL of a page without parameters. It is cached, as resolving it for each link would take long."""
    return reverse(name)


def value_url(slug: str, value: Value, *, page: str = "admin:authz_facts_value", **others: str) -> str:
    asked = {"environment": slug, "type": value.type, "id": value.id, **others}
    return f"{address_of(page)}?{urlencode(asked)}"


def browse_url(environment_id: int | None = None, **narrowed: str) -> str:
    """Return the URL of the list of stored facts, optionally filtered by predicate, type or id."""
    asked = {} if environment_id is None else {"environment": str(environment_id)}
    asked |= {name: text for name, text in narrowed.items() if text}
    return f"{address_of(BROWSE)}?{urlencode(asked)}" if asked else address_of(BROWSE)


def timeline_url(environment_id: int, fields: Mapping[str, str] = MappingProxyType({})) -> str:
    return f"{reverse('admin:authz_facts_signature_history')}?{urlencode({'environment': environment_id, **fields})}"


def fact_url(row: Sequence[object], arity: int) -> str:
    """Return the URL of a fact's history; without arguments, that of its signature."""
    asked = [("signature", row[0]), *(("id", text) for text in row[1 : 1 + arity])]
    return f"{address_of('admin:authz_facts_signature_history')}?{urlencode(asked)}"


# ---- filters ------------------------------------------------------------------------------------------------------
# Which facts a page is about: those of an environment, a predicate and a type, with an id or a prefix of one.

EXACTLY, BEGINS = "exactly", "begins"


class NarrowingForm(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), required=False, empty_label="All environments")
    predicate = forms.ChoiceField(required=False)
    type = forms.ChoiceField(required=False, label="Argument type")
    match = forms.ChoiceField(required=False, label="Id match", choices=((BEGINS, "starts with"), (EXACTLY, "is")))
    id = forms.CharField(required=False, label="Id", strip=False)

    def __init__(self, sent: Mapping[str, str]):
        super().__init__(_with_match(sent), label_suffix="")
        kinds = Signature.objects.values_list("predicate", "types").distinct()
        predicates = sorted({predicate for predicate, _ in kinds})
        types = sorted({name for _, text in kinds for name in types_of_text(text)})
        self._offer("predicate", "All predicates", predicates)
        self._offer("type", "All types", types)
        text = {"list": "ids", "autocomplete": "off", "spellcheck": "false", "placeholder": "any"}
        self.fields["id"].widget.attrs.update(text)

    @property
    def fields_shown(self) -> list[forms.BoundField]:
        """Return the fields, without that of the environment if there is only one to choose."""
        is_one = Environment.objects.count() < 2 and "environment" not in self.errors
        return [field for field in self if not (is_one and field.name == "environment")]

    def _offer(self, name: str, every: str, choices: list[str]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", every), *((each, each) for each in choices)]


def _with_match(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the submitted values, with a default for `match`: "is" if an id is given, else "starts with"."""
    found = {name: sent[name] for name in NarrowingForm.base_fields if name in sent}
    return {"match": EXACTLY if found.get("id") else BEGINS} | {name: text for name, text in found.items() if text}


@dataclass(frozen=True)
class Narrowed:
    """The selected facts; if the filters are invalid, only the form, which has the errors."""

    form: NarrowingForm
    kinds: tuple[Signature, ...] = ()
    environment: Environment | None = None
    predicate: str = ""
    type: str = ""
    text: str = ""
    begins: bool = False

    @property
    def is_valid(self) -> bool:
        return self.form.is_valid()

    @property
    def ids(self) -> IdRange:
        return beginning(self.text) if self.begins or not self.text else exactly(self.text)

    @property
    def walk(self) -> list[SearchColumn]:
        return search_columns(self.kinds, self.ids, self.type)

    @property
    def asked(self) -> dict[str, str]:
        """Return the URL parameters that select these facts."""
        found = {
            "environment": str(self.environment.pk) if self.environment else "",
            "predicate": self.predicate,
            "type": self.type,
            "id": self.text,
            "match": BEGINS if self.text and self.begins else "",
        }
        return {name: text for name, text in found.items() if text}


def narrowed(sent: Mapping[str, str]) -> Narrowed:
    form = NarrowingForm(sent)
    if not form.is_valid():
        return Narrowed(form)
    asked = form.cleaned_data
    kinds = Signature.objects.select_related("environment").order_by("environment__slug", "predicate", "types")
    if asked["environment"]:
        kinds = kinds.filter(environment=asked["environment"])
    if asked["predicate"]:
        kinds = kinds.filter(predicate=asked["predicate"])
    fitting = tuple(kind for kind in kinds if not asked["type"] or asked["type"] in kind.signature.types)
    words = {"predicate": asked["predicate"], "type": asked["type"], "text": asked["id"]}
    return Narrowed(form, fitting, asked["environment"], **words, begins=asked["match"] == BEGINS)


def end_of(fact: Fact) -> str:
    """Return until when a fact is stored; an empty text if it has no expiry."""
    return "" if fact.expires_at is None else f"until {minute(fact.expires_at)}"


# ---- pagination --------------------------------------------------------------------------------------------------


def turned(
    request: HttpRequest, walk: list[SearchColumn], url: Callable[[dict[str, str]], str]
) -> tuple[ListPage[PagedFact], Pager]:
    """Return the page that the request asks for: after a fact, before one, or the first page."""
    places = {column.key: place for place, column in enumerate(walk)}
    marks = (Mark.of(key_of(request.GET.get(name), MARKS)) for name in ("after", "before"))
    page = listing(walk).page(PAGE, *(mark if mark and mark.column in places else None for mark in marks))
    page = page.in_order(lambda met: (places[met.column.key], *map(natural_key, met.column.sorted_by(met))))
    return page, page.pager(MARKS, lambda met: met.mark, url)


# ---- Stored facts that the active policy doesn't use, with a link to the facts of each signature ------------------


@dataclass(frozen=True)
class UnusedFactsWarning:
    """A sentence about unused facts, and the URL of the page that lists them."""

    sentence: str
    url: str


def useless(environment: Environment, program: Program) -> list[UnusedFactsWarning]:
    """Return the signatures that the policy does not accept, then the roles and relations that it does not know."""
    found = []
    for unused in unused_signatures(environment.pk, program)[:MOST_TOLD]:
        count = "1 fact" if str(unused.facts) == "1" else f"{unused.facts} facts"
        url = browse_url(environment.pk, predicate=unused.signature.predicate)
        found.append(UnusedFactsWarning(f"{count}: {unaccepted_of(program, unused.signature)}", url))
    for name in stored_names(environment.pk, program)[:MOST_TOLD]:
        kind = name.signature
        url = browse_url(environment.pk, predicate=kind.predicate, type=kind.types[PLACE], id=name.name)
        found.append(UnusedFactsWarning(str(name), url))
    return found


def program_of(environment: Environment | None) -> Program | None:
    """Return the active policy; None if there is none, or if the compiler no longer accepts it."""
    try:
        return None if environment is None else active_program(environment.pk)
    except AuthzError:
        return None


# ---- The page that lists stored facts and searches them -----------------------------------------------------------

_OFFERED = 40  # ids offered to complete a field
_NEAR = 12  # maximum number of similar values to suggest when a search finds no fact
_MOST_KINDS = 40  # signatures whose ids are offered; for further ones, a filter is needed, such as a type
EXPORTS = (("notation", "Text, one fact per line"), ("json", "JSON Lines"), ("csv", "CSV"))
NamedValue = tuple[Value, str]  # a value and the URL of its page


def shown(request: HttpRequest) -> dict[str, object]:
    """Return the template context of a page of the facts that the URL selects."""
    asked = narrowed(request.GET)
    walk = asked.walk
    page, pager = turned(request, walk, lambda fields: f"?{urlencode({**asked.asked, **fields})}")
    is_searched = bool(asked.text)
    return {
        "narrowing": asked.form,
        "asked": asked.asked,
        "is_narrowed": bool(asked.asked.keys() - {"environment"}),
        "environment": only_environment(asked),
        "facts": page.rows,
        "pager": pager,
        "summary": _summary(asked, str(count(walk).facts)),
        "near": _near(asked) if is_searched and not page.rows and not pager.first else [],
        "offered": [] if not asked.is_valid else offered(asked, asked.text if asked.begins else ""),
        "history_url": _history_url(asked),
        "ids_url": reverse("admin:authz_facts_ids"),
        "useless": _useless(asked) if not pager.first else [],
        "here": request.GET.urlencode(),
        "exports": EXPORTS,
        "export_query": urlencode(asked.asked),
        "all_url": browse_url(asked.environment.pk if asked.environment else None),
    }


def only_environment(asked: Narrowed) -> Environment | None:
    """Return the environment of the facts; None if they are of several or of none."""
    found = {kind.environment_id: kind.environment for kind in asked.kinds}
    return asked.environment or (next(iter(found.values())) if len(found) == 1 else None)


def _useless(asked: Narrowed) -> list[UnusedFactsWarning]:
    """Return what the policy doesn't use; nothing if the page is filtered to less than a whole environment."""
    environment = only_environment(asked)
    program = None if asked.asked.keys() - {"environment"} else program_of(environment)
    return [] if environment is None or program is None else useless(environment, program)


def _summary(asked: Narrowed, counted: str) -> str:
    """Return a sentence with the number of matching facts."""
    if not asked.is_valid:
        return "The filters do not match an existing environment, predicate or type."
    if not asked.text:
        return f"{counted}."
    argument = f"an argument of type {asked.type}" if asked.type else "an argument"
    whose = f"whose id starts with “{short(asked.text)}”" if asked.begins else f"whose id is “{short(asked.text)}”"
    if counted == "0 facts":
        return f"No fact has {argument} {whose}."
    return f"{counted} {'has' if counted == '1 fact' else 'have'} {argument} {whose}."


def short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"


def _history_url(asked: Narrowed) -> str:
    """Return the URL of the history of the only signature, else of the chosen environment, else of all facts."""
    if len(asked.kinds) == 1:
        return fact_url((asked.kinds[0].pk,), 0)
    return timeline_url(asked.environment.pk) if asked.environment else reverse("admin:authz_facts_signature_history")


# ---- existing ids ------------------------------------------------------------------------------------------------


def offered(asked: Narrowed, start: str) -> list[str]:
    """Return ids in the facts that begin with `start`, of the chosen type or of every type."""
    found: set[str] = set()
    for environment_id, types in _types(asked).items():
        for ids in known_ids(environment_id, types, start, _OFFERED).values():
            found.update(ids)
    return sorted(sorted(found)[:_OFFERED], key=natural_key)


def _near(asked: Narrowed) -> list[NamedValue]:
    """Return values that share a prefix with the id that was not found; halve the prefix until there are some."""
    start = asked.text[:64]
    while start:
        found = _values(asked, start)
        if found:
            return found[:_NEAR]
        start = start[: len(start) // 2]
    return []


def _values(asked: Narrowed, start: str) -> list[NamedValue]:
    slugs = {kind.environment_id: kind.environment.slug for kind in asked.kinds}
    return [
        (value, value_url(slugs[environment_id], value))
        for environment_id, types in _types(asked).items()
        for name, ids in sorted(known_ids(environment_id, types, start, _NEAR).items())
        for value in (Value(name, text) for text in ids)
    ]


def _types(asked: Narrowed) -> dict[int, list[str]]:
    """Return the types whose ids are searched, by environment."""
    found: dict[int, set[str]] = {}
    for kind in asked.kinds[:_MOST_KINDS]:
        names = (asked.type,) if asked.type else kind.signature.types
        found.setdefault(kind.environment_id, set()).update(names)
    return {environment_id: sorted(names) for environment_id, names in found.items()}


# ---- value --------------------------------------------------------------------------------------------------------
# The page of a value: every fact that mentions it.

COUNTED = 10_000  # facts counted in each column; beyond it, the page says "more than"


def value_asked(request: HttpRequest) -> tuple[Environment, Value] | None:
    """Return the environment and the value that the URL names; None if either is missing or cannot exist."""
    environment = Environment.objects.filter(slug=_plain(request.GET.get("environment", ""))).first()
    type_name, text = _plain(request.GET.get("type", "")), request.GET.get("id", "")
    if environment is None or not type_name or not text or "\0" in text:
        return None
    return environment, Value(type_name, text)


def _plain(text: str) -> str:
    return "" if "\0" in text else text


def shown_value(request: HttpRequest, environment: Environment, value: Value) -> dict[str, object]:
    """Return the template context: a page of the value's facts, in all columns or in the one the URL names."""
    kinds = Signature.objects.select_related("environment").filter(environment=environment)
    fitting = [kind for kind in kinds.order_by("predicate", "types") if value.type in kind.signature.types]
    columns = search_columns(fitting, exactly(value.id), value.type)
    chosen = next((column for column in columns if column.name_in_urls == request.GET.get("in")), None)
    asked = {"environment": environment.slug, "type": value.type, "id": value.id}
    asked |= {"in": chosen.name_in_urls} if chosen else {}
    walk = [chosen] if chosen else columns
    page, pager = turned(request, walk, lambda fields: f"?{urlencode({**asked, **fields})}#facts")
    met = [(column, count) for column, count in zip(columns, counts(columns, COUNTED)) if count.number]
    return {
        "environment": environment,
        "value": value,
        "met": met,
        "total": Count(sum(count.number for _, count in met), any(count.more for _, count in met)),
        "chosen": chosen,
        "facts": page.rows,
        "pager": pager,
        "here": value_url(environment.slug, value),
        "type_url": browse_url(environment.pk, type=value.type),
        "browse_url": browse_url(environment.pk, type=value.type, id=value.id),
        "history_url": f"{reverse('admin:authz_facts_value_history')}?{request.GET.urlencode()}",
    }
