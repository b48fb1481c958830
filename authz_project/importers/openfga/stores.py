"""Read OpenFGA tuples and store files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from textwrap import indent
from typing import Any

from authz_project.importers.files import Located, items_of_json, neighbour_file, read_yaml, rows_of_csv, value_of_json
from authz_project.importers.model import (
    ContextValues,
    ExpectedCheck,
    Fault,
    Imported,
    ImportRejected,
    Model,
    ObjectList,
    Place,
    Scenario,
    SubjectList,
    Thing,
    Tuple,
    Who,
    wrong,
)
from authz_project.importers.openfga.models import ModelPart, model_of_files, read_dsl, read_json_model
from policy.files import text_of_file

# ---- tuples -------------------------------------------------------------------------------------------------------
# Tuples: JSON, lines of JSON, YAML and CSV, as OpenFGA's command line reads and writes them.

_LISTS = ("tuples", "tuple_keys", "writes")  # what a list may stand under
_BESIDE = ("deletes", "authorization_model_id", "continuation_token", "on_duplicate")  # a list, as servers say it
_COLUMNS = ("user_type", "user_id", "relation", "object_type", "object_id")
_OTHER_COLUMNS = ("user_relation", "condition_name", "condition_context")


def read_tuples(text: str, file: str) -> Iterator[Tuple]:
    """Yield the tuples of a file, by the end of its name; raise ImportRejected with the first that is none."""
    match PurePath(file).suffix.lower():
        case ".csv":
            return (_of_row(row, place) for place, row in rows_of_csv(text, file, _COLUMNS, _OTHER_COLUMNS))
        case ".json" | ".jsonl":
            return (tuple_of(raw, place) for place, raw in _of_json(text, file))
        case _:
            return tuples_of(read_yaml(text, file), Place(file, 1))


def tuples_of(raw: Any, place: Place) -> Iterator[Tuple]:
    """Yield the tuples of a list, or of a mapping that has one."""
    listed = _tuple_list(raw, place) if isinstance(raw, dict) else raw
    if listed is None:
        return
    if not isinstance(listed, list):
        raise wrong(place, "expected a list of tuples")
    for each in listed:
        yield tuple_of(each, each.place if isinstance(each, Located) else place)


def _of_json(text: str, file: str) -> Iterator[tuple[Place, Any]]:
    for place, value in items_of_json(text, file):
        if isinstance(value, dict) and any(name in value for name in _LISTS):
            yield from ((place, each) for each in _tuple_list(value, place) or ())
        else:
            yield place, value


def _tuple_list(raw: dict[str, Any], place: Place) -> list[Any] | None:
    """Return the list that a mapping has, perhaps in another mapping; nothing beside it is left out in silence."""
    names = [name for name in _LISTS if name in raw]
    if len(names) != 1:
        raise wrong(place, f"expected a list of tuples, under one of {', '.join(_LISTS)}")
    _check_tuple_keys(raw, (*names, *_BESIDE), place)
    if raw.get("deletes"):
        raise wrong(place, "`deletes` is not carried out; take these tuples away, and leave it out")
    if raw.get("continuation_token"):
        raise wrong(place, "`continuation_token` says that there are more tuples; read them all, and leave it out")
    listed = raw[names[0]]
    if isinstance(listed, dict):
        return _tuple_list(listed, place)
    if listed is not None and not isinstance(listed, list):
        raise wrong(place, "expected a list of tuples")
    return listed


def _check_tuple_keys(raw: dict[str, Any], known: Iterable[str], place: Place) -> None:
    if unknown := [name for name in raw if name not in known]:
        raise wrong(place, f"`{unknown[0]}` is not known here; known are {', '.join(known)}")


def tuple_of(raw: Any, place: Place) -> Tuple:
    """Return the tuple that a mapping says: `user`, `relation`, `object`, and perhaps `condition`."""
    if isinstance(raw, dict) and isinstance(raw.get("key"), dict):
        _check_tuple_keys(raw, ("key", "timestamp"), place)
        raw = raw["key"]  # as tuples are when they are read from a server
    if not isinstance(raw, dict):
        raise wrong(place, "expected a tuple: `user`, `relation` and `object`")
    _check_tuple_keys(raw, ("user", "relation", "object", "condition"), place)
    values = {name: _required_text(raw, name, place) for name in ("user", "relation", "object")}
    condition, context = _condition(raw.get("condition"), place)
    return Tuple(
        thing_of(values["object"], place), values["relation"], who_of(values["user"], place), condition, context,
        place=place,
    )  # fmt: skip


def _condition(raw: Any, place: Place) -> tuple[str | None, ContextValues]:
    if raw is None:
        return None, ()
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise wrong(place, "a condition is `name`, and perhaps `context`")
    _check_tuple_keys(raw, ("name", "context"), place)
    return raw["name"], values_of(raw.get("context"), place)


def values_of(raw: Any, place: Place) -> ContextValues:
    """Return the values of a context, by name."""
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        raise wrong(place, "a context is a mapping of names to values")
    return tuple((str(name), value) for name, value in raw.items())


def _of_row(row: dict[str, str], place: Place) -> Tuple:
    missing = [name for name in _COLUMNS if not row.get(name)]
    if missing:
        raise wrong(place, f"no {' and no '.join(missing)}")
    if row.get("condition_context") and not row.get("condition_name"):
        raise wrong(place, "a `condition_context`, but no `condition_name`")
    who = Who(row["user_type"], row["user_id"], row.get("user_relation") or None)
    thing = Thing(row["object_type"], row["object_id"])
    return Tuple(thing, row["relation"], who, row.get("condition_name") or None, _context_of(row, place), place=place)


def _context_of(row: dict[str, str], place: Place) -> ContextValues:
    text = row.get("condition_context")
    try:
        return values_of(value_of_json(text) if text else None, place)
    except ValueError as reason:
        raise wrong(place, f"the context is not JSON: {reason}") from None


def thing_of(text: str, place: Place) -> Thing:
    type_name, colon, name = text.partition(":")
    if not (type_name and colon and name):
        raise wrong(place, f"`{text}` is no object; write it as `document:plan`")
    return Thing(type_name, name)


def who_of(text: str, place: Place) -> Who:
    thing = thing_of(text, place)
    name, mark, relation = thing.id.rpartition("#")
    return Who(thing.type, name, relation) if mark and name and relation else Who(thing.type, thing.id)


def _required_text(raw: dict[str, Any], name: str, place: Place) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise wrong(place, f"a tuple needs `{name}`, a text")
    return value


# ---- Store files: a model, tuples, and tests of them, as OpenFGA's command line runs them -------------------------

_KNOWN = {"name", "model", "model_file", "tuples", "tuple_file", "tuple_files", "tests"}
_KNOWN_OF_TEST = {
    "name", "description", "tuples", "tuple_file", "tuple_files", "check", "list_objects", "list_users",
}  # fmt: skip
_KNOWN_OF_CHECK = {"user", "users", "object", "objects", "context", "assertions"}
_KNOWN_OF_OBJECTS = {"user", "type", "context", "assertions"}
_KNOWN_OF_USERS = {"object", "user_filter", "context", "assertions"}

ReadFile = Callable[[str], Iterator[Tuple]]


@dataclass(frozen=True, slots=True)
class Store:
    """`model` is its text, with the place where it begins; or else `model_file` names the file."""

    model: str | None
    model_at: Place
    model_file: str | None
    tuples: tuple[Tuple, ...]
    scenarios: tuple[Scenario, ...]


def read_store(text: str, file: str, read_tuples: ReadFile) -> Store:
    """Read a store file; `read_tuples` reads the files of tuples that it names."""
    raw = read_yaml(text, file)
    if not isinstance(raw, Located):
        raise wrong(Place(file, 1), "expected a store: a mapping with `model`, `tuples` and `tests`")
    _check_keys(raw, _KNOWN)
    tests = [_test(each, raw.place, read_tuples) for each in _listed(raw, "tests")]
    return Store(
        _text(raw, "model"), raw.place_of("model"), _text(raw, "model_file"), _tuples(raw, read_tuples), tuple(tests)
    )


def _test(raw: Any, place: Place, read_tuples: ReadFile) -> Scenario:
    raw = _mapping(raw, place, "a test", _KNOWN_OF_TEST)
    asked: list[ExpectedCheck | ObjectList | SubjectList] = [
        *(one for each in _listed(raw, "check") for one in _checks(each, raw.place)),
        *(one for each in _listed(raw, "list_objects") for one in _objects(each, raw.place)),
        *(one for each in _listed(raw, "list_users") for one in _users(each, raw.place)),
    ]
    name = str(raw.get("name") or "test")
    return Scenario(name, _tuples(raw, read_tuples), tuple(asked), raw.place)


def _checks(raw: Any, place: Place) -> Iterator[ExpectedCheck]:
    raw = _mapping(raw, place, "a check", _KNOWN_OF_CHECK)
    context = values_of(raw.get("context"), raw.place)
    for user in _one_or_more(raw, "user", "users"):
        for thing in _one_or_more(raw, "object", "objects"):
            for relation, expected in _assertions(raw):
                if not isinstance(expected, bool):
                    raise wrong(raw.place, f"`{relation}` is to be true or false")
                who = who_of(user, raw.place)
                yield ExpectedCheck(who, relation, thing_of(thing, raw.place), expected, context, raw.place)


def _objects(raw: Any, place: Place) -> Iterator[ObjectList]:
    raw = _mapping(raw, place, "a list of objects", _KNOWN_OF_OBJECTS)
    context = values_of(raw.get("context"), raw.place)
    for relation, expected in _assertions(raw):
        things = [thing_of(str(each), raw.place) for each in expected or ()]
        type_name = str(raw.get("type") or "")
        for each in things:
            if each.type != type_name:
                raise wrong(raw.place, f"{each} is no {type_name}")
        who = who_of(str(raw.get("user") or ""), raw.place)
        yield ObjectList(who, relation, type_name, tuple(each.id for each in things), context, raw.place)


def _users(raw: Any, place: Place) -> Iterator[SubjectList]:
    raw = _mapping(raw, place, "a list of users", _KNOWN_OF_USERS)
    context = values_of(raw.get("context"), raw.place)
    thing = thing_of(str(raw.get("object") or ""), raw.place)
    kinds = [_mapping(each, raw.place, "a filter", {"type", "relation"}) for each in _listed(raw, "user_filter")]
    for relation, expected in _assertions(raw):
        listed = expected.get("users") if isinstance(expected, dict) else expected
        users = [who_of(str(each), raw.place) for each in listed or ()]
        for kind in kinds:
            type_name, of = str(kind.get("type") or ""), kind.get("relation") or None
            mine = tuple(each for each in users if (each.type, each.relation) == (type_name, of))
            yield SubjectList(thing, relation, type_name, of, mine, context, raw.place)


# ---- what is in mappings ---------------------------------------------------------------------------------------------


def _tuples(raw: Located, read_tuples: ReadFile) -> tuple[Tuple, ...]:
    files = [raw["tuple_file"]] if raw.get("tuple_file") else []
    files += raw.get("tuple_files") or []
    own = tuples_of(raw.get("tuples"), raw.place_of("tuples"))
    return (*own, *(each for name in files for each in read_tuples(str(name))))


def _assertions(raw: Located) -> Iterator[tuple[str, Any]]:
    found = raw.get("assertions")
    if not isinstance(found, dict):
        raise wrong(raw.place, "expected `assertions`, a mapping of relations to what is expected")
    yield from found.items()


def _one_or_more(raw: Located, one: str, more: str) -> list[str]:
    found = [raw[one]] if raw.get(one) else raw.get(more)
    if not isinstance(found, list) or not found:
        raise wrong(raw.place, f"expected `{one}` or `{more}`")
    return [str(each) for each in found]


def _listed(raw: Located, key: str) -> list[Any]:
    found = raw.get(key) or []
    if not isinstance(found, list):
        raise wrong(raw.place_of(key), f"`{key}` is to be a list")
    return found


def _text(raw: Located, key: str) -> str | None:
    found = raw.get(key)
    if found is not None and not isinstance(found, str):
        raise wrong(raw.place_of(key), f"`{key}` is to be a text")
    return found or None


def _mapping(raw: Any, place: Place, what: str, known: set[str]) -> Located:
    if not isinstance(raw, Located):
        raise wrong(place, f"expected {what}: a mapping")
    _check_keys(raw, known)
    return raw


def _check_keys(raw: Located, known: set[str]) -> None:
    """Refuse what is not known: left out in silence, it could be a test that says nothing."""
    faults = [Fault(raw.place_of(key), f"`{key}` is not known here") for key in raw if key not in known]
    if faults:
        raise ImportRejected(faults)


# ---- Files of OpenFGA, by the ends of their names, as one import --------------------------------------------------

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
            tuples += _tuples_of_file(name)
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
    return read_store(text_of_file(name), name, lambda each: _tuples_of_file(_beside(name, each)))


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


def _tuples_of_file(name: str) -> Iterator[Tuple]:
    return read_tuples(text_of_file(name), name)


def _beside(name: str, other: str) -> str:
    path = neighbour_file(name, other)
    if path is None:
        advice = "a file may name those below its own folder; name others in the command, or copy them there"
        raise wrong(Place(name), f"`{other}` lies elsewhere; {advice}")
    return str(path)
