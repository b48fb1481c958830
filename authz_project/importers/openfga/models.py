"""Read OpenFGA models: the modelling language, JSON, and modules in several files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from authz_project.importers import model
from authz_project.importers.cel import NotAnExpression, parsed, test_of
from authz_project.importers.files import Located, read_yaml
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

# ---- The words of a model in the modelling language, with the comments before them --------------------------------

_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")
_SIGNS = "[](){}:,#*<>"
_HASHED = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|(?<!\S)\#(?P<comment>[^\n]*)""")


@dataclass(frozen=True, slots=True)
class ModelWord:
    """`kind` is word, sign, body (what stands in the braces of a condition) or end."""

    kind: str
    text: str
    place: Place
    is_first: bool  # on its line
    before: tuple[str, ...] = ()  # comments on lines of their own
    after: str = ""  # the comment at the end of its line, if it is the last word there


def words_of(text: str, file: str) -> list[ModelWord]:
    return _ModelReader(text, file).words()


class _ModelReader:
    def __init__(self, text: str, file: str):
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.file = file
        self.found: list[ModelWord] = []
        self.comments: list[str] = []
        self.is_condition = False

    def words(self) -> list[ModelWord]:
        number = 0
        while number < len(self.lines):
            number = self._line(number)
        last = next((at for at in range(len(self.lines), 0, -1) if self.lines[at - 1].strip()), 1)
        self._add("end", "", Place(self.file, last, len(self.lines[last - 1].rstrip()) + 1), True)
        return self.found

    def _line(self, number: int) -> int:
        """Read one line, or more where a condition's body goes on; the number of the next."""
        line, at, is_first = self.lines[number], 0, True
        while at < len(line):
            char, place = line[at], Place(self.file, number + 1, at + 1)
            if char.isspace():
                at += 1
            elif char == "#" and (at == 0 or line[at - 1].isspace()):
                self._comment(line[at + 1 :].strip(), is_first)
                break
            elif char == "{" and self.is_condition:
                return self._body(number, at)
            elif found := _WORD.match(line, at):
                self.is_condition = found[0] == "condition" if is_first else self.is_condition
                self._add("word", found[0], place, is_first)
                at, is_first = found.end(), False
            elif char in _SIGNS:
                self._add("sign", char, place, is_first)
                at, is_first = at + 1, False
            else:
                raise ImportRejected([Fault(place, f"`{char}` means nothing here")])
        return number + 1

    def _comment(self, text: str, is_alone: bool) -> None:
        if is_alone:
            self.comments.append(text)
        elif self.found:
            last = self.found[-1]
            self.found[-1] = ModelWord(last.kind, last.text, last.place, last.is_first, last.before, text)

    def _body(self, number: int, at: int) -> int:
        """Return what stands in braces, as it is; a `}` in a text or a comment ends nothing."""
        start = Place(self.file, number + 1, at + 2)
        text = "\n".join([self.lines[number][at + 1 :], *self.lines[number + 1 :]])
        without_comments = _HASHED.sub(_blanked, text)
        end = _closing(without_comments)
        if end is None:
            raise ImportRejected([Fault(start, "the condition has no `}`")])
        body = without_comments[:end]
        self.comments += [found["comment"].strip() for found in _HASHED.finditer(text, 0, end) if found["comment"]]
        self._add("body", body, start, False)
        self.is_condition = False
        last = number + body.count("\n")
        rest = text[end + 1 :].split("\n", 1)[0].strip()
        if rest.startswith("#"):
            self._comment(rest[1:].strip(), False)
        elif rest:
            place = Place(self.file, last + 1, self.lines[last].rfind(rest) + 1)
            raise ImportRejected([Fault(place, f"`{rest}` stands behind a condition")])
        return last + 1

    def _add(self, kind: str, text: str, place: Place, is_first: bool) -> None:
        self.found.append(ModelWord(kind, text, place, is_first, tuple(self.comments)))
        self.comments = []


def _blanked(found: re.Match[str]) -> str:
    """Put blanks in the place of a comment that `#` begins; texts, and comments of the expression, stay."""
    return found[0] if found["comment"] is None else " " * len(found[0])


def _closing(text: str) -> int | None:
    """Return where the `}` stands that ends a body."""
    depth, at = 0, 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            found = re.compile(rf"{char}(?:\\.|[^{char}\\\n])*{char}").match(text, at)
            at = found.end() if found else at + 1
            continue
        if text.startswith("//", at):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            if not depth:
                return at
            depth -= 1
        at += 1
    return None


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
        before = body[:offset]
        lines = before.count("\n")
        column = offset - before.rfind("\n") if lines else at.column + offset
        return Place(at.file, at.line + lines, column)

    declared = ", ".join(f"{each.name}: {each.type}" for each in parameters)
    written = " ".join(line.strip() for line in body.split("\n") if line.strip())
    text = f"condition {name}({declared}) {{ {written} }}"
    try:
        test = test_of(parsed(body), body, parameters, place_of)
        return ModelCondition(name, parameters, test, text, comment, place, needs_every_value=True)
    except NotAnExpression as reason:
        raise wrong(place_of(reason.at), f"condition {name}: {reason.message}") from None


# ---- The modelling language, schema 1.1 and the modules of 1.2 ----------------------------------------------------

_DEEPEST_EXPRESSION = 100


def read_dsl(text: str, file: str) -> ModelPart:
    """Read a model or a module; ImportRejected says where it is wrong."""
    return _ModelParser(words_of(text, file)).file()


class _ModelParser:
    def __init__(self, words: list[ModelWord]):
        self.words = words
        self.at = 0
        self.subjects: list[Subject] = []
        self.depth = 0

    @property
    def word(self) -> ModelWord:
        return self.words[self.at]

    def file(self) -> ModelPart:
        comment = self._header()
        types: list[Type] = []
        extensions: list[Type] = []
        conditions: list[ModelCondition] = []
        while self.word.kind != "end":
            if self._is("extend"):
                comment_before = self.word.before
                self._take()
                extensions.append(self._type(comment_before))
            elif self._is("type"):
                types.append(self._type(self.word.before))
            elif self._is("condition"):
                conditions.append(self._condition())
            else:
                self._refuse("`type` or `condition`")
        return ModelPart(tuple(types), tuple(extensions), tuple(conditions), comment)

    def _header(self) -> tuple[str, ...]:
        comment = self.word.before
        if self._skips("module"):
            self._name("the module's name")
            return comment
        if not self._skips("model"):
            self._refuse("`model` or `module`")
        comment += self.word.before
        if not self._skips("schema"):
            self._refuse("`schema`")
        version = self._name("the version of the schema")
        check_schema(version.text, version.place)
        return comment

    # ---- types -------------------------------------------------------------------------------------------------------

    def _type(self, comment: tuple[str, ...]) -> Type:
        if not self._skips("type"):
            self._refuse("`type`")
        name = self._name("a type's name")
        relations: list[ModelRelation] = []
        if self._is("relations") and self.word.is_first:
            comment += self.word.before
            self._take()
            while self._is("define"):
                relations.append(self._relation())
        return Type(name.text, tuple(relations), _with_after(comment, name), name.place)

    def _relation(self) -> ModelRelation:
        comment = self.word.before
        self._take()
        name = self._name("a relation's name")
        self._expect(":")
        self.subjects, self.depth = [], 0
        expression = self._expression()
        comment = _with_after(comment, self.words[self.at - 1])
        subjects = tuple(dict.fromkeys(self.subjects))
        return ModelRelation(name.text, expression, subjects, not subjects, comment, name.place)

    def _expression(self) -> Expression:
        parts = [self._part()]
        operator = self._operator()
        while (found := self._operator()) is not None:
            if found != operator or (operator == "but" and len(parts) == 2):
                self._refuse("parentheses around what belongs together")
            self._take()
            if operator == "but" and not self._skips("not"):
                self._refuse("`not`")
            parts.append(self._part())
        if operator is None:
            return parts[0]
        if operator == "or":
            return Union(tuple(parts))
        return Intersection(tuple(parts)) if operator == "and" else Exclusion(parts[0], parts[1])

    def _operator(self) -> str | None:
        return self.word.text if self.word.kind == "word" and self.word.text in ("or", "and", "but") else None

    def _part(self) -> Expression:
        place = self.word.place
        if self._skips("(", "sign"):
            self.depth += 1
            if self.depth > _DEEPEST_EXPRESSION:
                raise wrong(place, "parentheses nest too deep")
            inner = self._expression()
            self._expect(")")
            self.depth -= 1
            return inner
        if self._skips("[", "sign"):
            self._restrictions()
            return Direct(place)
        name = self._name("a relation, `[` or `(`")
        if self._is("from") and not self.word.is_first:
            self._take()
            return Arrow(self._name("a relation after `from`").text, name.text, place=place)
        return Computed(name.text, place)

    def _restrictions(self) -> None:
        while True:
            self.subjects.append(self._subject())
            if self._skips("]", "sign"):
                return
            self._expect(",")

    def _subject(self) -> Subject:
        name = self._name("a type")
        found = Subject(name.text, place=name.place)
        if self._skips("#", "sign"):
            found = replace(found, relation=self._name("a relation after `#`").text)
        elif self._skips(":", "sign"):
            self._expect("*")
            found = replace(found, wildcard=True)
        if self._skips("with"):
            found = replace(found, condition=self._name("a condition after `with`").text)
        return found

    # ---- conditions --------------------------------------------------------------------------------------------------

    def _condition(self) -> ModelCondition:
        comment = self.word.before
        self._take()
        name = self._name("a condition's name")
        self._expect("(")
        parameters = [self._parameter()]
        while self._skips(",", "sign"):
            parameters.append(self._parameter())
        self._expect(")")
        body = self.word
        if body.kind != "body":
            self._refuse("`{`")
        comment += self._take().before
        return condition_of(name.text, tuple(parameters), body.text, body.place, comment, name.place)

    def _parameter(self) -> ModelParameter:
        name = self._name("a parameter's name")
        self._expect(":")
        type_name = self._name("a parameter's type").text
        if self._skips("<", "sign"):
            type_name = f"{type_name}<{self._name('a type').text}>"
            self._expect(">")
        return ModelParameter(name.text, type_name, name.place)

    # ---- words -------------------------------------------------------------------------------------------------------

    def _is(self, text: str) -> bool:
        return self.word.kind == "word" and self.word.text == text

    def _take(self) -> ModelWord:
        word = self.word
        self.at += 1
        return word

    def _skips(self, text: str, kind: str = "word") -> bool:
        if self.word.kind != kind or self.word.text != text:
            return False
        self.at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skips(sign, "sign"):
            self._refuse(f"`{sign}`")

    def _name(self, wanted: str) -> ModelWord:
        if self.word.kind != "word":
            self._refuse(wanted)
        return self._take()

    def _refuse(self, wanted: str) -> NoReturn:
        found = "the end" if self.word.kind == "end" else f"`{self.word.text.strip()[:30]}`"
        raise wrong(self.word.place, f"expected {wanted}, found {found}")


def _with_after(comment: tuple[str, ...], last: ModelWord) -> tuple[str, ...]:
    return (*comment, last.after) if last.after else comment


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
