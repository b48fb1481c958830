"""Which form a database has: the migrations that it went through, beside those that the program knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.migrations.loader import MigrationLoader

from authz_project.backups.findings import Finding, wrong

APPLIED = "SELECT app, name FROM django_migrations"
Name = tuple[str, str]  # an app, and what its migration is called


class Form(NamedTuple):
    missing: list[Name]  # of those that the program knows
    unknown: list[Name]  # to it

    @property
    def is_current(self) -> bool:
        return not self.missing and not self.unknown

    @property
    def finding(self) -> Finding:
        if self.unknown:
            return wrong("form", f"it is of a newer version of the program, which made {_listed(self.unknown)}")
        if self.missing:
            return Finding("form", f"it is of an older version; `serve` will bring it up by {_listed(self.missing)}")
        return Finding("form", "it is this version's")


def form_of(applied: Iterable[Name]) -> Form:
    """The form of a database with these migrations. Those of apps that are gone say nothing."""
    loader = MigrationLoader(None)
    known, made = set(loader.disk_migrations), {(app, name) for app, name in applied}
    ours = {app for app, _ in known}
    return Form(sorted(known - made), sorted(each for each in made - known if each[0] in ours))


def _listed(names: list[Name]) -> str:
    return ", ".join(f"{app} {name[:4]}" for app, name in names)
