"""The page of a value: every fact that mentions it, and questions about it."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from facts import keyset_pages
from facts.keyset_pages import Count, SearchColumn, counts, exactly
from facts.models import Signature
from facts.numbering import types_of_text
from facts.pages.addresses import browse_url, value_url
from facts.pages.listing import groups, turned
from policy.models import Environment
from policy.values import Value

# ---- abilities ----------------------------------------------------------------------------------------------------
# Questions about a value that its page offers. Answers are expensive: only the question that is chosen is asked.

NamedAbility = tuple[str, str, str]  # a type, an id, and the address of that value's page


@dataclass(frozen=True)
class Answer:
    """The answer to the chosen question, and the address of the page that asks it again and explains it."""

    ask_url: str
    told: str = ""
    first: tuple[NamedAbility, ...] = ()
    is_cut: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class QuestionChoice:
    name: str
    url: str
    is_chosen: bool = False


@dataclass(frozen=True)
class Ability:
    """Questions that differ only in their action, about resources of one type or about this value."""

    what: str
    choices: tuple[QuestionChoice, ...]
    answer: Answer | None = None


@dataclass(frozen=True)
class Section:
    title: str
    name: str  # of its place on the page
    abilities: tuple[Ability, ...]


# ---- value --------------------------------------------------------------------------------------------------------
# The page of a value: every fact that mentions it, and where to ask what it may do and who may do what to it.

COUNTED = 10_000  # facts that are counted in each column; beyond it, the page says "more than"
_ORDINALS = ("1st", "2nd", "3rd", "4th", "5th")


@dataclass(frozen=True)
class Where:
    """An argument of a kind of facts where the value stands, and the number of these facts."""

    column: SearchColumn
    count: Count
    url: str
    is_chosen: bool

    @property
    def kind(self) -> Signature:
        return self.column.kind

    @property
    def types(self) -> list[tuple[str, bool]]:
        """Return the type of each argument, and whether the value stands there."""
        return [(name, at == self.column.position) for at, name in enumerate(types_of_text(self.kind.types))]

    @property
    def ordinal(self) -> str:
        return _ORDINALS[self.column.position]


def value_asked(request: HttpRequest) -> tuple[Environment, Value] | None:
    """Return the environment and the value that the address names; None if either is missing or cannot exist."""
    environment = Environment.objects.filter(slug=_plain(request.GET.get("environment", ""))).first()
    type_name, text = _plain(request.GET.get("type", "")), request.GET.get("id", "")
    if environment is None or not type_name or not text or "\0" in text:
        return None
    return environment, Value(type_name, text)


def _plain(text: str) -> str:
    return "" if "\0" in text else text


def shown(request: HttpRequest, environment: Environment, value: Value) -> dict[str, object]:
    """Return what the template needs: a page of the value's facts, in all columns or in the one the address names."""
    kinds = Signature.objects.select_related("environment").filter(environment=environment)
    fitting = [kind for kind in kinds.order_by("predicate", "types") if value.type in types_of_text(kind.types)]
    columns = keyset_pages.search_columns(fitting, exactly(value.id), value.type)
    chosen = next((column for column in columns if _name_of(column) == request.GET.get("in")), None)
    asked = {"environment": environment.slug, "type": value.type, "id": value.id}
    found = turned(request, [chosen] if chosen else columns, asked | ({"in": _name_of(chosen)} if chosen else {}))
    numbers = counts(columns, COUNTED)
    met = [
        Where(
            column, number, f"{value_url(environment.slug, value, **{'in': _name_of(column)})}#facts", column == chosen
        )
        for column, number in zip(columns, numbers)
        if number.number
    ]
    return {
        "environment": environment,
        "value": value,
        "met": met,
        "total": Count(sum(each.count.number for each in met), any(each.count.more for each in met)),
        "chosen": chosen is not None,
        "groups": groups(found.page.facts, value, by_column=True),
        "turned": found,
        "here": value_url(environment.slug, value),
        "type_url": browse_url(environment.pk, type=value.type),
        "browse_url": browse_url(environment.pk, type=value.type, id=value.id),
        "history_url": f"{reverse('admin:facts_value_history')}?{request.GET.urlencode()}",
    }


def _name_of(column: SearchColumn) -> str:
    return f"{column.kind.pk}.{column.position}"
