"""The Model Context Protocol server, for AI agents."""

import os
from typing import Any

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from policy.management.command import ServiceCommand, port_number

_SERVER = "authz_project.mcp_server.mcp_server"  # imported by name: its dependencies are an extra
URL = "http://127.0.0.1:8080"


class Command(ServiceCommand):
    help = (
        "Run a Model Context Protocol server for AI agents, which sends requests to a service with the API key in the"
        ' environment variable AUTHZ_KEY. Needs `pip install "authz-project[mcp]"`.'
    )

    def add_arguments(self, parser):
        parser.add_argument("--url", default=URL, help="The service (default: %(default)s).")
        parser.add_argument(
            "--allow-writes", action="store_true", help="Also offer tools that change facts and publish policies."
        )
        parser.add_argument(
            "--http", type=port_number, metavar="PORT",
            help="Serve streamable HTTP at http://127.0.0.1:PORT/mcp, without authentication (default: standard input"
            " and output). Read-only.",
        )  # fmt: skip

    def handle(self, *, url: str, allow_writes: bool, http: int | None, **options: Any) -> None:
        key = os.environ.get("AUTHZ_KEY", "")
        if not key:
            raise CommandError("AUTHZ_KEY is not set. Set it to an API key, see `api_keys create`.")
        if allow_writes and http is not None:
            raise CommandError("--allow-writes is not supported with --http, which does not authenticate clients.")
        try:
            server = import_string(_SERVER)(url, key, allow_writes)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in ("mcp", "httpx"):
                raise
            raise CommandError('mcp is not installed. Run `pip install "authz-project[mcp]"`.') from None
        except ValueError as reason:
            raise CommandError(f"AUTHZ_KEY: {reason}.") from None
        if http is None:
            server.run()
        else:
            server.run("streamable-http", port=http)
