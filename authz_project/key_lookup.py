"""Keys by what people call them."""

from __future__ import annotations

from authz_project.models import ApiKey
from policy.clock import now, time_of
from policy.errors import NotFound

_SHOWN = 5


def key_named(text: str) -> ApiKey:
    """Return the key with this beginning, this number or this label; `NotFound` where there is none, or more than one.

    A whole key works too: its secret is ignored. A label must lead to one key that is neither revoked nor expired; keys
    that have a successor are passed over if another one has the label.
    """
    by_beginning = ApiKey.objects.filter(prefix="_".join(text.split("_")[:3])).first()
    if by_beginning is not None:
        return by_beginning
    if text.isascii() and text.isdecimal() and len(text) < 10:
        by_number = ApiKey.objects.filter(pk=int(text)).first()
        if by_number is not None:
            return by_number
    return _labelled(text)


def _labelled(label: str) -> ApiKey:
    moment = time_of(now())
    labelled = ApiKey.objects.filter(label=label, revoked_at__isnull=True).order_by("pk") if label else ()
    found = [key for key in labelled if key.expires_at is None or key.expires_at > moment]
    latest = [key for key in found if key.successor_id is None] or found
    if len(latest) == 1:
        return latest[0]
    if not latest:
        raise NotFound("there is no such key; list_api_keys shows them")
    named = ", ".join(key.prefix for key in latest[:_SHOWN]) + (", …" if len(latest) > _SHOWN else "")
    raise NotFound(f"{len(latest)} keys have this label; say which: {named}")
