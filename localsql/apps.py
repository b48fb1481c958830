from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from policy.core.config import is_service


class LocalSqlConfig(AppConfig):
    name = "localsql"
    label = "authz_localsql"
    verbose_name = "Local SQL"

    def ready(self) -> None:
        """Inside a project, find its `authz.py` modules; check them, and publish its policy after `migrate`."""
        if is_service():
            return
        autodiscover_modules("authz")
        checks.register(_check, "authz")
        post_migrate.connect(_publish, sender=self)


def _check(app_configs: object, databases: Any = None, **options: object) -> list[checks.CheckMessage]:
    return [*import_module("localsql.django.project").findings(databases)]


def _publish(using: str, verbosity: int = 1, **options: object) -> None:
    if using == "default":
        import_module("localsql.django.project").publish_file(verbosity)
