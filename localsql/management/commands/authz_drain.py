"""Send the changes that a project's outbox still has to the server (`AUTHZ["URL"]`)."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.module_loading import import_string

from policy.core.config import settings
from policy.errors import AuthzError, Unavailable
from policy.management.command import ServiceCommand, counted


class Command(ServiceCommand):
    help = "Send the changes of facts that are still in this project's outbox to the server, as commits do."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--skip-bad", action="store_true", help="Print and delete changes that the server rejects.")

    def handle(self, *args: Any, skip_bad: bool, **options: Any) -> None:
        if not settings.URL:
            raise CommandError("AUTHZ['URL'] is not set, so there is no outbox. Set it in your Django project.")
        try:
            drain = import_string("localsql.django.remote.drain")  # with the engine, which takes a while
            sent = drain((lambda blocked: self.stderr.write(str(blocked))) if skip_bad else None)
        except (AuthzError, Unavailable) as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"{counted(sent, 'change')} sent")
