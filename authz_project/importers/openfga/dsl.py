"""The modelling language, schema 1.1 and the modules of 1.2."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from authz_project.importers.model import (
    Arrow,
    Computed,
    Condition,
    Direct,
    Exclusion,
    Expression,
    Intersection,
    Parameter,
    Relation,
    Subject,
    Type,
    Union,
)
from authz_project.importers.openfga.model_parts import ModelPart, check_schema, condition_of
from authz_project.importers.openfga.words import Word, words_of
from authz_project.importers.report import wrong

_MOST_DEEP = 100


def read_dsl(text: str, file: str) -> ModelPart:
    """Read a model or a module; ImportRejected says where it is wrong."""
    return _Parser(words_of(text, file)).file()


class _Parser:
    def __init__(self, words: list[Word]):
        self.words = words
        self.at = 0
        self.subjects: list[Subject] = []
        self.depth = 0

    @property
    def word(self) -> Word:
        return self.words[self.at]

    def file(self) -> ModelPart:
        comment = self._header()
        types: list[Type] = []
        extensions: list[Type] = []
        conditions: list[Condition] = []
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
        relations: list[Relation] = []
        if self._is("relations") and self.word.is_first:
            comment += self.word.before
            self._take()
            while self._is("define"):
                relations.append(self._relation())
        return Type(name.text, tuple(relations), _with_after(comment, name), name.place)

    def _relation(self) -> Relation:
        comment = self.word.before
        self._take()
        name = self._name("a relation's name")
        self._expect(":")
        self.subjects, self.depth = [], 0
        expression = self._expression()
        comment = _with_after(comment, self.words[self.at - 1])
        subjects = tuple(dict.fromkeys(self.subjects))
        return Relation(name.text, expression, subjects, not subjects, comment, name.place)

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
            if self.depth > _MOST_DEEP:
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

    def _condition(self) -> Condition:
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

    def _parameter(self) -> Parameter:
        name = self._name("a parameter's name")
        self._expect(":")
        type_name = self._name("a parameter's type").text
        if self._skips("<", "sign"):
            type_name = f"{type_name}<{self._name('a type').text}>"
            self._expect(">")
        return Parameter(name.text, type_name, name.place)

    # ---- words -------------------------------------------------------------------------------------------------------

    def _is(self, text: str) -> bool:
        return self.word.kind == "word" and self.word.text == text

    def _take(self) -> Word:
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

    def _name(self, wanted: str) -> Word:
        if self.word.kind != "word":
            self._refuse(wanted)
        return self._take()

    def _refuse(self, wanted: str) -> NoReturn:
        found = "the end" if self.word.kind == "end" else f"`{self.word.text.strip()[:30]}`"
        raise wrong(self.word.place, f"expected {wanted}, found {found}")


def _with_after(comment: tuple[str, ...], last: Word) -> tuple[str, ...]:
    return (*comment, last.after) if last.after else comment
