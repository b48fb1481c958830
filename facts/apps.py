from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class FactsConfig(AppConfig):
    name = "facts"
    label = "authz_facts"
    verbose_name = "Facts"
    default_auto_field = "django.db.models.AutoField"  # as in its migrations, whatever a project sets

    def ready(self) -> None:
        post_migrate.connect(_prepared, sender=self)


def _prepared(**_: object) -> None:
    import_module("facts.table").forget_statistics()  # models can be imported only once the apps are loaded
