"""Verify the database, or a backup of it."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import Error

from authz_project.backups.archive import (
    SQLITE,
    BackupFinding,
    NotABackup,
    dump_findings,
    kind_of,
    schema_finding,
    sqlite_findings,
)
from authz_project.backups.verify import CannotRestore, findings, looked_at, restore_dump, sqlite_looked_at
from authz_project.database import missing_database
from authz_project.settings import database_from_url
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Verify that the database, or BACKUP, is consistent: schema, facts against the revisions that made them,"
        " and whether policies compile and answer. Read-only."
    )

    def add_arguments(self, parser):
        parser.add_argument(
            "file", nargs="?", type=Path, metavar="BACKUP",
            help="File made by `backup` or pg_dump (default: verify the database in use).",
        )  # fmt: skip
        parser.add_argument(
            "--database", metavar="URL",
            help="Empty PostgreSQL database to restore a dump into. Variables are expanded: ${VAR}.",
        )  # fmt: skip

    def handle(self, *, file: Path | None, database: str | None, **options: Any) -> None:
        try:
            if file is None:
                is_good = self._in_use(database)
            elif kind_of(file) == SQLITE:
                is_good = self._sqlite(file, database)
            else:
                is_good = self._dump(file, database and filled_in(database))
        except (NotABackup, CannotRestore) as reason:
            raise CommandError(str(reason)) from None
        if not is_good:
            self.stderr.write(f"{file or 'The database'} is not consistent.")
            sys.exit(1)

    def _in_use(self, database: str | None) -> bool:
        if database:
            raise CommandError("--database needs a BACKUP to restore into it.")
        if missing := missing_database():
            raise CommandError(f"No database at {missing}. Set DATABASE_URL to its location.")
        try:
            return self._report(findings())
        except Error as reason:
            raise CommandError(f"Cannot read the database: {' '.join(str(reason).split())}") from None

    def _sqlite(self, file: Path, database: str | None) -> bool:
        if database:
            raise CommandError("--database is for PostgreSQL dumps only. Omit it for a copy of an SQLite database.")
        with self.progress("reading"):
            found = [*sqlite_findings(file)]
        if not self._report(found):
            return False
        with self.progress("checking answers"):
            is_good, said = sqlite_looked_at(file)
        self.stdout.write(said)
        return is_good

    def _dump(self, file: Path, url: str | None) -> bool:
        if not self._report(dump_findings(file)):
            return False
        if url is None:
            self.stderr.write("The contents were not verified. Pass --database with an empty database to restore into.")
            return True
        with self.progress("restoring"):
            state = restore_dump(file, scratch_config(url))
        if not self._report([schema_finding(state)]):
            return False
        with self.progress("checking answers"):
            is_good, said = looked_at(url)
        self.stdout.write(said)
        return is_good

    def _report(self, found: Iterable[BackupFinding]) -> bool:
        are_good = True
        for finding in found:
            self.stdout.write(str(finding))
            are_good &= finding.is_good
        return are_good


def filled_in(url: str) -> str:
    """Expand ${VAR} in a URL, so that process lists show the variable's name and not the password."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise CommandError(f"--database names the variable {found[1]}, which is not set.")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, url)


def scratch_config(url: str) -> dict[str, Any]:
    """Return the settings of the scratch database, which must not be the one in use."""
    try:
        config = database_from_url(url)
    except ImproperlyConfigured as reason:
        raise CommandError(str(reason).replace("DATABASE_URL", "--database")) from None
    if not config["ENGINE"].endswith("postgresql"):
        raise CommandError("--database must be the URL of a PostgreSQL database: postgres://user:password@host/name")
    if all(config.get(part) == settings.DATABASES["default"].get(part) for part in ("HOST", "PORT", "NAME")):
        raise CommandError("--database is the database in use. Use an empty database.")
    return config
