from django.apps import AppConfig
from django.db.models.signals import post_migrate

from facts.statistics import forget_statistics


class FactsConfig(AppConfig):
    name = "facts"
    verbose_name = "Facts"

    def ready(self) -> None:
        post_migrate.connect(_prepared, sender=self)


def _prepared(**_: object) -> None:
    forget_statistics()
