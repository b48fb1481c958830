"""The page that lists and searches facts, and the page of a value."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from facts.keyset_pages import Count, SearchColumn, count, counts, exactly, search_columns
from facts.mentioned_ids import known_ids
from facts.models import Signature
from facts.numbering import types_of_text
from facts.pages.change import program_of
from facts.pages.listing import (
    Narrowed,
    UnusedFactsWarning,
    browse_url,
    fact_url,
    groups,
    narrowed,
    timeline_url,
    turned,
    useless,
    value_url,
)
from policy.models import Environment
from policy.values import Value

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
        "groups": groups(page.rows),
        "pager": pager,
        "summary": _summary(asked, str(count(walk).facts)),
        "near": _near(asked) if is_searched and not page.rows and not pager.first else [],
        "offered": [] if not asked.is_valid else offered(asked, asked.text if asked.begins else ""),
        "history_url": _history_url(asked),
        "ids_url": reverse("admin:facts_ids"),
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


def short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _history_url(asked: Narrowed) -> str:
    """Return the URL of the history of the only signature, else of the chosen environment, else of all facts."""
    if len(asked.kinds) == 1:
        return fact_url((asked.kinds[0].pk,), 0)
    return timeline_url(asked.environment.pk) if asked.environment else reverse("admin:facts_signature_history")


# ---- existing ids ------------------------------------------------------------------------------------------------


def offered(asked: Narrowed, start: str, most: int = _OFFERED) -> list[str]:
    """Return ids in the facts that begin with `start`, of the chosen type or of every type."""
    found: set[str] = set()
    for environment_id, types in _types(asked).items():
        for ids in known_ids(environment_id, types, start, most).values():
            found.update(ids)
    return sorted(found)[:most]


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
        names = (asked.type,) if asked.type else types_of_text(kind.types)
        found.setdefault(kind.environment_id, set()).update(names)
    return {environment_id: sorted(names) for environment_id, names in found.items()}


# ---- abilities ----------------------------------------------------------------------------------------------------
# Checks that the page of a value offers. They are expensive, so only the chosen one is run.

NamedAbility = tuple[str, str, str]  # a type, an id, and the URL of that value's page


@dataclass(frozen=True)
class Answer:
    """The result of the chosen check, and the URL of the page that repeats and explains it."""

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
    """Checks that differ only in their action, about resources of one type or about this value."""

    what: str
    choices: tuple[QuestionChoice, ...]
    answer: Answer | None = None


@dataclass(frozen=True)
class Section:
    title: str
    name: str  # its anchor on the page
    abilities: tuple[Ability, ...]


# ---- value --------------------------------------------------------------------------------------------------------
# The page of a value: every fact that mentions it, and checks of what it may do and who may do what to it.

COUNTED = 10_000  # facts counted in each column; beyond it, the page says "more than"
_ORDINALS = ("1st", "2nd", "3rd", "4th", "5th")


@dataclass(frozen=True)
class Where:
    """An argument of a signature that contains the value, and the number of these facts."""

    column: SearchColumn
    count: Count
    url: str
    is_chosen: bool

    @property
    def kind(self) -> Signature:
        return self.column.kind

    @property
    def types(self) -> list[tuple[str, bool]]:
        """Return the type of each argument, and whether the value is in it."""
        return [(name, at == self.column.position) for at, name in enumerate(types_of_text(self.kind.types))]

    @property
    def ordinal(self) -> str:
        return _ORDINALS[self.column.position]


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
    fitting = [kind for kind in kinds.order_by("predicate", "types") if value.type in types_of_text(kind.types)]
    columns = search_columns(fitting, exactly(value.id), value.type)
    chosen = next((column for column in columns if _name_of(column) == request.GET.get("in")), None)
    asked = {"environment": environment.slug, "type": value.type, "id": value.id}
    asked |= {"in": _name_of(chosen)} if chosen else {}
    walk = [chosen] if chosen else columns
    page, pager = turned(request, walk, lambda fields: f"?{urlencode({**asked, **fields})}#facts")
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
        "groups": groups(page.rows, value, by_column=True),
        "pager": pager,
        "here": value_url(environment.slug, value),
        "type_url": browse_url(environment.pk, type=value.type),
        "browse_url": browse_url(environment.pk, type=value.type, id=value.id),
        "history_url": f"{reverse('admin:facts_value_history')}?{request.GET.urlencode()}",
    }


def _name_of(column: SearchColumn) -> str:
    return f"{column.kind.pk}.{column.position}"
