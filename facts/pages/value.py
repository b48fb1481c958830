"""The page of a value: every fact that mentions it, and where to ask what it may do and who may do what to it."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from facts import walk
from facts.counted import Count, counts
from facts.models import Signature
from facts.numbering import types_of_text
from facts.pages.addresses import browse_url, value_url
from facts.pages.listing import groups, turned
from facts.walk import Place, exactly
from policy.models import Environment
from policy.values import Value

COUNTED = 10_000  # facts that are counted in each place; beyond it, the page says "more than"
_ORDINALS = ("1st", "2nd", "3rd", "4th", "5th")


@dataclass(frozen=True)
class Where:
    """An argument of a kind of facts where the value stands, and the number of these facts."""

    place: Place
    count: Count
    url: str
    is_chosen: bool

    @property
    def kind(self) -> Signature:
        return self.place.kind

    @property
    def types(self) -> list[tuple[str, bool]]:
        """Return the type of each argument, and whether the value stands there."""
        return [(name, at == self.place.position) for at, name in enumerate(types_of_text(self.kind.types))]

    @property
    def ordinal(self) -> str:
        return _ORDINALS[self.place.position]


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
    """Return what the template needs: a page of the value's facts, in all places or in the one the address names."""
    kinds = Signature.objects.select_related("environment").filter(environment=environment)
    fitting = [kind for kind in kinds.order_by("predicate", "types") if value.type in types_of_text(kind.types)]
    places = walk.places(fitting, exactly(value.id), value.type)
    chosen = next((place for place in places if _name_of(place) == request.GET.get("in")), None)
    asked = {"environment": environment.slug, "type": value.type, "id": value.id}
    found = turned(request, [chosen] if chosen else places, asked | ({"in": _name_of(chosen)} if chosen else {}))
    numbers = counts(places, COUNTED)
    met = [
        Where(place, number, f"{value_url(environment.slug, value, **{'in': _name_of(place)})}#facts", place == chosen)
        for place, number in zip(places, numbers)
        if number.number
    ]
    return {
        "environment": environment,
        "value": value,
        "met": met,
        "total": Count(sum(each.count.number for each in met), any(each.count.more for each in met)),
        "chosen": chosen is not None,
        "groups": groups(found.page.facts, value, by_place=True),
        "turned": found,
        "here": value_url(environment.slug, value),
        "type_url": browse_url(environment.pk, type=value.type),
        "browse_url": browse_url(environment.pk, type=value.type, id=value.id),
        "history_url": f"{reverse('admin:facts_value_history')}?{request.GET.urlencode()}",
    }


def _name_of(place: Place) -> str:
    return f"{place.kind.pk}.{place.position}"
