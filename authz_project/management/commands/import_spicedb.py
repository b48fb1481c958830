"""A schema of SpiceDB becomes a policy, its relationships facts, its assertions tests."""

from __future__ import annotations

from pathlib import Path

from authz_project.importers.command import ImportCommand
from authz_project.importers.model import Imported
from authz_project.importers.spicedb import imported


class Command(ImportCommand):
    help = (
        "Make a policy with tests, and facts, of a SpiceDB schema and its relationships. What has no equal here is"
        " named with its line, and nothing is written then, unless --partial leaves it out."
    )
    engine = "SpiceDB"
    model_metavar = "SCHEMA"
    model_help = "a schema (.zed), or a validation file (.yaml) with a schema in it"
    others_metavar = "RELATIONSHIPS"
    others_help = "files with a relationship on each line; or validation files, with their relationships and assertions"

    def read(self, model: str, others: list[str]) -> Imported:
        return imported(Path(model), [Path(each) for each in others])
