"""Print versions."""

import platform
from pathlib import Path
from typing import Any

from django.db import DatabaseError, InterfaceError

from authz_project import environments
from authz_project.command_line import version_line
from authz_project.database import missing_database
from policy.core.spaces import everywhere
from policy.management.command import ServiceCommand
from policy.models import Environment

CHANGES = Path(__file__).parents[2] / "CHANGELOG.md"


class Command(ServiceCommand):
    help = "Print the versions of the service, Python, the database and policies."

    def add_arguments(self, parser):
        parser.add_argument("--changes", action="store_true", help="Print the changelog.")

    def handle(self, *, changes: bool, **options: Any) -> None:
        if changes:
            self.stdout.write(CHANGES.read_text(encoding="utf-8"))
            return
        self.stdout.write(version_line())
        self.stdout.write(f"  Python    {platform.python_version()}")
        if missing := missing_database():
            self.stdout.write(f"  database  none at {missing}; `serve` or `migrate` creates it")
            return
        try:
            self.stdout.write(f"  database  {environments.database_text()}")
            for _ in everywhere():
                for environment in Environment.objects.all():
                    self.stdout.write(f"  policy    {environments.policy_text(environment.pk, environment.slug)}")
        except (DatabaseError, InterfaceError) as reason:
            first = next(iter(str(reason).splitlines()), type(reason).__name__)
            self.stdout.write(f"  database  cannot be used: {first}")
