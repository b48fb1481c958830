"""The language server, for editors."""

from importlib import import_module
from typing import Any

from django.core.management.base import CommandError

from authz_project import __version__
from policy.management.command import ServiceCommand

_SERVER = "authz_project.language_server.server"  # imported by name: its dependencies are an extra


class Command(ServiceCommand):
    help = (
        "Run the language server on standard input and output: problems, completion, renaming, formatting and tests. "
        'Needs `pip install "authz-project[editor]"`.'
    )

    def handle(self, **options: Any) -> None:
        try:
            server = import_module(_SERVER)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
                raise
            raise CommandError('pygls is not installed. Run `pip install "authz-project[editor]"`.') from None
        server.serve(__version__)
