"""Settings that every request reads, cached as plain attributes.

    from policy.configured import configured

    if configured.RATE_LIMIT is not None: …

Django's own attribute lookup takes longer than what is done with the setting. Each setting is looked up once, and again
after a test has overridden any setting with a fixture or `override_settings`. Assigning to an attribute of Django's
`settings` is not noticed.
"""

from __future__ import annotations

from typing import Any, cast

from django.conf import LazySettings, settings
from django.core.signals import setting_changed


class _Configured:
    def __getattr__(self, name: str) -> Any:
        """Look a setting up the first time it is read, and keep it as an attribute."""
        found = self.__dict__[name] = getattr(settings, name)
        return found


_all = _Configured()
configured = cast(LazySettings, _all)  # so that the type checker knows the settings' types


def _forget(**_: object) -> None:
    _all.__dict__.clear()


setting_changed.connect(_forget)
