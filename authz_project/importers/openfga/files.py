"""Files of OpenFGA, by the ends of their names, as one import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from textwrap import indent

from authz_project.importers.located_data import Located, read_yaml
from authz_project.importers.model import Imported, Model, Place, Scenario, Tuple
from authz_project.importers.neighbour_files import neighbour_file
from authz_project.importers.openfga.dsl import read_dsl
from authz_project.importers.openfga.json_model import read_json_model
from authz_project.importers.openfga.model_parts import ModelPart
from authz_project.importers.openfga.models import model_of_files
from authz_project.importers.openfga.stores import Store, read_store
from authz_project.importers.openfga.tuples import read_tuples
from authz_project.importers.report import wrong
from policy.files import text_of_file

_YAML = (".yaml", ".yml")
_OF_STORES = ("name", "model", "model_file", "tuple_file", "tuple_files", "tests")


def read_files(model: str, others: Iterable[str]) -> Imported:
    """Read a model or a store, and the tuples and stores beside it."""
    tuples: list[Tuple] = []
    scenarios: list[Scenario] = []
    if PurePath(model).suffix.lower() in _YAML:
        store = _store(model)
        found = _model_of_store(store, model)
        tuples += store.tuples
        scenarios += store.scenarios
    else:
        found = _model(model)
    for name in others:
        if _is_store(name):
            store = _store(name)
            tuples += store.tuples
            scenarios += store.scenarios
        else:
            tuples += _tuples(name)
    return Imported(found, tuple(tuples), tuple(scenarios))


def _model(name: str) -> Model:
    return model_of_files(_files(name))


def _files(name: str) -> list[ModelPart]:
    text = text_of_file(name)
    match PurePath(name).suffix.lower():
        case ".json":
            return [read_json_model(text, name)]
        case ".mod":
            return [read_dsl(text_of_file(each), each) for each in _modules(text, name)]
        case _:
            return [read_dsl(text, name)]


def _modules(text: str, name: str) -> list[str]:
    """Return the files that a list of modules names."""
    raw = read_yaml(text, name)
    listed = raw.get("contents") if isinstance(raw, Located) else None
    if not isinstance(listed, list) or not listed:
        raise wrong(Place(name, 1), "expected `contents`, a list of the modules' files")
    return [_beside(name, str(each)) for each in listed]


def _store(name: str) -> Store:
    return read_store(text_of_file(name), name, lambda each: _tuples(_beside(name, each)))


def _model_of_store(store: Store, name: str) -> Model:
    if store.model_file:
        return _model(_beside(name, store.model_file))
    if store.model is None:
        raise wrong(Place(name, 1), "a store needs `model` or `model_file`")
    return _placed(store.model, store.model_at)


def _placed(text: str, at: Place) -> Model:
    """Return the model within a file: its lines and columns are those of the file."""
    return model_of_files([read_dsl("\n" * (at.line - 1) + indent(text, " " * (at.column - 1)), at.file)])


def _is_store(name: str) -> bool:
    if PurePath(name).suffix.lower() not in _YAML:
        return False
    raw = read_yaml(text_of_file(name), name)
    return isinstance(raw, Located) and any(name in raw for name in _OF_STORES)


def _tuples(name: str) -> Iterator[Tuple]:
    return read_tuples(text_of_file(name), name)


def _beside(name: str, other: str) -> str:
    path = neighbour_file(name, other)
    if path is None:
        advice = "a file may name those below its own folder; name others in the command, or copy them there"
        raise wrong(Place(name), f"`{other}` lies elsewhere; {advice}")
    return str(path)
