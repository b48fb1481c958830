"""List and create spaces, and move environments between them."""

from typing import Any

from django.core.management.base import CommandError
from django.db import connection

from authz_project import environments, moving, spaces
from authz_project.database import is_pooled
from policy.core.clock import is_citus
from policy.core.spaces import HOME, entered
from policy.management.command import ServiceCommand, counted

ACTIONS = {
    "list": "List all spaces, with what is in them.",
    "create": "Create a space: a schema with all tables.",
    "add": "Create an environment in a space.",
    "move": "Move an environment to another space while it is in use.",
    "drop": "Delete a space. It may contain test environments only.",
    "spread": "Let Citus move spaces between its servers, so that each has its share.",
}


class Command(ServiceCommand):
    help = "List and create spaces (schemas of PostgreSQL), and move environments between them."

    def add_arguments(self, parser):
        _, create, add, move, drop, _ = self.subcommands(parser, "action", ACTIONS).values()
        create.add_argument("name", metavar="NAME", help="Name of the space, and of its schema.")
        create.add_argument(
            "--on", default="", metavar="SERVER", help="Server in DATABASE_URLS (default: DATABASE_URL's)."
        )
        drop.add_argument("name", metavar="NAME", help="Space.")
        for with_environment in (add, move):
            with_environment.add_argument("environment", metavar="ENVIRONMENT", help="Environment.")
            with_environment.add_argument(
                "name", metavar="SPACE", help="Space; `home` is the database of DATABASE_URL."
            )

    def handle(self, *, action: str, **options: Any) -> None:
        if connection.vendor != "postgresql":
            raise CommandError("Spaces need PostgreSQL. Set DATABASE_URL to a postgres:// URL.")
        getattr(self, f"_{action}")(**options)

    def _list(self, **options: Any) -> None:
        for space in spaces.seen():
            has = space.contents
            if has is None:
                self.stdout.write(f"{space.name}  cannot be used: {space.trouble}")
                continue
            facts = f"about {counted(has.facts, 'fact')}, {has.size / 1e6:,.1f} MB, {counted(has.revisions, 'change')}"
            self.stdout.write(f"{space.name}  {space.host}  {counted(has.environments, 'environment')}, {facts}")

    def _create(self, *, name: str, on: str, **options: Any) -> None:
        with self.progress(f"creating space {name}"):
            spaces.create(name, on)
        self.stdout.write(f"Space `{name}` is ready. Create an environment with `spaces add ENVIRONMENT {name}`.")

    def _add(self, *, environment: str, name: str, **options: Any) -> None:
        environments.made_in(_space(name), environment)
        self.stdout.write(
            f"Environment `{environment}` created. Create a key with `api_keys create --environment {environment}`."
        )

    def _move(self, *, environment: str, name: str, **options: Any) -> None:
        with self.progress(f"moving {environment}") as shown:
            done = moving.move(environment, _space(name), lambda step: shown.tell(0, note=step))
        self.stdout.write(
            f"Environment `{environment}` moved to {moving.shown(done.target)}: {counted(done.facts, 'fact')};"
            f" requests waited for up to {done.pause * 1000:,.0f} ms."
        )

    def _drop(self, *, name: str, **options: Any) -> None:
        spaces.drop(name)
        self.stdout.write(f"Space `{name}` and its schema are deleted.")

    def _spread(self, **options: Any) -> None:
        if connection.vendor != "postgresql" or not is_citus():
            raise CommandError("Only Citus moves spaces by itself. Use `spaces move ENVIRONMENT SPACE`.")
        if is_pooled():
            raise CommandError(
                "`spaces spread` cannot use a pooler: set DATABASE_URL to the server, without pool_mode."
            )
        with entered(HOME), connection.cursor() as cursor, self.progress("spreading spaces"):
            cursor.execute("SET statement_timeout = 0")
            cursor.execute("CALL citus_cleanup_orphaned_resources()")  # of moves before
            cursor.execute("SELECT citus_rebalance_start()")
            cursor.execute("SELECT citus_rebalance_wait()")
        self._list()


def _space(name: str) -> str:
    return HOME if name == spaces.AT_HOME else name
