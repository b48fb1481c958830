"""The page that lists stored facts and searches them."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from facts.history_pages import fact_url, timeline_url
from facts.keyset_pages import count
from facts.mentioned_ids import known_ids
from facts.numbering import types_of_text
from facts.pages.addresses import browse_url, value_url
from facts.pages.change import program_of
from facts.pages.listing import Narrowed, Useless, groups, narrowed, turned, useless
from policy.models import Environment
from policy.values import Value

_OFFERED = 40  # ids that the completion of a field offers
_NEAR = 12  # similar values that are shown, at most, when a search finds no fact
_MOST_KINDS = 40  # kinds whose ids are offered; those of further kinds need a narrower choice, such as a type
EXPORTS = (("notation", "Text, one fact per line"), ("json", "JSON Lines"), ("csv", "CSV"))
NamedValue = tuple[Value, str]  # a value and the address of its page


def shown(request: HttpRequest) -> dict[str, object]:
    """Return what the template needs to show a page of the facts that the address asks for."""
    asked = narrowed(request.GET)
    walk = asked.walk
    found = turned(request, walk, asked.asked)
    is_searched = bool(asked.text)
    return {
        "narrowing": asked.form,
        "asked": asked.asked,
        "is_narrowed": bool(asked.asked.keys() - {"environment"}),
        "environment": only_environment(asked),
        "groups": groups(found.page.facts),
        "turned": found,
        "summary": _summary(asked, str(count(walk).facts)),
        "near": _near(asked) if is_searched and not found.page.facts and not found.first else [],
        "offered": [] if not asked.is_valid else offered(asked, asked.text if asked.begins else ""),
        "history_url": _history_url(asked),
        "ids_url": reverse("admin:facts_ids"),
        "useless": _useless(asked) if not found.first else [],
        "here": request.GET.urlencode(),
        "exports": EXPORTS,
        "export_query": urlencode(asked.asked),
        "all_url": browse_url(asked.environment.pk if asked.environment else None),
    }


def only_environment(asked: Narrowed) -> Environment | None:
    """Return the environment of the facts; None if they are of several or of none."""
    found = {kind.environment_id: kind.environment for kind in asked.kinds}
    return asked.environment or (next(iter(found.values())) if len(found) == 1 else None)


def _useless(asked: Narrowed) -> list[Useless]:
    """Return what the policy has no use for; nothing if the page is narrowed to less than one whole environment."""
    environment = only_environment(asked)
    program = None if asked.asked.keys() - {"environment"} else program_of(environment)
    return [] if environment is None or program is None else useless(environment, program)


def _summary(asked: Narrowed, counted: str) -> str:
    """Return a sentence that says how many facts match."""
    if not asked.is_valid:
        return "The filters do not match an existing environment, predicate or type."
    if not asked.text:
        return f"{counted}."
    argument = f"an argument of {asked.type}" if asked.type else "an argument"
    whose = f"whose id begins with “{short(asked.text)}”" if asked.begins else f"whose id is “{short(asked.text)}”"
    if counted == "0 facts":
        return f"No fact has {argument} {whose}."
    return f"{counted} {'has' if counted == '1 fact' else 'have'} {argument} {whose}."


def short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _history_url(asked: Narrowed) -> str:
    """Return the address of the history of the only kind, else of the chosen environment, else of all facts."""
    if len(asked.kinds) == 1:
        return fact_url((asked.kinds[0].pk,), 0)
    return timeline_url(asked.environment.pk) if asked.environment else reverse("admin:facts_signature_history")


# ---- ids that there are ------------------------------------------------------------------------------------------


def offered(asked: Narrowed, start: str, most: int = _OFFERED) -> list[str]:
    """Return ids in the facts that begin with `start`, of the chosen type or of every type."""
    found: set[str] = set()
    for environment_id, types in _types(asked).items():
        for ids in known_ids(environment_id, types, start, most).values():
            found.update(ids)
    return sorted(found)[:most]


def _near(asked: Narrowed) -> list[NamedValue]:
    """Return values whose ids begin like the one that was not found; halve the beginning until there are some."""
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
