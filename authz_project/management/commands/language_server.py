"""The language server, for editors."""

from importlib import import_module
from typing import Any

from django.core.management.base import CommandError

from authz_project import __version__
from policy.management.command import ServiceCommand

_SERVER = "authz_project.language_server.server"  # imported only here: what it needs is an extra


class Command(ServiceCommand):
    help = (
        "Speak the Language Server Protocol on the standard input and output, for editors: problems, completion, "
        'names, layout and tests of policies. Needs `pip install "authz-project[editor]"`.'
    )

    def handle(self, **options: Any) -> None:
        try:
            server = import_module(_SERVER)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
                raise
            raise CommandError('the language server needs pygls: pip install "authz-project[editor]"') from None
        server.serve(__version__)
