"""Print the bindings of a project's models as data bindings, for other programs that use local SQL."""

from typing import Any

import yaml
from django.core.management.base import BaseCommand

from localsql.django.remote import document


class Command(BaseCommand):
    help = "Print the bindings of this project's models as data bindings (YAML) for local SQL."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(yaml.safe_dump(document(), sort_keys=False, width=120), ending="")
