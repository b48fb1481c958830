"""Keys: whether there are any, which have ended or will soon, and whether one is known to everybody."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from authz_project.checkup.check_finding import CheckFinding, judged
from authz_project.keys import DEV_KEY_HASH
from authz_project.models import ApiKey
from policy.clock import now, time_of

SOON = timedelta(days=14)
SHOWN = 3  # keys that are named


def keys_finding() -> CheckFinding:
    moment = time_of(now())  # by the clock that ends them
    held = ApiKey.objects.filter(revoked_at=None).exclude(hash=DEV_KEY_HASH).order_by("expires_at", "pk")
    active = held.exclude(expires_at__lte=moment)
    warnings = []
    if not (count := active.count()):
        warnings.append("none opens anything: create_api_key makes one")
    if ended := list(held.filter(expires_at__lte=moment)):
        warnings.append(f"{_counted(ended)} ended: revoke_api_key, or give whoever has one another")
    if ending := list(active.filter(expires_at__lte=moment + SOON)):
        warnings.append(f"{_counted(ending)} ends within {SOON.days} days: give whoever has one another in time")
    if ApiKey.objects.filter(hash=DEV_KEY_HASH).exists():
        warnings.append("the well-known key of development is stored: `serve` without --dev removes it as it starts")
    return judged("keys", [], warnings, f"{count} active")


def _counted(keys: Sequence[ApiKey]) -> str:
    named = ", ".join(key.prefix for key in keys[:SHOWN])
    return f"{len(keys)} ({named}{', …' if len(keys) > SHOWN else ''})"
