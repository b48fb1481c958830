"""A copy of the database, made while the service runs."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connection

from authz_project.backups.archive import CannotCopy, copy, dump_call, has_key_password, program, secret_of
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Copy the database while the service runs, with the secret beside it; verify_backup looks at the copy. "
        "PostgreSQL has a program of its own for that: then this says how to call it."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, help="the copy to make")
        parser.add_argument("--overwrite", action="store_true", help="replace what is there")

    def handle(self, *, file: Path, overwrite: bool, **options: Any) -> None:
        if connection.vendor == "sqlite":
            self._copy(file.absolute(), overwrite)
        else:
            self._say_call(file)

    def _copy(self, file: Path, overwrite: bool) -> None:
        source = Path(connection.settings_dict["NAME"]).absolute()
        if not source.exists():
            raise CommandError(f"No database at {source}. DATABASE_URL says where it is.")
        try:
            with self.progress("copying") as progress:
                copy(source, file, overwrite, lambda share: progress.tell(share=share))
        except CannotCopy as reason:
            raise CommandError(str(reason)) from None
        self.stdout.write(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")
        secret = secret_of(file)
        if secret_of(source).exists():
            self.stdout.write(f"{secret}: the secret of logins")
        else:
            self.stderr.write("the secret is in SECRET_KEY, and not in the copy: keep it as well")

    def _say_call(self, file: Path) -> None:
        """Return what there is to type, and whether this machine's program is new enough for the server."""
        self.stdout.write(dump_call(connection.settings_dict, file))
        if connection.settings_dict.get("PASSWORD"):
            self.stderr.write("the password goes with it in PGPASSWORD, or in the file that PGPASSFILE names")
        if has_key_password(connection.settings_dict):
            self.stderr.write(
                "sslpassword is left out, for others would see it: put it into the file of a service, and service=NAME "
                "into --dbname"
            )
        if "SECRET_KEY" in os.environ:
            self.stderr.write("SECRET_KEY is not in the database: keep it as well")
        try:
            connection.ensure_connection()
        except Error as reason:
            raise CommandError(f"the database cannot be reached: {' '.join(str(reason).split())}") from None
        server, minor = divmod(connection.pg_version, 10_000)  # type: ignore[attr-defined]
        found = program("pg_dump")
        if found is None:
            raise CommandError(f"there is no pg_dump here: install PostgreSQL's client programs, {server} or newer")
        if found.major < server:
            raise CommandError(
                f"pg_dump {found.version} cannot dump PostgreSQL {server}.{minor}: install its client programs, "
                f"version {server} or newer"
            )
        self.stderr.write(f"pg_dump {found.version} can dump PostgreSQL {server}.{minor}")
