"""Settings that every request asks for: by Django's way to one, that takes longer than what it decides.

    from policy.settled import settled

    if settled.RATE_LIMIT is not None: …

Each is looked up once, and once more when a test overrides a setting.
"""

from __future__ import annotations

from typing import Any, cast

from django.conf import LazySettings, settings
from django.core.signals import setting_changed


class _Settled:
    def __getattr__(self, name: str) -> Any:
        """Look up what nobody has asked for yet; after that, it is an attribute."""
        found = self.__dict__[name] = getattr(settings, name)
        return found


_all = _Settled()
settled = cast(LazySettings, _all)  # which says what types they have


def _forget(**_: object) -> None:
    _all.__dict__.clear()


setting_changed.connect(_forget)
