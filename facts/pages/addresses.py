"""Where the pages of facts are."""

from __future__ import annotations

from functools import cache
from urllib.parse import urlencode

from django.core import signing
from django.urls import reverse

from facts.walk import Mark
from policy.values import Value

BROWSE = "admin:facts_signature_changelist"


@cache
def address_of(name: str) -> str:
    """Return where a page without parameters is: it stays there, and to look it up for each link takes long."""
    return reverse(name)


def value_url(slug: str, value: Value, **others: str) -> str:
    """Return where all that is known of a value stands."""
    asked = {"environment": slug, "type": value.type, "id": value.id, **others}
    return f"{address_of('admin:facts_value')}?{urlencode(asked)}"


def browse_url(environment_id: int | None = None, **narrowed: str) -> str:
    """Return where stored facts are, those of a predicate, a type or an id."""
    asked = {} if environment_id is None else {"environment": str(environment_id)}
    asked |= {name: text for name, text in narrowed.items() if text}
    return f"{address_of(BROWSE)}?{urlencode(asked)}" if asked else address_of(BROWSE)


def ask_url(slug: str, kind: str, **asked: str) -> str:
    """Return where a question is asked, filled in."""
    return f"{reverse('admin:go', args=['ask'])}?{urlencode({'environment': slug, 'kind': kind, **asked})}"


def token_of(mark: Mark) -> str:
    """Return the fact's place on a walk, as an address holds it."""
    return signing.dumps([*mark.place, *mark.row], compress=True)


def mark_of(token: str) -> Mark | None:
    """Return the place, if the token is one that a page gave out."""
    if not token:
        return None
    try:
        number, position, *row = signing.loads(token)
        return Mark((number, position), tuple(row))
    except (signing.BadSignature, ValueError, TypeError):
        return None
