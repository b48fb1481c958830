"""Django's command, with fewer system checks, so that it starts faster."""

from typing import Any

from django.core.checks import Tags
from django.core.management.commands import migrate

from authz_project.secret_key import prepare_folder


class Command(migrate.Command):
    def check(self, *args: Any, **options: Any) -> None:
        """Check models and database only: the other checks import every page, and are what `check` is for."""
        super().check(*args, **options | {"tags": [Tags.models, Tags.database]})

    def handle(self, *args: Any, **options: Any) -> None:
        if not (options["plan"] or options["check_unapplied"]):
            prepare_folder()
        super().handle(*args, **options)
