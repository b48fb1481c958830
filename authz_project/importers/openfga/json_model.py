"""The same model as the interface has it: JSON with `type_definitions`."""

from __future__ import annotations

from typing import Any

from authz_project.importers.located_data import Located, read_yaml
from authz_project.importers.model import (
    Arrow,
    Computed,
    Condition,
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Parameter,
    Place,
    Relation,
    Subject,
    Type,
    Union,
)
from authz_project.importers.openfga.model_parts import ModelPart, check_schema, condition_of
from authz_project.importers.report import Fault, ImportRejected, wrong

_MOST_DEEP = 40


def read_json_model(text: str, file: str) -> ModelPart:
    """Read the model; ImportRejected says where it is wrong."""
    raw = read_yaml(_without_tabs(text), file)  # which JSON is, and which knows its lines
    if isinstance(raw, Located) and isinstance(raw.get("authorization_model"), Located):
        raw = raw["authorization_model"]
    if not isinstance(raw, Located) or "type_definitions" not in raw:
        raise wrong(Place(file, 1), "expected a model: a mapping with `type_definitions`")
    _check_keys(raw, "id", "schema_version", "type_definitions", "conditions")
    check_schema(raw.get("schema_version"), raw.place_of("schema_version"))
    types = tuple(_type(each, raw.place) for each in raw["type_definitions"] or ())
    conditions = _mapping(raw, "conditions")
    return ModelPart(types, (), tuple(_condition(name, each, conditions) for name, each in conditions.items()), ())


def _without_tabs(text: str) -> str:
    """Replace tabs between JSON's signs, which YAML does not allow; those in texts are written as `\\t`."""
    return text.replace("\t", " ")


def _type(raw: Any, place: Place) -> Type:
    if not isinstance(raw, Located) or not isinstance(raw.get("type"), str):
        raise wrong(place, "expected a type: a mapping with `type`")
    _check_keys(raw, "type", "relations", "metadata")
    relations = _mapping(raw, "relations")
    about = _mapping(_mapping(raw, "metadata"), "relations")
    if unknown := [name for name in about if name not in relations]:
        raise wrong(about.place_of(unknown[0]), f"there is no relation {unknown[0]}")
    return Type(raw["type"], tuple(_relation(name, raw, about) for name in relations), (), raw.place)


def _relation(name: str, raw: Located, about: Located) -> Relation:
    relations = raw["relations"]
    place = relations.place_of(name)
    listed = _mapping(about, name).get("directly_related_user_types") or ()
    subjects = tuple(dict.fromkeys(_subject(each, place) for each in listed))
    expression = _expression(relations[name], place, 0)
    return Relation(name, expression, subjects, not subjects, (), place)


def _subject(raw: Any, place: Place) -> Subject:
    if not isinstance(raw, Located) or not isinstance(raw.get("type"), str):
        raise wrong(place, "expected a kind of subject: a mapping with `type`")
    _check_keys(raw, "type", "relation", "wildcard", "condition")
    wildcard = raw.get("wildcard") is not None
    if wildcard and raw.get("relation"):
        raise wrong(raw.place, "a kind of subject has `relation` or `wildcard`, not both")
    return Subject(raw["type"], raw.get("relation") or None, wildcard, raw.get("condition") or None, place=raw.place)


def _expression(raw: Any, place: Place, depth: int) -> Expression:
    if not isinstance(raw, Located) or depth > _MOST_DEEP:
        raise wrong(place, "expected what a relation is: `this`, `computedUserset`, `tupleToUserset`, `union` …")
    place = raw.place
    given = [(name, value) for name, value in raw.items() if value is not None]
    if len(given) != 1:
        raise wrong(place, f"expected one thing that a relation is; found {', '.join(dict(given)) or 'none'}")
    match given[0]:
        case ("this", Located() as nothing):
            _check_keys(nothing)
            return Direct(place)
        case ("computedUserset" | "computed_userset", Located() as computed):
            return Computed(_relation_of(computed, place), place)
        case ("tupleToUserset" | "tuple_to_userset", Located() as arrow):
            _check_keys(arrow, "tupleset", "computedUserset", "computed_userset")
            leads = arrow.get("computedUserset") or arrow.get("computed_userset")
            return Arrow(_relation_of(arrow.get("tupleset"), place), _relation_of(leads, place), place=place)
        case ("union", Located() as parts):
            return Union(_parts(parts, place, depth))
        case ("intersection", Located() as parts):
            return Intersection(_parts(parts, place, depth))
        case ("difference", Located() as parts):
            _check_keys(parts, "base", "subtract")
            base, subtract = (_expression(parts.get(name), place, depth + 1) for name in ("base", "subtract"))
            return Exclusion(base, subtract)
    raise wrong(place, f"`{given[0][0]}` is not known, or not what it should be")


def _relation_of(raw: Any, place: Place) -> str:
    """Return the relation that is named, of the object itself: `object` may be there, and is empty."""
    if isinstance(raw, Located):
        _check_keys(raw, "relation", "object")
        if raw.get("object"):
            raise wrong(raw.place_of("object"), "an object of its own is not known here")
    return _name(raw, "relation", place)


def _parts(raw: Located, place: Place, depth: int) -> tuple[Expression, ...]:
    """Return the parts, at least one: all of nothing would be everybody."""
    _check_keys(raw, "child")
    found = raw.get("child")
    if not isinstance(found, list) or not found:
        raise wrong(raw.place, "expected `child`, a list of at least one")
    return tuple(_expression(each, place, depth + 1) for each in found)


def _check_keys(raw: Located, *known: str) -> None:
    """Refuse what is not known: left out in silence, it could be what keeps somebody out."""
    faults = [Fault(raw.place_of(key), f"`{key}` is not known here") for key in raw if key not in known]
    if faults:
        raise ImportRejected(faults)


def _condition(name: str, raw: Any, conditions: Located) -> Condition:
    place = conditions.place_of(name)
    if not isinstance(raw, Located) or not isinstance(raw.get("expression"), str):
        raise wrong(place, "expected a condition: a mapping with `expression`")
    _check_keys(raw, "name", "expression", "parameters", "metadata")
    parameters = tuple(
        Parameter(each, _type_name(about, place), place) for each, about in _mapping(raw, "parameters").items()
    )
    return condition_of(name, parameters, raw["expression"], raw.place_of("expression"), (), place)


def _type_name(raw: Any, place: Place) -> str:
    """Return the name of a type: `TYPE_NAME_LIST` of `TYPE_NAME_STRING` is `list<string>`."""
    name = _name(raw if isinstance(raw, dict) else {}, "type_name", place).removeprefix("TYPE_NAME_").lower()
    inner = [_type_name(each, place) for each in raw.get("generic_types") or ()]
    return f"{name}<{inner[0]}>" if inner else name


def _mapping(raw: Located, key: str) -> Located:
    """Return what stands under a key; an empty one where nothing does."""
    found = raw.get(key)
    if found is not None and not isinstance(found, Located):
        raise wrong(raw.place_of(key), f"`{key}` is to be a mapping")
    return Located(raw.place) if found is None else found


def _name(raw: Any, key: str, place: Place) -> str:
    value = raw.get(key) if isinstance(raw, dict) else None
    if not isinstance(value, str) or not value:
        raise wrong(place, f"expected `{key}`, a text")
    return value
