"""Tuples: JSON, lines of JSON, YAML and CSV, as OpenFGA's command line reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

import orjson

from authz_project.importers.marked import Marked, items_of_json, read_yaml, rows_of_csv
from authz_project.importers.model import Place, Thing, Tuple, Values, Who
from authz_project.importers.report import Fault, ImportRejected

_LISTS = ("tuples", "tuple_keys", "writes")  # what a list may stand under
_COLUMNS = ("user_type", "user_id", "relation", "object_type", "object_id")


def read_tuples(text: str, file: str) -> Iterator[Tuple]:
    """The tuples of a file, by the end of its name; ImportRejected names the first that is none."""
    match PurePath(file).suffix.lower():
        case ".csv":
            return (_of_row(row, place) for place, row in rows_of_csv(text, file))
        case ".json" | ".jsonl":
            return (tuple_of(raw, place) for place, raw in _of_json(text, file))
        case _:
            return tuples_of(read_yaml(text, file), Place(file, 1))


def tuples_of(raw: Any, place: Place) -> Iterator[Tuple]:
    """The tuples of a list, or of a mapping that has one."""
    listed = raw
    if isinstance(raw, dict):
        listed = next((raw[name] for name in _LISTS if name in raw), raw)
        listed = listed.get("tuple_keys", listed) if isinstance(listed, dict) else listed
    if listed is None:
        return
    if not isinstance(listed, list):
        raise _wrong(place, "expected a list of tuples")
    for each in listed:
        yield tuple_of(each, each.place if isinstance(each, Marked) else place)


def _of_json(text: str, file: str) -> Iterator[tuple[Place, Any]]:
    for place, value in items_of_json(text, file):
        named = isinstance(value, dict) and next((name for name in _LISTS if name in value), None)
        if named:
            yield from ((place, each) for each in _listed(value[named], place))
        else:
            yield place, value


def _listed(raw: Any, place: Place) -> Iterable[Any]:
    listed = raw.get("tuple_keys") if isinstance(raw, dict) else raw
    if not isinstance(listed, list):
        raise _wrong(place, "expected a list of tuples")
    return listed


def tuple_of(raw: Any, place: Place) -> Tuple:
    """The tuple that a mapping says: `user`, `relation`, `object`, and perhaps `condition`."""
    if isinstance(raw, dict) and isinstance(raw.get("key"), dict):
        raw = raw["key"]  # as tuples are when they are read from a server
    if not isinstance(raw, dict):
        raise _wrong(place, "expected a tuple: `user`, `relation` and `object`")
    values = {name: _text(raw, name, place) for name in ("user", "relation", "object")}
    condition, context = _condition(raw.get("condition"), place)
    return Tuple(
        thing_of(values["object"], place), values["relation"], who_of(values["user"], place), condition, context,
        place=place,
    )  # fmt: skip


def _condition(raw: Any, place: Place) -> tuple[str | None, Values]:
    if not raw:
        return None, ()
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise _wrong(place, "a condition is `name`, and perhaps `context`")
    return raw["name"], values_of(raw.get("context"), place)


def values_of(raw: Any, place: Place) -> Values:
    """The values of a context, by name."""
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        raise _wrong(place, "a context is a mapping of names to values")
    return tuple((str(name), value) for name, value in raw.items())


def _of_row(row: dict[str, str], place: Place) -> Tuple:
    missing = [name for name in _COLUMNS if not row.get(name)]
    if missing:
        raise _wrong(place, f"no {' and no '.join(missing)}; a first line names the columns {', '.join(_COLUMNS)}")
    who = Who(row["user_type"], row["user_id"], row.get("user_relation") or None)
    thing = Thing(row["object_type"], row["object_id"])
    return Tuple(thing, row["relation"], who, row.get("condition_name") or None, _context_of(row, place), place=place)


def _context_of(row: dict[str, str], place: Place) -> Values:
    text = row.get("condition_context")
    try:
        return values_of(orjson.loads(text) if text else None, place)
    except orjson.JSONDecodeError as reason:
        raise _wrong(place, f"the context is not JSON: {reason}") from None


def thing_of(text: str, place: Place) -> Thing:
    type_name, colon, name = text.partition(":")
    if not (type_name and colon and name):
        raise _wrong(place, f"`{text}` is no object; write it as `document:plan`")
    return Thing(type_name, name)


def who_of(text: str, place: Place) -> Who:
    thing = thing_of(text, place)
    name, mark, relation = thing.id.rpartition("#")
    return Who(thing.type, name, relation) if mark and name and relation else Who(thing.type, thing.id)


def _text(raw: dict[str, Any], name: str, place: Place) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(place, f"a tuple needs `{name}`, a text")
    return value


def _wrong(place: Place, message: str) -> ImportRejected:
    return ImportRejected([Fault(place, message)])
