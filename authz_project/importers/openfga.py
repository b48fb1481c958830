"""Read OpenFGA models (modelling language, JSON, modules), tuples and store files."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from authz_project.importers import files, ir
from authz_project.importers.language import FILE, LanguageReader, parsed, path_of
from policy.files import text_of_file
from policy.language.source import Source

# ---- one file's part of a model, in either notation ---------------------------------------------------------------

_SCHEMAS = ("1.1", "1.2")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One file's part of a model; `extensions` add relations to types from other files."""

    types: tuple[ir.Type, ...]
    extensions: tuple[ir.Type, ...]
    conditions: tuple[ir.ModelCondition, ...]
    comment: tuple[str, ...]


def check_schema(version: object, place: ir.Place) -> None:
    """Reject an unsupported version of the language."""
    if version not in _SCHEMAS:
        raise ir.wrong(place, f"schema {version} is not supported; use {' or '.join(_SCHEMAS)}")


# ---- the modelling language: schema 1.1, and modules of schema 1.2 ------------------------------------------------

_GRAMMAR = files.Grammar(
    r"""
    start: _header (type | extension | condition)*
    _header: "model" "schema" NAME | "module" NAME
    extension: "extend" type
    type: "type" path ("relations" relation*)?
    relation: "define" NAME ":" _expression
    _expression: part | union | intersection | exclusion
    union: part ("or" part)+
    intersection: part ("and" part)+
    exclusion: part "but" "not" part
    ?part: NAME -> computed
        | NAME "from" NAME -> from
        | "[" subject ("," subject)* "]" -> direct
        | "(" _expression ")"
    subject: path [userset | everybody] ["with" NAME]
    path: NAME
    userset: "#" NAME
    everybody: ":" "*"
    condition: "condition" path "(" parameter ("," parameter)* ")" body
    parameter: NAME ":" kind
    kind: NAME ("<" kind ">")?
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
    """Read a model or a module. Raise ImportRejected with the place of an error."""
    return _ModelReader(Source(text.replace("\r\n", "\n").replace("\r", "\n"), file)).read()


class _ModelReader(LanguageReader):
    def read(self) -> ModelPart:
        written = self.source.text
        self.source = Source(_HASHED.sub(_blanked, written), self.source.filename)
        tree = self.tree()
        name, *declared = tree.children
        hashed = (each for each in _HASHED.finditer(written) if each["comment"] is not None)
        found = ((each.start(), [each["comment"].strip()]) for each in hashed)
        self.place_comments(tree, found, [name.start_pos])
        if self.source.text[: name.start_pos].split()[0] == "model":
            check_schema(str(name), self.place(name))
        read: dict[str, list[Any]] = {"type": [], "extension": [], "condition": []}
        for each in declared:
            read[each.data].append(self.condition(each) if each.data == "condition" else self.type(each))
        return ModelPart(tuple(read["type"]), tuple(read["extension"]), tuple(read["condition"]), self.comment(FILE))

    def tree(self) -> files.SyntaxTree:
        try:
            return _GRAMMAR.parse(self.source.text)
        except files.NotParsed as reason:
            message = reason.message
            if reason.found in ("OR", "AND", "BUT"):
                message = f"add parentheses: `or`, `and` and `but not` cannot be mixed{message[message.rfind(',') :]}"
            raise ir.wrong(files.place_in(self.source, reason.at), message) from None

    def type(self, tree: files.SyntaxTree) -> ir.Type:
        if tree.data == "extension":
            (tree,) = tree.children
        name, *relations = tree.children
        comment = self.comment(tree.meta.start_pos)
        return ir.Type(path_of(name), tuple(map(self.relation, relations)), comment, self.place(name))

    def relation(self, tree: files.SyntaxTree) -> ir.ModelRelation:
        name, definition = tree.children
        named = (each for each in tree.iter_subtrees_topdown() if each.data == "subject")
        subjects = tuple(
            dict.fromkeys(self.subject(each, each.children[2] and str(each.children[2])) for each in named)
        )
        expression, comment = self.expression(definition), self.comment(tree.meta.start_pos)
        return ir.ModelRelation(str(name), expression, subjects, not subjects, comment, self.place(name))

    def expression(self, tree: files.SyntaxTree) -> ir.Expression:
        if tree.data == "from":
            name, tupleset = tree.children
            return ir.Arrow(str(tupleset), str(name), place=self.place(name))
        return super().expression(tree)

    def condition(self, tree: files.SyntaxTree) -> ir.ModelCondition:
        return _declared(super().condition(tree), self.place(tree.children[0]))


def _declared(condition: ir.ModelCondition, place: ir.Place) -> ir.ModelCondition:
    """Return the condition with its declaration as its text."""
    parameters = ", ".join(f"{each.name}: {each.type}" for each in condition.parameters)
    body = " ".join(line.strip() for line in condition.text.split("\n") if line.strip())
    text = f"condition {condition.name}({parameters}) {{ {body} }}"
    return replace(condition, text=text, place=place, needs_every_value=True)


def _blanked(found: re.Match[str]) -> str:
    """Blank out a comment that `#` begins; strings, and comments within expressions, are kept."""
    return found[0] if found["comment"] is None else " " * len(found[0])


# ---- the model as in OpenFGA's API: JSON with `type_definitions` --------------------------------------------------

_TWO_HALVES = re.compile(r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def read_json_model(text: str, file: str) -> ModelPart:
    """Read the model. Raise ImportRejected with the place of an error."""
    # JSON is a subset of YAML, whose parser provides line numbers, but for tabs between tokens (strings have none) and
    # characters that are escaped in two halves.
    raw = files.read_yaml(_TWO_HALVES.sub(_joined, text.replace("\t", " ")), file)
    if isinstance(raw, files.Located) and isinstance(raw.get("authorization_model"), files.Located):
        raw = raw["authorization_model"]
    if not isinstance(raw, files.Located) or "type_definitions" not in raw:
        raise ir.wrong(ir.Place(file, 1), "expected a model: a mapping with `type_definitions`")
    raw.check_keys(("id", "schema_version", "type_definitions", "conditions"))
    check_schema(raw.get("schema_version"), raw.place_of("schema_version"))
    types = tuple(_type(each, raw.place) for each in raw.listed("type_definitions"))
    conditions = raw.mapping("conditions")
    return ModelPart(types, (), tuple(_condition(name, conditions) for name in conditions), ())


def _joined(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) == 2 else str(files.value_of_json(f'"{found[0]}"'))


def _type(raw: Any, place: ir.Place) -> ir.Type:
    raw = files.mapping_of(raw, place, "a type", ("type", "relations", "metadata"))
    relations, about = raw.mapping("relations"), raw.mapping("metadata").mapping("relations")
    if unknown := [name for name in about if name not in relations]:
        raise ir.wrong(about.place_of(unknown[0]), f"relation {unknown[0]} does not exist")
    found = tuple(_relation(name, relations, about.mapping(name)) for name in relations)
    return ir.Type(raw.required("type", "a type"), found, (), raw.place)


def _relation(name: str, relations: files.Located, about: files.Located) -> ir.ModelRelation:
    place = relations.place_of(name)
    listed = about.listed("directly_related_user_types")
    subjects = tuple(dict.fromkeys(_subject(each, place) for each in listed))
    return ir.ModelRelation(name, _expression(relations[name], place), subjects, not subjects, (), place)


def _subject(raw: Any, place: ir.Place) -> ir.Subject:
    raw = files.mapping_of(raw, place, "a subject type", ("type", "relation", "wildcard", "condition"))
    wildcard, relation = raw.get("wildcard") is not None, raw.text("relation") or None
    if wildcard and relation:
        raise ir.wrong(raw.place, "a subject type can have `relation` or `wildcard`, not both")
    type_name = raw.required("type", "a subject type")
    return ir.Subject(type_name, relation, wildcard, raw.text("condition") or None, place=raw.place)


def _expression(raw: Any, place: ir.Place) -> ir.Expression:
    if not isinstance(raw, files.Located):
        raise ir.wrong(place, "expected a userset: `this`, `computedUserset`, `tupleToUserset`, `union` …")
    place = raw.place
    given = [(name, value) for name, value in raw.items() if value is not None]
    if len(given) != 1:
        raise ir.wrong(place, f"expected one key; found {', '.join(dict(given)) or 'none'}")
    match given[0]:
        case ("this", files.Located() as nothing):
            nothing.check_keys(())
            return ir.Direct(place)
        case ("computedUserset", files.Located() as computed):
            return ir.Computed(_relation_of(computed, place), place)
        case ("tupleToUserset", files.Located() as arrow):
            arrow.check_keys(("tupleset", "computedUserset"))
            followed, target = (_relation_of(arrow.get(name), place) for name in ("tupleset", "computedUserset"))
            return ir.Arrow(followed, target, place=place)
        case ("union", files.Located() as parts):
            return ir.Union(_parts(parts, place))
        case ("intersection", files.Located() as parts):
            return ir.Intersection(_parts(parts, place))
        case ("difference", files.Located() as parts):
            parts.check_keys(("base", "subtract"))
            base, subtract = (_expression(parts.get(name), place) for name in ("base", "subtract"))
            return ir.Exclusion(base, subtract)
    raise ir.wrong(place, f"`{given[0][0]}` is unknown or has the wrong type")


def _relation_of(raw: Any, place: ir.Place) -> str:
    """Return the relation that is named, of the object itself: `object`, if present, must be empty."""
    raw = files.mapping_of(raw, place, "a userset", ("relation", "object"))
    if raw.get("object"):
        raise ir.wrong(raw.place_of("object"), "`object` must be empty")
    return raw.required("relation", "a userset")


def _parts(raw: files.Located, place: ir.Place) -> tuple[ir.Expression, ...]:
    """Return the parts, at least one: an empty intersection would be everybody."""
    raw.check_keys(("child",))
    if not raw.listed("child"):
        raise ir.wrong(raw.place, "expected `child`, a non-empty list")
    return tuple(_expression(each, place) for each in raw["child"])


def _condition(name: str, conditions: files.Located) -> ir.ModelCondition:
    place = conditions.place_of(name)
    raw = files.mapping_of(conditions[name], place, "a condition", ("name", "expression", "parameters", "metadata"))
    parameters = tuple(
        ir.ModelParameter(each, _type_name(about, place), place) for each, about in raw.mapping("parameters").items()
    )
    found = ir.ModelCondition(name, parameters, ir.Always(False), raw.required("expression", "a condition"))
    return _declared(parsed(found, lambda _: raw.place_of("expression")), place)


def _type_name(raw: Any, place: ir.Place) -> str:
    """Return the name of a type: `TYPE_NAME_LIST` of `TYPE_NAME_STRING` is `list<string>`."""
    raw = files.mapping_of(raw, place, "a parameter", ("type_name", "generic_types"))
    name = raw.required("type_name", "a parameter").removeprefix("TYPE_NAME_").lower()
    inner = [_type_name(each, place) for each in raw.listed("generic_types")]
    return f"{name}<{inner[0]}>" if inner else name


_WORDS = ir.ModelWords("type", "condition", follows_everybody=True, leads_to_nothing=False)

# ---- a model in any notation: the language, JSON, or modules in several files -------------------------------------


def model_of_files(parts: Iterable[ModelPart]) -> ir.Model:
    """Combine modules, which may extend each other's types, into one model. Raise ImportRejected with all errors."""
    parts = list(parts)
    declared = [each for part in parts for each in part.types]
    conditions = tuple(each for part in parts for each in part.conditions)
    extensions = [each for part in parts for each in part.extensions]
    types = {each.name: each for each in declared}
    ir.refuse(ir.repeated(declared, "duplicate type"))
    ir.refuse(ir.repeated(conditions, "duplicate condition"))
    missing = (each for each in extensions if each.name not in types)
    ir.refuse(ir.Fault(each.place, f"type {each.name} does not exist, so it cannot be extended") for each in missing)
    for each in extensions:
        type_ = types[each.name]
        relations, comment = type_.relations + each.relations, type_.comment + each.comment
        types[each.name] = replace(type_, relations=relations, comment=comment)
    model = ir.Model(tuple(types.values()), conditions, tuple(line for part in parts for line in part.comment))
    ir.refuse(ir.faults_of(model, _WORDS))
    return model


# ---- tuples -------------------------------------------------------------------------------------------------------
# Tuples as JSON, JSON Lines, YAML and CSV, as read and written by OpenFGA's command line.

_LISTS = ("tuples", "tuple_keys", "writes")  # possible keys of a list
_BESIDE = ("deletes", "authorization_model_id", "continuation_token", "on_duplicate")  # other keys, as sent by servers
_COLUMNS = ("user_type", "user_id", "relation", "object_type", "object_id")
_OTHER_COLUMNS = ("user_relation", "condition_name", "condition_context")


def read_tuples(text: str, file: str) -> Iterator[ir.Tuple]:
    """Yield the tuples of a file; its suffix determines the format. Raise ImportRejected at the first invalid one."""
    match PurePath(file).suffix.lower():
        case ".csv":
            return (_of_row(row, place) for place, row in files.rows_of_csv(text, file, _COLUMNS, _OTHER_COLUMNS))
        case ".json" | ".jsonl":
            return (each for place, raw in files.items_of_json(text, file) for each in _of_item(raw, place))
        case _:
            return tuples_of(files.read_yaml(text, file), ir.Place(file, 1))


def _of_item(raw: Any, place: ir.Place) -> Iterator[ir.Tuple]:
    is_list = isinstance(raw, files.Located) and not raw.keys().isdisjoint(_LISTS)
    return tuples_of(raw if is_list else [raw], place)


def tuples_of(raw: Any, place: ir.Place) -> Iterator[ir.Tuple]:
    """Yield the tuples of a list, or of a mapping that contains one, possibly in a nested mapping."""
    while isinstance(raw, files.Located):
        raw = _tuple_list(raw)
    if raw is not None and not isinstance(raw, list):
        raise ir.wrong(place, "expected a list of tuples")
    for each in raw or ():
        yield tuple_of(each, place)


def _tuple_list(raw: files.Located) -> Any:
    """Return what is under the key of a list; other contents are rejected, not ignored."""
    names = [name for name in _LISTS if name in raw]
    if len(names) != 1:
        raise ir.wrong(raw.place, f"expected a list of tuples, under one of {', '.join(_LISTS)}")
    raw.check_keys((*names, *_BESIDE))
    if raw.get("deletes"):
        raise ir.wrong(raw.place, "`deletes` is not supported; remove it and the tuples it deletes")
    if raw.get("continuation_token"):
        raise ir.wrong(raw.place, "`continuation_token` is set, so tuples are missing; export all pages, and remove it")
    return raw[names[0]]


def tuple_of(raw: Any, place: ir.Place) -> ir.Tuple:
    """Return the tuple in a mapping: `user`, `relation`, `object`, and optionally `condition`."""
    if isinstance(raw, files.Located) and isinstance(raw.get("key"), files.Located):
        raw.check_keys(("key", "timestamp"))
        raw = raw["key"]  # the form in which servers return tuples
    raw = files.mapping_of(raw, place, "a tuple", ("user", "relation", "object", "condition"))
    user, relation, thing = (raw.required(name, "a tuple") for name in ("user", "relation", "object"))
    condition, context = _condition_of_tuple(raw)
    place = raw.place
    return ir.Tuple(thing_of(thing, place), relation, who_of(user, place), condition, context, place=place)


def _condition_of_tuple(raw: files.Located) -> tuple[str | None, ir.ContextValues]:
    if raw.get("condition") is None:
        return None, ()
    condition = files.mapping_of(raw["condition"], raw.place, "a condition", ("name", "context"))
    return condition.required("name", "a condition"), values_of(condition.get("context"), raw.place)


def values_of(raw: Any, place: ir.Place) -> ir.ContextValues:
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        raise ir.wrong(place, "a context must be a mapping of names to values")
    return tuple(raw.items())


def _of_row(row: dict[str, str], place: ir.Place) -> ir.Tuple:
    missing = [name for name in _COLUMNS if not row.get(name)]
    if missing:
        raise ir.wrong(place, f"no {' and no '.join(missing)}")
    if row.get("condition_context") and not row.get("condition_name"):
        raise ir.wrong(place, "`condition_context` requires `condition_name`")
    who = ir.Who(row["user_type"], row["user_id"], row.get("user_relation") or None)
    thing = ir.Thing(row["object_type"], row["object_id"])
    context = _context_of(row.get("condition_context"), place)
    return ir.Tuple(thing, row["relation"], who, row.get("condition_name") or None, context, place=place)


def _context_of(text: str | None, place: ir.Place) -> ir.ContextValues:
    try:
        return values_of(files.value_of_json(text) if text else None, place)
    except ValueError as reason:
        raise ir.wrong(place, f"the context is not valid JSON: {reason}") from None


def thing_of(text: str, place: ir.Place) -> ir.Thing:
    type_name, colon, name = text.partition(":")
    if not (type_name and colon and name):
        raise ir.wrong(place, f"`{text}` is not an object; write it as `document:plan`")
    return ir.Thing(type_name, name)


def who_of(text: str, place: ir.Place) -> ir.Who:
    thing = thing_of(text, place)
    name, mark, relation = thing.id.rpartition("#")
    return ir.Who(thing.type, name, relation) if mark and name and relation else ir.Who(thing.type, thing.id)


# ---- store files: a model, tuples, and tests, as OpenFGA's command line runs them ---------------------------------

_KNOWN = ("name", "model", "model_file", "tuples", "tuple_file", "tuple_files", "tests")
_KNOWN_OF_TEST = (
    "name", "description", "tuples", "tuple_file", "tuple_files", "check", "list_objects", "list_users",
)  # fmt: skip
_KNOWN_OF_CHECK = ("user", "users", "object", "objects", "context", "assertions")
_KNOWN_OF_OBJECTS = ("user", "type", "context", "assertions")
_KNOWN_OF_USERS = ("object", "user_filter", "context", "assertions")


def _tuples(raw: files.Located) -> tuple[ir.Tuple, ...]:
    """Return the tuples of a store or of a test, and those of the files that it names."""
    named = [raw["tuple_file"]] if raw.get("tuple_file") else []
    named += raw.listed("tuple_files")
    paths = (_beside(raw.place.file, str(name)) for name in named)
    own = tuples_of(raw.get("tuples"), raw.place_of("tuples"))
    return (*own, *(each for path in paths for each in read_tuples(text_of_file(path), path)))


def _test(raw: Any, place: ir.Place) -> ir.Scenario:
    raw = files.mapping_of(raw, place, "a test", _KNOWN_OF_TEST)
    asked: list[ir.ModelExpectation] = []
    for key, read in (("check", _checks), ("list_objects", _objects), ("list_users", _users)):
        asked += (one for each in raw.listed(key) for one in read(each, raw.place))
    name = str(raw.get("name") or "test")
    return ir.Scenario(name, _tuples(raw), tuple(asked), raw.place)


def _checks(raw: Any, place: ir.Place) -> Iterator[ir.ExpectedCheck]:
    raw = files.mapping_of(raw, place, "a check", _KNOWN_OF_CHECK)
    context = values_of(raw.get("context"), raw.place)
    for user in _one_or_more(raw, "user", "users"):
        for thing in _one_or_more(raw, "object", "objects"):
            for relation, expected in _assertions(raw):
                if not isinstance(expected, bool):
                    raise ir.wrong(raw.place, f"`{relation}` must be true or false")
                who = who_of(user, raw.place)
                yield ir.ExpectedCheck(who, relation, thing_of(thing, raw.place), expected, context, raw.place)


def _objects(raw: Any, place: ir.Place) -> Iterator[ir.ObjectList]:
    raw = files.mapping_of(raw, place, "a list of objects", _KNOWN_OF_OBJECTS)
    context = values_of(raw.get("context"), raw.place)
    for relation, expected in _assertions(raw):
        things = [thing_of(each, raw.place) for each in _texts(relation, expected, raw.place)]
        type_name = str(raw.get("type") or "")
        for each in things:
            if each.type != type_name:
                raise ir.wrong(raw.place, f"{each} is not of type {type_name}")
        who = who_of(str(raw.get("user") or ""), raw.place)
        yield ir.ObjectList(who, relation, type_name, tuple(each.id for each in things), context, raw.place)


def _users(raw: Any, place: ir.Place) -> Iterator[ir.SubjectList]:
    raw = files.mapping_of(raw, place, "a list of users", _KNOWN_OF_USERS)
    context = values_of(raw.get("context"), raw.place)
    thing = thing_of(str(raw.get("object") or ""), raw.place)
    kinds = [files.mapping_of(each, raw.place, "a filter", ("type", "relation")) for each in raw.listed("user_filter")]
    for relation, expected in _assertions(raw):
        listed = expected.get("users") if isinstance(expected, dict) else expected
        users = [who_of(each, raw.place) for each in _texts(relation, listed, raw.place)]
        for kind in kinds:
            type_name, of = str(kind.get("type") or ""), kind.get("relation") or None
            mine = tuple(each for each in users if (each.type, each.relation) == (type_name, of))
            yield ir.SubjectList(thing, relation, type_name, of, mine, context, raw.place)


def _assertions(raw: files.Located) -> Iterator[tuple[str, Any]]:
    found = raw.get("assertions")
    if not isinstance(found, dict):
        raise ir.wrong(raw.place, "expected `assertions`, a mapping of relations to expected results")
    yield from found.items()


def _texts(relation: str, expected: Any, place: ir.Place) -> list[str]:
    if expected is not None and not isinstance(expected, list):
        raise ir.wrong(place, f"`{relation}` must be a list")
    return [str(each) for each in expected or ()]


def _one_or_more(raw: files.Located, one: str, more: str) -> list[str]:
    found = [raw[one]] if raw.get(one) else raw.get(more)
    if not isinstance(found, list) or not found:
        raise ir.wrong(raw.place, f"expected `{one}` or `{more}`")
    return [str(each) for each in found]


# ---- files of OpenFGA, recognized by their suffixes, as one import ------------------------------------------------

_YAML = (".yaml", ".yml")
_OF_STORES = {"name", "model", "model_file", "tuple_file", "tuple_files", "tests"}


def read_files(model: str, others: Iterable[str]) -> ir.Imported:
    """Read a model or a store, and further files with tuples or stores."""
    tuples: list[ir.Tuple] = []
    scenarios: list[ir.Scenario] = []

    def read_store(raw: files.Located) -> None:
        scenarios.extend(_test(each, raw.place) for each in raw.listed("tests"))
        tuples.extend(_tuples(raw))

    if _is_yaml(model):
        store = files.mapping_of(files.read_yaml(text_of_file(model), model), ir.Place(model, 1), "a store", _KNOWN)
        read_store(store)
        found = _model_of_store(store)
    else:
        found = _model(model)
    for name in others:
        text = text_of_file(name)
        raw = files.read_yaml(text, name) if _is_yaml(name) else None
        if isinstance(raw, files.Located) and not raw.keys().isdisjoint(_OF_STORES):
            raw.check_keys(_KNOWN)
            read_store(raw)
        else:
            tuples += read_tuples(text, name)
    return ir.Imported(found, tuple(tuples), tuple(scenarios))


def _is_yaml(name: str) -> bool:
    return PurePath(name).suffix.lower() in _YAML


def _model(name: str) -> ir.Model:
    text = text_of_file(name)
    match PurePath(name).suffix.lower():
        case ".json":
            return model_of_files([read_json_model(text, name)])
        case ".mod":
            return model_of_files(read_dsl(text_of_file(each), each) for each in _modules(text, name))
        case _:
            return model_of_files([read_dsl(text, name)])


def _modules(text: str, name: str) -> list[str]:
    raw = files.read_yaml(text, name)
    listed = raw.get("contents") if isinstance(raw, files.Located) else None
    if not isinstance(listed, list) or not listed:
        raise ir.wrong(ir.Place(name, 1), "expected `contents`, a list of the modules' files")
    return [_beside(name, str(each)) for each in listed]


def _model_of_store(store: files.Located) -> ir.Model:
    if named := store.text("model_file"):
        return _model(_beside(store.place.file, named))
    if not store.text("model"):
        raise ir.wrong(ir.Place(store.place.file, 1), "a store needs `model` or `model_file`")
    source = store.source_of("model")
    return model_of_files([read_dsl(source.text, source.filename)])


def _beside(name: str, other: str) -> str:
    path = files.neighbour_file(name, other)
    if path is None:
        advice = "move it below the folder of this file, or name it in the command"
        raise ir.wrong(ir.Place(name), f"`{other}` is outside the folder; {advice}")
    return str(path)
