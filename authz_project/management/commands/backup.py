"""Back up the database while the service is running."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connection

from authz_project.backups import copy, dump_call, has_key_password, program
from authz_project.database import is_pooled
from authz_project.settings import secret_file
from authz_project.spaces import space_named, spaces
from policy.core.spaces import HOME, entered
from policy.errors import one_line
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Copy the SQLite database and its secret while the service runs. With PostgreSQL, print the pg_dump command to "
        "run. Check the copy with `verify`."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", type=Path, help="Backup file to create.")
        parser.add_argument("--overwrite", action="store_true", help="Replace existing files.")
        parser.add_argument("--space", metavar="SPACE", help="With PostgreSQL: back up this space only.")

    def handle(self, *, file: Path, overwrite: bool, space: str | None = None, **options: Any) -> None:
        if connection.vendor == "sqlite":
            if space:
                raise CommandError("Spaces need PostgreSQL. Omit --space.")
            self._copy(file.absolute(), overwrite)
            return
        with entered(space_named(space).name if space else HOME):
            self._say_call(file, overwrite, space or "")
        if not space and (far := [each.name for each in spaces() if each.server]):
            self.stderr.write(f"Spaces on other servers are not in it. Back them up with --space: {', '.join(far)}.")

    def _copy(self, file: Path, overwrite: bool) -> None:
        source = Path(connection.settings_dict["NAME"]).absolute()
        if not source.exists():
            raise CommandError(f"No database at {source}. Set DATABASE_URL to its location.")
        with self.progress("copying") as progress:
            copy(source, file, overwrite, lambda share: progress.tell(share=share))
        self.stdout.write(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")
        secret = secret_file(file)
        if secret_file(source).exists():
            self.stdout.write(f"{secret}: the login secret")
        else:
            self.stderr.write("SECRET_KEY is not in the backup. Back it up separately.")

    def _say_call(self, file: Path, overwrite: bool, space: str) -> None:
        """Print the pg_dump command, and check that the installed version is new enough for the server."""
        if is_pooled():
            raise CommandError("pg_dump cannot use a pooler: set DATABASE_URL to the server, without pool_mode")
        self.stdout.write(dump_call(connection.settings_dict, file, overwrite, space))
        if connection.settings_dict.get("PASSWORD"):
            self.stderr.write("Pass the password in PGPASSWORD, or in the file named by PGPASSFILE.")
        if has_key_password(connection.settings_dict):
            self.stderr.write(
                "sslpassword is omitted, because process lists would show it. Put it into a service file, and add "
                "service=NAME to --dbname."
            )
        if "SECRET_KEY" in os.environ:
            self.stderr.write("SECRET_KEY is not in the backup. Back it up separately.")
        try:
            connection.ensure_connection()
        except Error as reason:
            raise CommandError(f"Cannot reach the database: {one_line(reason)}") from None
        server, minor = divmod(connection.pg_version, 10_000)  # type: ignore[attr-defined]
        found = program("pg_dump")
        if found is None:
            raise CommandError(f"pg_dump is not installed. Install PostgreSQL's client programs, {server} or newer.")
        if found.major < server:
            raise CommandError(
                f"pg_dump {found.version} cannot dump PostgreSQL {server}.{minor}. Install client programs of "
                f"version {server} or newer."
            )
        self.stderr.write(f"pg_dump {found.version} can dump PostgreSQL {server}.{minor}")
