from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core import checks
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from policy.core.config import is_service, settings

ENGINE = ("policy", "facts", "checks", "localsql")


class LocalSqlConfig(AppConfig):
    name = "localsql"
    label = "authz_localsql"
    verbose_name = "Local SQL"
    default_auto_field = "django.db.models.AutoField"  # as in its migrations, whatever a project sets

    def ready(self) -> None:
        """Inside a project, find its `authz.py` modules; check them, and prepare its database after `migrate`."""
        if is_service():
            return
        autodiscover_modules("authz")
        if settings.URL:
            _leave_tables_to_the_server()
        checks.register(_check, "authz")
        post_migrate.connect(_migrated, sender=self)


def _leave_tables_to_the_server() -> None:
    """Let `migrate` create no tables of the engine, nor note that it did: the project may have its own engine later."""
    configs = [each for each in apps.get_app_configs() if each.name in ENGINE]
    without = dict.fromkeys([each.label for each in configs])
    django_settings.MIGRATION_MODULES = {**django_settings.MIGRATION_MODULES, **without}
    for model in (model for each in configs for model in each.get_models()):
        model._meta.managed = False  # databases of tests have tables of models without migrations, too


def _project() -> Any:
    return import_module(f"localsql.django.{'remote' if settings.URL else 'project'}")


def _check(app_configs: object, databases: Any = None, **options: object) -> list[checks.CheckMessage]:
    if connection.vendor not in ("sqlite", "postgresql"):
        hint = "Use SQLite or PostgreSQL as `default`."
        return [checks.Error(f"{connection.vendor} is not supported", hint=hint, id="authz.E101")]
    return [*_project().findings(databases)]


def _migrated(using: str, verbosity: int = 1, **options: object) -> None:
    if using == "default":
        _project().migrated(verbosity)
