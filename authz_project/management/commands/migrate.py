"""Django's own, which begins sooner."""

from typing import Any

from django.core.checks import Tags
from django.core.management.commands import migrate


class Command(migrate.Command):
    def check(self, *args: Any, **options: Any) -> None:
        """Check models and database; the rest is about the code, imports every page, and is what `check` is for."""
        super().check(*args, **options | {"tags": [Tags.models, Tags.database]})
