"""The service's settings: the entries of `AUTHZ` in Django's settings, with defaults for those that are missing.

    from policy.core.config import settings

    settings.STATEMENT_TIMEOUT

Names that are not in `DEFAULTS` are Django's own settings. The service's own project defines `AUTHZ` as `TopLevel`, so
that each entry is a setting of its own there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.conf import LazySettings
from django.conf import settings as django_settings

# Inside an application. The service's own defaults are in `authz_project/settings.py`.
DEFAULTS: dict[str, Any] = {
    "ENVIRONMENT": "default",  # the slug of the environment that the application uses
    "POLICY": None,  # the policy file; `migrate` publishes it
    "ADMIN": False,  # whether the project's admin has the service's pages, too
    "PUBLISH_ON_MIGRATE": True,  # False: `migrate` only says that the file differs
    "PERMISSIONS": {},  # Django's words for permissions -> actions
    "STATEMENT_TIMEOUT": 5.0,
    "PLANNING_TIMEOUT": 1.0,
    "WRITE_TIMEOUT": 0.0,  # none but the application's
    "MAX_DELETE_MATCHES": 0,
    "HISTORY_DAYS": 0,
    "STRICT_CONTEXT_FACTS": False,
    "STRICT_FACTS": False,
    "ANSWER_CACHE": 0,
    "RATE_LIMIT": None,
    "REPLICAS": {},
    "REPLICA_MAX_LAG": 10.0,
    "REPLICA_READS": "after-writes",
    "REPLICA_TIMEOUT": 2.5,
    "PUBLIC_URL": "",
    "TRUST_PROXY": False,
    "DECISION_LOG": "",
    "DECISION_LOG_SAMPLE": 1.0,
    "DECISION_LOG_DENIED": False,
    "DECISION_LOG_CONTEXT": True,
}


def is_service() -> bool:
    """Return whether this is the service's own project, rather than another one that has its apps."""
    return apps.is_installed("authz_project")


class TopLevel(Mapping[str, Any]):
    """The entries of `AUTHZ` as settings of their own: those of the service's own project."""

    def __getitem__(self, name: str) -> Any:
        if name in DEFAULTS and hasattr(django_settings, name):
            return getattr(django_settings, name)
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry; faster than the inherited method, since each check reads some."""
        return getattr(django_settings, name, default) if name in DEFAULTS else default

    def __iter__(self) -> Iterator[str]:
        return (name for name in DEFAULTS if hasattr(django_settings, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Settings(LazySettings):
    """Reads the entry, its default, or Django's setting of that name."""

    def __init__(self) -> None:
        """Do without Django's own initialization: this object only reads."""

    def __getattribute__(self, name: str) -> Any:
        if not name.isupper():
            return object.__getattribute__(self, name)
        if name not in DEFAULTS:
            return getattr(django_settings, name)
        return getattr(django_settings, "AUTHZ", {}).get(name, DEFAULTS[name])


settings = _Settings()
