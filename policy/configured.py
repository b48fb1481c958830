"""Settings that every request asks for, as plain attributes.

    from policy.configured import configured

    if configured.RATE_LIMIT is not None: …

Django's own way to a setting takes longer than what is done with it. Each is looked up once, and again when a test
overrides a setting: by a fixture or `override_settings`, not by setting it on Django's object.
"""

from __future__ import annotations

from typing import Any, cast

from django.conf import LazySettings, settings
from django.core.signals import setting_changed


class _Configured:
    def __getattr__(self, name: str) -> Any:
        """Look up what nobody has asked for yet; after that, it is an attribute."""
        found = self.__dict__[name] = getattr(settings, name)
        return found


_all = _Configured()
configured = cast(LazySettings, _all)  # which says what types they have


def _forget(**_: object) -> None:
    _all.__dict__.clear()


setting_changed.connect(_forget)
