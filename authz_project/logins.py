"""How often somebody may try a password: counted in the database, which all processes share.

Failed logins are counted twice: by address and name, and by address alone. So attempts from one address lock nobody out
at another. The database's clock measures the window. An attempt that lies more than a window in the future, since that
clock was set back, no longer counts.
"""

import hashlib
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.http import HttpRequest

from authz_project.models import LoginAttempts
from policy.clock import now, time_of

WINDOW = timedelta(minutes=15)
FOR_ONE_NAME = 5
FOR_ALL_NAMES = 20


class LoginForm(AdminAuthenticationForm):
    """The admin's login form, which refuses whoever has failed too often."""

    def clean(self) -> dict:
        assert self.request is not None, "the admin's login gives it"
        address = address_of(self.request)
        name = str(self.cleaned_data.get("username", "")).casefold()
        one, every = _key(address, name), _key(address)
        refuse_after({one: FOR_ONE_NAME, every: FOR_ALL_NAMES})
        count(one, every)  # before the password is looked at: those who try at the same time are counted, too
        cleaned = super().clean()
        LoginAttempts.objects.filter(key=one).delete()
        LoginAttempts.objects.filter(key=every, count__gt=0).update(count=F("count") - 1)
        return cleaned


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
    """Return the client's address, from CLIENT_ADDRESS_HEADER if that is set; of an IPv6 address, its /64 network."""
    forwarded = request.headers.get(settings.CLIENT_ADDRESS_HEADER, "") if settings.CLIENT_ADDRESS_HEADER else ""
    text = forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR", "")
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or address.exploded[:19])
    return str(address)


def _key(*parts: str) -> str:
    """Make a key of which neither name nor address can be read."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
