"""Whether a copy of the database is good, found out before it is needed."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from authz_project.backups.archive import (
    SQLITE,
    BackupFinding,
    NotABackup,
    dump_findings,
    kind_of,
    schema_finding,
    sqlite_findings,
)
from authz_project.backups.verify import CannotRestore, looked_at, restore_dump, sqlite_looked_at
from authz_project.settings import database_from_url
from policy.management.command import ServiceCommand


class Command(ServiceCommand):
    help = (
        "Say whether a copy of the database is good: read all of it, compare what is stored with the revisions that "
        "made it, compile the policies and answer questions. The copy stays as it is."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", type=Path, help="what `backup` or pg_dump has made")
        parser.add_argument(
            "--database",
            metavar="URL",
            help="an empty PostgreSQL database to restore a dump into; variables are filled in: ${VAR}",
        )

    def handle(self, *, file: Path, database: str | None, **options: Any) -> None:
        try:
            is_sqlite = kind_of(file) == SQLITE
            if is_sqlite and database:
                raise CommandError("--database is for dumps of PostgreSQL; a copy of an SQLite file is tried in one")
            is_good = self._sqlite(file) if is_sqlite else self._dump(file, database and filled_in(database))
        except (NotABackup, CannotRestore) as reason:
            raise CommandError(str(reason)) from None
        if not is_good:
            self.stderr.write(f"{file} is not good")
            sys.exit(1)

    def _sqlite(self, file: Path) -> bool:
        with self.progress("reading"):
            found = [*sqlite_findings(file)]
        if not self._report(found):
            return False
        with self.progress("asking"):
            is_good, said = sqlite_looked_at(file)
        self.stdout.write(said)
        return is_good

    def _dump(self, file: Path, url: str | None) -> bool:
        if not self._report(dump_findings(file)):
            return False
        if url is None:
            self.stderr.write("what is in it is not looked at: --database names an empty database to restore it into")
            return True
        with self.progress("restoring"):
            state = restore_dump(file, scratch_config(url))
        if not self._report([schema_finding(state)]):
            return False
        with self.progress("asking"):
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
    """Put the variables that it names into a URL: who lists the processes sees their names."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise CommandError(f"--database names the variable {found[1]}, which is not set")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, url)


def scratch_config(url: str) -> dict[str, Any]:
    """Return the settings of a database that is not the one in use."""
    try:
        config = database_from_url(url)
    except ImproperlyConfigured as reason:
        raise CommandError(str(reason).replace("DATABASE_URL", "--database")) from None
    if not config["ENGINE"].endswith("postgresql"):
        raise CommandError("--database must be the URL of a PostgreSQL database: postgres://user:password@host/name")
    if all(config.get(part) == settings.DATABASES["default"].get(part) for part in ("HOST", "PORT", "NAME")):
        raise CommandError("--database is the database in use; name an empty one, for nothing but this")
    return config
