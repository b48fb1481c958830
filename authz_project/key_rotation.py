"""A key's successor: another secret for the same things, while the old one is still good for a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F

from authz_project.keys import create_key, revoke_key
from authz_project.models import ApiKey
from policy.clock import now, time_of
from policy.errors import AuthzError
from policy.offsets import changing
from policy.revisions import By

OVERLAP = timedelta(hours=24)


class NotToBeRotated(AuthzError):
    """The key is not good any more, or has a successor already."""


class Rotated(NamedTuple):
    old: ApiKey
    new: ApiKey
    token: str  # of the new one

    @property
    def outcome(self) -> str:
        """Return what has become of the old one."""
        if self.old.revoked_at is not None:
            return f"{self.old.prefix} is revoked"
        return f"{self.old.prefix} is good until {self.old.expires_at:%Y-%m-%d %H:%M} UTC"


def rotate_key(key: ApiKey, by: By, overlap: timedelta = OVERLAP, expires_at: datetime | None = None) -> Rotated:
    """Make a successor, with the same environment, label and scopes; the old key ends after the overlap.

    Without `expires_at`, the new key lasts as long as the old one was made to last. An old key that expires before the
    overlap is over still does. If two rotate a key at the same time, one is refused.
    """
    with changing():
        # The first transaction locks the row until it commits; the second then reads the successor that the first made.
        ApiKey.objects.filter(pk=key.pk).update(label=F("label"))
        old = ApiKey.objects.select_related("environment", "successor").get(pk=key.pk)
        moment = time_of(now())
        _refuse_what_is_over(old, moment)
        expires_at = expires_at or _same_span(old, moment)
        new, token = create_key(old.environment, old.label, expires_at, old.scopes, by)
        old.successor = new
        if overlap:
            end = moment + overlap
            old.expires_at = end if old.expires_at is None else min(end, old.expires_at)
            old.save(update_fields=["successor", "expires_at"])
        else:
            old.save(update_fields=["successor"])
            revoke_key(old)
    return Rotated(old, new, token)


def good_predecessors(key: ApiKey) -> list[ApiKey]:
    """Return the keys before this one whose overlap is not over, the latest first."""
    found: list[ApiKey] = []
    moment = time_of(now())
    waiting = [key.pk]
    while waiting:
        before = list(ApiKey.objects.filter(successor_id__in=waiting))
        found += [each for each in before if not each.revoked_at and (not each.expires_at or each.expires_at > moment)]
        waiting = [each.pk for each in before]
    return found


def _refuse_what_is_over(key: ApiKey, moment: datetime) -> None:
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= moment):
        over = "revoked" if key.revoked_at is not None else "expired"
        raise NotToBeRotated(f"{key.prefix} is {over}: create_api_key makes another")
    if key.successor is not None:
        raise NotToBeRotated(f"{key.prefix} has a successor already: {key.successor.prefix}, which can be rotated")
    if not key.scopes:
        raise NotToBeRotated(f"{key.prefix} has no scope, and so is good for nothing: create_api_key makes another")


def _same_span(key: ApiKey, moment: datetime) -> datetime | None:
    if key.expires_at is None:
        return None
    try:
        return moment + (key.expires_at - key.created_at)
    except OverflowError:  # it would end after the year 9999
        return key.expires_at
