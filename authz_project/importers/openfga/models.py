"""A model, whichever way it is written: the language, JSON, or modules in several files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from authz_project.importers import model_checks
from authz_project.importers.model import Model, Type
from authz_project.importers.openfga.dsl import read_dsl
from authz_project.importers.openfga.model_parts import ModelPart
from authz_project.importers.report import Fault, ImportRejected


def model_of_dsl(text: str, file: str) -> Model:
    """Return the model that one text in the language is; raise ImportRejected with all that is wrong."""
    return model_of_files([read_dsl(text, file)])


def model_of_files(files: Iterable[ModelPart]) -> Model:
    """Return one model of several modules, which may extend each other's types."""
    files = list(files)
    types: dict[str, Type] = {}
    for type_ in (each for file in files for each in file.types):
        types.setdefault(type_.name, type_)
    twice = [Fault(type_.place, f"a second type is called {type_.name}")
             for file in files for type_ in file.types if types[type_.name] is not type_]  # fmt: skip
    missing = [each for file in files for each in file.extensions if each.name not in types]
    faults = twice + [Fault(each.place, f"there is no type {each.name} to extend") for each in missing]
    if faults:
        raise ImportRejected(faults)
    for file in files:
        for each in file.extensions:
            types[each.name] = _extended(types[each.name], each)
    conditions = tuple(each for file in files for each in file.conditions)
    comment = tuple(line for file in files for line in file.comment)
    model = Model(tuple(types.values()), conditions, comment)
    model_checks.check_model(model)
    return model


def _extended(type_: Type, by: Type) -> Type:
    return replace(type_, relations=type_.relations + by.relations, comment=type_.comment + by.comment)
