"""A model of OpenFGA becomes a policy, its tuples facts, its tests tests."""

from __future__ import annotations

from authz_project.importers.command import ImportCommand
from authz_project.importers.model import Imported
from authz_project.importers.openfga import read_files


class Command(ImportCommand):
    help = (
        "Make a policy with tests, and facts, of an OpenFGA model and its tuples. What has no equal here is named with"
        " its line, and nothing is written then, unless --partial leaves it out."
    )
    engine = "OpenFGA"
    model_help = "a model in the modelling language, as JSON, as a list of modules (fga.mod), or a store file"
    others_metavar = "TUPLES"
    others_help = "files of tuples: .json, .jsonl, .yaml, .csv; or store files, with their tuples and tests"

    def read(self, model: str, others: list[str]) -> Imported:
        return read_files(model, others)
