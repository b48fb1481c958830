"""Tuples: JSON, lines of JSON, YAML and CSV, as OpenFGA's command line reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from authz_project.importers.located_data import Located, items_of_json, read_yaml, rows_of_csv, value_of_json
from authz_project.importers.model import Place, Thing, Tuple, Values, Who
from authz_project.importers.report import wrong

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
    listed = _listed(raw, place) if isinstance(raw, dict) else raw
    if listed is None:
        return
    if not isinstance(listed, list):
        raise wrong(place, "expected a list of tuples")
    for each in listed:
        yield tuple_of(each, each.place if isinstance(each, Located) else place)


def _of_json(text: str, file: str) -> Iterator[tuple[Place, Any]]:
    for place, value in items_of_json(text, file):
        if isinstance(value, dict) and any(name in value for name in _LISTS):
            yield from ((place, each) for each in _listed(value, place) or ())
        else:
            yield place, value


def _listed(raw: dict[str, Any], place: Place) -> list[Any] | None:
    """Return the list that a mapping has, perhaps in another mapping; nothing beside it is left out in silence."""
    names = [name for name in _LISTS if name in raw]
    if len(names) != 1:
        raise wrong(place, f"expected a list of tuples, under one of {', '.join(_LISTS)}")
    _check_keys(raw, (*names, *_BESIDE), place)
    if raw.get("deletes"):
        raise wrong(place, "`deletes` is not carried out; take these tuples away, and leave it out")
    if raw.get("continuation_token"):
        raise wrong(place, "`continuation_token` says that there are more tuples; read them all, and leave it out")
    listed = raw[names[0]]
    if isinstance(listed, dict):
        return _listed(listed, place)
    if listed is not None and not isinstance(listed, list):
        raise wrong(place, "expected a list of tuples")
    return listed


def _check_keys(raw: dict[str, Any], known: Iterable[str], place: Place) -> None:
    if unknown := [name for name in raw if name not in known]:
        raise wrong(place, f"`{unknown[0]}` is not known here; known are {', '.join(known)}")


def tuple_of(raw: Any, place: Place) -> Tuple:
    """Return the tuple that a mapping says: `user`, `relation`, `object`, and perhaps `condition`."""
    if isinstance(raw, dict) and isinstance(raw.get("key"), dict):
        _check_keys(raw, ("key", "timestamp"), place)
        raw = raw["key"]  # as tuples are when they are read from a server
    if not isinstance(raw, dict):
        raise wrong(place, "expected a tuple: `user`, `relation` and `object`")
    _check_keys(raw, ("user", "relation", "object", "condition"), place)
    values = {name: _text(raw, name, place) for name in ("user", "relation", "object")}
    condition, context = _condition(raw.get("condition"), place)
    return Tuple(
        thing_of(values["object"], place), values["relation"], who_of(values["user"], place), condition, context,
        place=place,
    )  # fmt: skip


def _condition(raw: Any, place: Place) -> tuple[str | None, Values]:
    if raw is None:
        return None, ()
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise wrong(place, "a condition is `name`, and perhaps `context`")
    _check_keys(raw, ("name", "context"), place)
    return raw["name"], values_of(raw.get("context"), place)


def values_of(raw: Any, place: Place) -> Values:
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


def _context_of(row: dict[str, str], place: Place) -> Values:
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


def _text(raw: dict[str, Any], name: str, place: Place) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise wrong(place, f"a tuple needs `{name}`, a text")
    return value
