"""How pages of facts are addressed, how they select facts, and how they display them, one per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from types import MappingProxyType
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest
from django.urls import reverse

from facts.accept import MOST_TOLD, UnusedStored, stored_names, unaccepted_of, unused_signatures
from facts.history import minute
from facts.keyset_pages import PAGE, IdRange, Mark, PagedFact, SearchColumn, beginning, exactly, listing, search_columns
from facts.models import Signature
from facts.numbering import types_of_text
from facts.wire import Fact
from policy.core.pagination import Cursor, ListPage, Pager, key_of
from policy.models import Environment
from policy.rules.program import Program
from policy.rules.signatures import PLACE
from policy.values import PRIMITIVES, Value

# ---- URLs ---------------------------------------------------------------------------------------------------------

BROWSE = "admin:facts_signature_changelist"


@cache
def address_of(name: str) -> str:
    """Return the URL of a page without parameters. It is cached, as resolving it for each link would take long."""
    return reverse(name)


def value_url(slug: str, value: Value, *, page: str = "admin:facts_value", **others: str) -> str:
    """Return the URL of a value's page."""
    asked = {"environment": slug, "type": value.type, "id": value.id, **others}
    return f"{address_of(page)}?{urlencode(asked)}"


def browse_url(environment_id: int | None = None, **narrowed: str) -> str:
    """Return the URL of the list of stored facts, optionally filtered by predicate, type or id."""
    asked = {} if environment_id is None else {"environment": str(environment_id)}
    asked |= {name: text for name, text in narrowed.items() if text}
    return f"{address_of(BROWSE)}?{urlencode(asked)}" if asked else address_of(BROWSE)


def ask_url(slug: str, kind: str, **asked: str) -> str:
    """Return the URL of the Check page, with this check filled in."""
    return f"{reverse('admin:go', args=['ask'])}?{urlencode({'environment': slug, 'kind': kind, **asked})}"


def timeline_url(environment_id: int, fields: Mapping[str, str] = MappingProxyType({})) -> str:
    return f"{reverse('admin:facts_signature_history')}?{urlencode({'environment': environment_id, **fields})}"


def fact_url(row: Sequence[object], arity: int) -> str:
    """Return the URL of a fact's history; without arguments, that of its signature."""
    asked = [("signature", row[0]), *(("id", text) for text in row[1 : 1 + arity])]
    return f"{address_of('admin:facts_signature_history')}?{urlencode(asked)}"


# ---- filters ------------------------------------------------------------------------------------------------------
# Which facts a page is about: those of an environment, a predicate and a type, with an id or a prefix of one.

EXACTLY, BEGINS = "exactly", "begins"


class NarrowingForm(forms.Form):
    """Filters for facts; every field is optional."""

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
    fitting = tuple(kind for kind in kinds if not asked["type"] or asked["type"] in types_of_text(kind.types))
    words = {"predicate": asked["predicate"], "type": asked["type"], "text": asked["id"]}
    return Narrowed(form, fitting, asked["environment"], **words, begins=asked["match"] == BEGINS)


# ---- listing ------------------------------------------------------------------------------------------------------
# Facts as pages show them: grouped by signature, one per line, with a link from every value to its page.

LONG = 60  # characters of an id from which on it is displayed on a line of its own


@dataclass(frozen=True)
class ListingCell:
    """An argument of a fact."""

    value: Value
    url: str
    is_here: bool = False  # whether the page is about this value

    @property
    def is_name(self) -> bool:
        """Return whether the value is of a primitive type, such as the role that relates the other arguments."""
        return self.value.type in PRIMITIVES


@dataclass(frozen=True)
class ListingLine:
    """A fact."""

    fact: Fact
    cells: tuple[ListingCell, ...]
    end: str
    token: str
    history_url: str


@dataclass(frozen=True)
class ListingColumn:
    type: str
    url: str
    is_here: bool = False


@dataclass(frozen=True)
class FactGroup:
    """Consecutive facts of one signature. On the page of a value, `is_here` marks the column of the value."""

    kind: Signature
    url: str
    columns: tuple[ListingColumn, ...]
    lines: tuple[ListingLine, ...]


def groups(met: Iterable[PagedFact], is_about: Value | None = None, by_column: bool = False) -> list[FactGroup]:
    found = groupby(met, lambda each: each.column if by_column else each.column.kind)
    return [_group(list(same), is_about, by_column) for _, same in found]


def _group(met: list[PagedFact], is_about: Value | None, by_column: bool) -> FactGroup:
    column = met[0].column
    kind, where = column.kind, column.kind.environment_id
    columns = tuple(
        ListingColumn(name, browse_url(where, predicate=kind.predicate, type=name), by_column and at == column.position)
        for at, name in enumerate(types_of_text(kind.types))
    )
    lines = tuple(_line(each, is_about) for each in met)
    return FactGroup(kind, browse_url(where, predicate=kind.predicate), columns, lines)


def _line(met: PagedFact, is_about: Value | None) -> ListingLine:
    fact, slug = met.fact, met.column.kind.environment.slug
    cells = tuple(ListingCell(value, value_url(slug, value), value == is_about) for value in fact.args)
    return ListingLine(fact, cells, end_of(fact), Cursor(MARKS, met.mark).token, fact_url(met.row, len(fact.args)))


def end_of(fact: Fact) -> str:
    """Return until when a fact is stored; an empty text if it has no expiry."""
    return "" if fact.expires_at is None else f"until {minute(fact.expires_at)}"


# ---- pagination --------------------------------------------------------------------------------------------------

MARKS = "facts"  # what the cursors of facts are of


def turned(
    request: HttpRequest, walk: list[SearchColumn], url: Callable[[dict[str, str]], str]
) -> tuple[ListPage[PagedFact], Pager]:
    """Return the page that the request asks for: after a fact, before one, or the first page."""
    columns = {column.key for column in walk}
    marks = (Mark.of(key_of(request.GET.get(name), MARKS)) for name in ("after", "before"))
    page = listing(walk).page(PAGE, *(mark if mark and mark.column in columns else None for mark in marks))
    return page, page.pager(MARKS, lambda met: met.mark, url)


# ---- Stored facts that the active policy doesn't use, with a link to the facts of each signature ------------------


@dataclass(frozen=True)
class UnusedFactsWarning:
    """A sentence about unused facts, and the URL of the page that lists them."""

    sentence: str
    url: str


def useless(environment: Environment, program: Program) -> list[UnusedFactsWarning]:
    """Return the signatures that the policy does not accept, then the roles and relations that it does not know."""
    found = [
        UnusedFactsWarning(_warning(program, unused), browse_url(environment.pk, predicate=unused.signature.predicate))
        for unused in unused_signatures(environment.pk, program)[:MOST_TOLD]
    ]
    for name in stored_names(environment.pk, program)[:MOST_TOLD]:
        kind = name.signature
        url = browse_url(environment.pk, predicate=kind.predicate, type=kind.types[PLACE], id=name.name)
        found.append(UnusedFactsWarning(str(name), url))
    return found


def _warning(program: Program, unused: UnusedStored) -> str:
    count = "1 fact" if str(unused.facts) == "1" else f"{unused.facts} facts"
    return f"{count}: {unaccepted_of(program, unused.signature)}"
