"""Rate limits of API keys and of logins."""

import hashlib
import math
import threading
import time
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.http import HttpRequest
from django.http.request import split_domain_port

from authz_project.models import LoginAttempts
from authz_project.settings import Rate
from policy.core.clock import now, time_of
from policy.core.memory import Recent
from policy.errors import AuthzError

# ---- rate limit ---------------------------------------------------------------------------------------------------
# The rate limit of requests: a token bucket for each key, in each process.
#
# A bucket holds as many tokens as `RATE_LIMIT` allows in its period, and each request takes one. So a key may send all
# of them as a burst, and then as many as are refilled. A request that finds the bucket empty is refused with the time
# to wait for the next token.

_MOST = 10_000  # keys; one that was not used for long is evicted, and starts again with a full bucket


class TooManyRequests(AuthzError):
    """The key has exceeded its rate limit; `seconds` says when to retry."""

    def __init__(self, rate: Rate, seconds: int):
        self.seconds = seconds
        super().__init__(
            f"this API key has exceeded {rate} (RATE_LIMIT per key and process); try again in {seconds:,} "
            f"second{'' if seconds == 1 else 's'}"
        )


class _Bucket(NamedTuple):
    tokens: float
    at: float  # when there were this many


_buckets: Recent[str, _Bucket] = Recent(_MOST)  # by the hash of a key that was found valid
_lock = threading.Lock()


def take_token(key_hash: str, rate: Rate) -> None:
    """Take a token for a request. Raise `TooManyRequests` if there is none."""
    with _lock:
        now = time.monotonic()
        tokens = _tokens(_buckets.get(key_hash), rate, now)
        if tokens >= 1:
            _buckets.store(key_hash, _Bucket(tokens - 1, now))
            return
    wait = math.ceil((1 - tokens) * rate.seconds / rate.requests)
    raise TooManyRequests(rate, max(1, wait))


def _tokens(bucket: _Bucket | None, rate: Rate, now: float) -> float:
    if bucket is None:
        return rate.requests
    return min(rate.requests, bucket.tokens + (now - bucket.at) * rate.requests / rate.seconds)


# ---- login attempts, counted in the database, which all processes share -------------------------------------------
# Failed logins are counted per address and name, and per address. So attempts from one address cannot lock out users
# at another. The window is measured by the database's clock. If that clock was set back, attempts more than a window
# in the future no longer count.

WINDOW = timedelta(minutes=15)
FOR_ONE_NAME = 5
FOR_ALL_NAMES = 20


class LoginForm(AdminAuthenticationForm):
    """The admin's login form, which refuses clients with too many failures."""

    def clean(self) -> dict:
        assert self.request is not None, "the admin's login gives it"
        address = address_of(self.request)
        name = str(self.cleaned_data.get("username", "")).casefold()
        one, every = _key(address, name), _key(address)
        refuse_after({one: FOR_ONE_NAME, every: FOR_ALL_NAMES})
        count(one, every)  # before the password is checked, so that concurrent attempts count, too
        cleaned = super().clean()
        LoginAttempts.objects.filter(key=one).delete()
        discount_sign_in(self.request)
        self.request.session.set_expiry(None)  # a sign-in that was begun elsewhere in this browser set a short one
        return cleaned


def count_sign_in(request: HttpRequest) -> None:
    """Count a sign-in that begins elsewhere; raise `ValidationError` if too many of the address did not succeed."""
    every = _key(address_of(request))
    refuse_after({every: FOR_ALL_NAMES})
    count(every)


def discount_sign_in(request: HttpRequest) -> None:
    LoginAttempts.objects.filter(key=_key(address_of(request)), count__gt=0).update(count=F("count") - 1)


def refuse_after(limits: dict[str, int]) -> None:
    moment = time_of(now())
    for tried in LoginAttempts.objects.filter(_lately(moment), key__in=limits):
        if tried.count >= limits[tried.key]:
            minutes = max(1, round((tried.since + WINDOW - moment).total_seconds() / 60))
            raise ValidationError(f"Too many failed logins. Try again in {minutes} minute{'s'[: minutes > 1]}.")


@transaction.atomic
def count(*keys: str) -> None:
    moment = time_of(now())
    LoginAttempts.objects.exclude(_lately(moment)).delete()
    for key in sorted(keys):
        LoginAttempts.objects.get_or_create(key=key, defaults={"since": moment})
        LoginAttempts.objects.filter(key=key).update(count=F("count") + 1)


def _lately(moment: datetime) -> Q:
    return Q(since__gt=moment - WINDOW, since__lt=moment + WINDOW)


def address_of(request: HttpRequest) -> str:
    """Return the client's address, from CLIENT_ADDRESS_HEADER if set, without a port; for IPv6, the /64 network."""
    forwarded = request.headers.get(settings.CLIENT_ADDRESS_HEADER, "") if settings.CLIENT_ADDRESS_HEADER else ""
    text = forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR", "")
    try:
        address = ip_address(split_domain_port(text)[0].strip("[]") or text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or address.exploded[:19])
    return str(address)


def _key(*parts: str) -> str:
    """Return a key that reveals neither name nor address."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
