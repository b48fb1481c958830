"""The service's settings: the entries of `AUTHZ` in Django's settings, with defaults for those that are missing.

    from policy.core.config import settings

    settings.STATEMENT_TIMEOUT

Names that are not in `DEFAULTS` are Django's own settings. In the service's own project, each entry is a
setting of its own.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core.signals import setting_changed

STANDARD_OUTPUT = "-"  # as the path of a log

# Inside an application. The service's own defaults are in `authz_project/settings.py`.
DEFAULTS: dict[str, Any] = {
    "ENVIRONMENT": "default",  # the slug of the environment that the application uses
    "URL": None,  # of a server to ask, instead of the engine in the application
    "KEY": "",  # the server's API key
    "POLICY": None,  # the policy file; `migrate` publishes it
    "ADMIN": False,  # whether the project's admin has the service's pages, too
    "PUBLISH_ON_MIGRATE": True,  # False: `migrate` only says that the file differs
    "PERMISSIONS": {},  # Django's words for permissions -> actions
    "STATEMENT_TIMEOUT": 5.0,
    "WRITE_TIMEOUT": 0.0,  # none but the application's
    "MAX_DELETE_MATCHES": 0,
    "HISTORY_DAYS": 0,
    "STRICT_FACTS": False,
    "ANSWER_CACHE": 0,
    "RATE_LIMIT": None,
    "REPLICAS": {},
    "REPLICA_MAX_LAG": 10.0,
    "REPLICA_READS": "after-writes",
    "REPLICA_TIMEOUT": 2.5,
    "PUBLIC_URL": "",
    "DECISION_LOG": "",
    "DECISION_LOG_SAMPLE": 1.0,
    "DECISION_LOG_DENIED": False,
    "DECISION_LOG_CONTEXT": True,
}


def is_service() -> bool:
    """Return whether this is the service's own project, rather than another one that has its apps."""
    return apps.is_installed("authz_project")


class _Settings:
    """Looks up a setting when it is first read, and caches it as an attribute: Django's own lookup takes longer.

    All are looked up again after a test has overridden any setting with a fixture or `override_settings`. Assigning to
    an attribute of Django's `settings` is not noticed.
    """

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = _entry(name) if name in DEFAULTS else getattr(django_settings, name)
        return found

    def forget(self, **_: object) -> None:
        self.__dict__.clear()


def _entry(name: str) -> Any:
    if is_service():
        return getattr(django_settings, name, DEFAULTS[name])
    return getattr(django_settings, "AUTHZ", {}).get(name, DEFAULTS[name])


settings = _Settings()
setting_changed.connect(settings.forget)
