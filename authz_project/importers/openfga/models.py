"""Read OpenFGA models: the modelling language, JSON, and modules in several files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from authz_project.importers import model
from authz_project.importers.cel import test_of
from authz_project.importers.files import Comments, Grammar, Located, NotParsed, SyntaxTree, position_in, read_yaml
from authz_project.importers.model import (
    Arrow,
    Computed,
    Direct,
    Exclusion,
    Expression,
    Fault,
    ImportRejected,
    Intersection,
    Model,
    ModelCondition,
    ModelParameter,
    ModelRelation,
    Place,
    Subject,
    Type,
    Union,
    wrong,
)

# ---- The part of a model that one file has, in whichever notation -------------------------------------------------

_SCHEMAS = ("1.1", "1.2")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """The part of a model that one file has; `extensions` add relations to types of others."""

    types: tuple[Type, ...]
    extensions: tuple[Type, ...]
    conditions: tuple[ModelCondition, ...]
    comment: tuple[str, ...]


def check_schema(version: object, place: Place) -> None:
    """Refuse a version of the language that is not known here."""
    if version not in _SCHEMAS:
        raise wrong(place, f"schema {version} is not known; {' and '.join(_SCHEMAS)} are")


def condition_of(
    name: str, parameters: tuple[ModelParameter, ...], body: str, at: Place, comment: tuple[str, ...], place: Place
) -> ModelCondition:
    """Return the condition that an expression says, which begins `at` a place."""

    def place_of(offset: int) -> Place:
        line, column = position_in(body, offset)
        return Place(at.file, at.line + line - 1, column + at.column - 1 if line == 1 else column)

    declared = ", ".join(f"{each.name}: {each.type}" for each in parameters)
    written = " ".join(line.strip() for line in body.split("\n") if line.strip())
    text = f"condition {name}({declared}) {{ {written} }}"
    try:
        test = test_of(body, parameters, place_of)
        return ModelCondition(name, parameters, test, text, comment, place, needs_every_value=True)
    except NotParsed as reason:
        raise wrong(place_of(reason.at), f"condition {name}: {reason.message}") from None


# ---- The modelling language, schema 1.1 and the modules of 1.2 ----------------------------------------------------

_GRAMMAR = Grammar(
    r"""
    start: _header (type | extension | condition)*
    _header: "model" "schema" NAME | "module" NAME
    extension: "extend" type
    type: "type" NAME ("relations" relation*)?
    relation: "define" NAME ":" _expression
    _expression: part | union | intersection | exclusion
    union: part ("or" part)+
    intersection: part ("and" part)+
    exclusion: part "but" "not" part
    ?part: NAME -> computed
        | NAME "from" NAME -> arrow
        | "[" subject ("," subject)* "]" -> direct
        | "(" _expression ")"
    subject: NAME [userset | everybody] ["with" NAME]
    userset: "#" NAME
    everybody: ":" "*"
    condition: "condition" NAME "(" parameter ("," parameter)* ")" body
    parameter: NAME ":" NAME ["<" NAME ">"]
    !body: "{" _inside* "}"
    !_inside: TEXT | OTHER | "{" _inside* "}"

    NAME: /[A-Za-z0-9_]([A-Za-z0-9_.\/-]*[A-Za-z0-9_-])?/
    TEXT: /"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'|\/\/[^\n]*/
    OTHER.-1: /[^\s{}"'\/]+|["'\/]/
    %ignore /\s+/
    """,
    {"NAME": "a name", "TEXT": "an expression", "OTHER": "an expression"},
    in_names=r"[\w./-]",
)
_HASHED = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|(?<!\S)\#(?P<comment>[^\n]*)""")


def read_dsl(text: str, file: str) -> ModelPart:
    """Read a model or a module; ImportRejected says where it is wrong."""
    return _ModelReader(text.replace("\r\n", "\n").replace("\r", "\n"), file).read()


class _ModelReader:
    """Makes a model of the tree, from the start to the end, so that comments stay with what they are about."""

    def __init__(self, text: str, file: str):
        self.text, self.file = _HASHED.sub(_blanked, text), file
        found = (each for each in _HASHED.finditer(text) if each["comment"] is not None)
        self.comments = Comments(self.text, ((*each.span(), [each["comment"].strip()]) for each in found))

    def read(self) -> ModelPart:
        try:
            tree = _GRAMMAR.parse(self.text)
        except NotParsed as reason:
            message = reason.message
            if reason.found in ("OR", "AND", "BUT"):
                message = f"expected parentheses around what belongs together{message[message.rfind(','):]}"
            raise wrong(Place(self.file, *position_in(self.text, reason.at)), message) from None
        name, *declared = tree.children
        comment = self.comments.until(name.start_pos)
        if self.text[: name.start_pos].split()[0] == "model":
            check_schema(str(name), self.place(name))
        read: dict[str, list[Any]] = {"type": [], "extension": [], "condition": []}
        for each in declared:
            read[each.data].append(self.condition(each) if each.data == "condition" else self.type(each))
        return ModelPart(*map(tuple, read.values()), comment)

    def place(self, token: SyntaxTree) -> Place:
        return Place(self.file, token.line, token.column)

    def type(self, tree: SyntaxTree) -> Type:
        comment = self.comments.until(tree.meta.start_pos)
        if tree.data == "extension":
            (tree,) = tree.children
        name, *relations = tree.children
        comment += self.comments.beside(name.end_pos)
        if relations:  # what stands before `relations`
            comment += self.comments.until(self.text.index("relations", name.end_pos))
        return Type(str(name), tuple(map(self.relation, relations)), comment, self.place(name))

    def relation(self, tree: SyntaxTree) -> ModelRelation:
        name, definition = tree.children
        comment = self.comments.until(tree.meta.start_pos) + self.comments.beside(tree.meta.end_pos)
        named = (each for each in tree.iter_subtrees_topdown() if each.data == "subject")
        subjects = tuple(dict.fromkeys(map(self.subject, named)))
        expression = self.expression(definition)
        return ModelRelation(str(name), expression, subjects, not subjects, comment, self.place(name))

    def expression(self, tree: SyntaxTree) -> Expression:
        match tree.data, tree.children:
            case "computed", [name]:
                return Computed(str(name), self.place(name))
            case "arrow", [name, tupleset]:
                return Arrow(str(tupleset), str(name), place=self.place(name))
            case "union", parts:
                return Union(tuple(map(self.expression, parts)))
            case "intersection", parts:
                return Intersection(tuple(map(self.expression, parts)))
            case "exclusion", [base, subtract]:
                return Exclusion(self.expression(base), self.expression(subtract))
        return Direct(self.place(tree.meta))

    def subject(self, tree: SyntaxTree) -> Subject:
        name, kind, condition = tree.children
        relation = str(kind.children[0]) if kind and kind.children else None
        given = str(condition) if condition else None
        return Subject(str(name), relation, bool(kind) and relation is None, given, place=self.place(name))

    def condition(self, tree: SyntaxTree) -> ModelCondition:
        name, *parameters, body = tree.children
        first, last = body.children[0], body.children[-1]
        comment = self.comments.until(first.start_pos)
        comment += self.comments.until(last.start_pos) + self.comments.beside(last.end_pos)
        start = Place(self.file, first.line, first.column + 1)
        text = self.text[first.end_pos : last.start_pos]
        return condition_of(str(name), tuple(map(self.parameter, parameters)), text, start, comment, self.place(name))

    def parameter(self, tree: SyntaxTree) -> ModelParameter:
        name, kind, inner = tree.children
        return ModelParameter(str(name), f"{kind}<{inner}>" if inner else str(kind), self.place(name))


def _blanked(found: re.Match[str]) -> str:
    """Put blanks in the place of a comment that `#` begins; texts, and comments of the expression, stay."""
    return found[0] if found["comment"] is None else " " * len(found[0])


# ---- The same model as the interface has it: JSON with `type_definitions` -----------------------------------------

_DEEPEST_USERSET = 40


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


def _relation(name: str, raw: Located, about: Located) -> ModelRelation:
    relations = raw["relations"]
    place = relations.place_of(name)
    listed = _mapping(about, name).get("directly_related_user_types") or ()
    subjects = tuple(dict.fromkeys(_subject(each, place) for each in listed))
    expression = _expression(relations[name], place, 0)
    return ModelRelation(name, expression, subjects, not subjects, (), place)


def _subject(raw: Any, place: Place) -> Subject:
    if not isinstance(raw, Located) or not isinstance(raw.get("type"), str):
        raise wrong(place, "expected a kind of subject: a mapping with `type`")
    _check_keys(raw, "type", "relation", "wildcard", "condition")
    wildcard = raw.get("wildcard") is not None
    if wildcard and raw.get("relation"):
        raise wrong(raw.place, "a kind of subject has `relation` or `wildcard`, not both")
    return Subject(raw["type"], raw.get("relation") or None, wildcard, raw.get("condition") or None, place=raw.place)


def _expression(raw: Any, place: Place, depth: int) -> Expression:
    if not isinstance(raw, Located) or depth > _DEEPEST_USERSET:
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


def _condition(name: str, raw: Any, conditions: Located) -> ModelCondition:
    place = conditions.place_of(name)
    if not isinstance(raw, Located) or not isinstance(raw.get("expression"), str):
        raise wrong(place, "expected a condition: a mapping with `expression`")
    _check_keys(raw, "name", "expression", "parameters", "metadata")
    parameters = tuple(
        ModelParameter(each, _type_name(about, place), place) for each, about in _mapping(raw, "parameters").items()
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


# ---- A model, whichever way it is written: the language, JSON, or modules in several files ------------------------


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
    whole = Model(tuple(types.values()), conditions, comment)
    model.check_model(whole)
    return whole


def _extended(type_: Type, by: Type) -> Type:
    return replace(type_, relations=type_.relations + by.relations, comment=type_.comment + by.comment)
