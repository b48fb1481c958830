"""Store files: a model, tuples, and tests of them, as OpenFGA's command line runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from authz_project.importers.located_data import Located, read_yaml
from authz_project.importers.model import (
    Check,
    ObjectList,
    Place,
    Scenario,
    SubjectList,
    Tuple,
)
from authz_project.importers.openfga.tuples import thing_of, tuples_of, values_of, who_of
from authz_project.importers.report import Fault, ImportRejected, wrong

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
    asked: list[Check | ObjectList | SubjectList] = [
        *(one for each in _listed(raw, "check") for one in _checks(each, raw.place)),
        *(one for each in _listed(raw, "list_objects") for one in _objects(each, raw.place)),
        *(one for each in _listed(raw, "list_users") for one in _users(each, raw.place)),
    ]
    name = str(raw.get("name") or "test")
    return Scenario(name, _tuples(raw, read_tuples), tuple(asked), raw.place)


def _checks(raw: Any, place: Place) -> Iterator[Check]:
    raw = _mapping(raw, place, "a check", _KNOWN_OF_CHECK)
    context = values_of(raw.get("context"), raw.place)
    for user in _one_or_more(raw, "user", "users"):
        for thing in _one_or_more(raw, "object", "objects"):
            for relation, expected in _assertions(raw):
                if not isinstance(expected, bool):
                    raise wrong(raw.place, f"`{relation}` is to be true or false")
                who = who_of(user, raw.place)
                yield Check(who, relation, thing_of(thing, raw.place), expected, context, raw.place)


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
