"""The URLs of the pages of facts."""

from __future__ import annotations

from functools import cache
from urllib.parse import urlencode

from django.urls import reverse

from policy.values import Value

BROWSE = "admin:facts_signature_changelist"


@cache
def address_of(name: str) -> str:
    """Return the URL of a page without parameters. It is cached, as resolving it for each link would take long."""
    return reverse(name)


def value_url(slug: str, value: Value, **others: str) -> str:
    """Return the URL of a value's page."""
    asked = {"environment": slug, "type": value.type, "id": value.id, **others}
    return f"{address_of('admin:facts_value')}?{urlencode(asked)}"


def browse_url(environment_id: int | None = None, **narrowed: str) -> str:
    """Return the URL of the list of stored facts, optionally filtered by predicate, type or id."""
    asked = {} if environment_id is None else {"environment": str(environment_id)}
    asked |= {name: text for name, text in narrowed.items() if text}
    return f"{address_of(BROWSE)}?{urlencode(asked)}" if asked else address_of(BROWSE)


def ask_url(slug: str, kind: str, **asked: str) -> str:
    """Return the URL of the Check page, with this check filled in."""
    return f"{reverse('admin:go', args=['ask'])}?{urlencode({'environment': slug, 'kind': kind, **asked})}"
