"""Validation files: YAML with a schema (or its file), relationships, assertions, and who is expected to have what.

Every part keeps its place in the file, so that what is said about it has the line that people see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from authz_project.importers.located_data import node_of_yaml, pairs_of
from authz_project.importers.model import NOWHERE, Place, Thing, Tuple, Values, Who
from authz_project.importers.spicedb.relationships import (
    context_of,
    lines_of,
    permission_of,
    relationship_of,
    subject_of,
)  # fmt: skip
from authz_project.importers.spicedb.source_errors import SourceError, place_in
from authz_project.importers.spicedb.words import words_of
from policy.language.source import Source

_EXPECTED = {"assertTrue": True, "assertFalse": False, "assertCaveated": None}
_KNOWN = ("schema", "schemaFile", "relationships", "assertions", "validation", "namespace_configs", "validation_tuples")
_OLD = {"namespace_configs": "write `schema`", "validation_tuples": "write `relationships`"}
_IN_BRACKETS = re.compile(r"\s*\[(?P<subject>[^\s\]\[]+)(?P<caveated>\[\.\.\.\])?(?:\s+-\s+\{(?P<but>[^}]+)\})?\]")


@dataclass(frozen=True)
class Asserted:
    """`document:plan#view@user:ann with {"hour": 9}`: it holds, it does not, or (None) its caveats decide."""

    object: Thing
    relation: str
    subject: Who
    context: Values
    expected: bool | None
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ExpectedSubject:
    """`[user:ann]`, `[user:bob[...]]` if caveats decide, `[user:* - {user:eve}]`."""

    subject: Who
    is_caveated: bool
    excepted: tuple[Who, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Expected:
    """Who has a relation or permission, and nobody else."""

    object: Thing
    relation: str
    subjects: tuple[ExpectedSubject, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ValidationFile:
    schema: Source | None = None  # the same file with all but the schema blanked out, or the schema by itself
    schema_file: str = ""
    schema_file_place: Place = NOWHERE
    relationships: tuple[Tuple, ...] = ()
    asserted: tuple[Asserted, ...] = ()
    expected: tuple[Expected, ...] = ()
    wrong: tuple[SourceError, ...] = ()


def validation_file_of(source: Source) -> ValidationFile:
    """Read a validation file. Raise `SourceError` where it is none; the result has the errors of single lines."""
    try:
        root = node_of_yaml(source.text)
        if isinstance(root, yaml.MappingNode):
            return _Reading(source, _parts_of(root, source)).file()
    except yaml.YAMLError as reason:
        mark = getattr(reason, "problem_mark", None)
        place = place_in(source, mark.index) if mark else Place(source.filename)
        raise SourceError(f"this is no YAML: {getattr(reason, 'problem', reason)}", place) from None
    raise SourceError(
        "a validation file has `schema`, `relationships` and `assertions`; this has none of them",
        Place(source.filename),
    )


def _parts_of(root: yaml.MappingNode, source: Source) -> dict[str, yaml.Node]:
    parts = {}
    for name, key, value in pairs_of(root):
        if name not in _KNOWN or name in _OLD:
            advice = _OLD.get(name, f"known are {', '.join(_KNOWN[:5])}")
            raise SourceError(f"a validation file has no `{name}`; {advice}", place_in(source, key.start_mark.index))
        parts[name] = value
    return parts


class _Reading:
    def __init__(self, source: Source, parts: dict[str, yaml.Node]):
        self.source, self.parts = source, parts
        self.wrong: list[SourceError] = []

    def file(self) -> ValidationFile:
        relationships = tuple(self._relationships())
        asserted = tuple(self._asserted())
        expected = tuple(self._expected())
        named = self._scalar("schemaFile")
        return ValidationFile(
            self._schema(),
            named.value if named else "",
            self._place(named) if named else NOWHERE,
            relationships,
            asserted,
            expected,
            tuple(self.wrong),
        )

    def _scalar(self, part: str) -> yaml.ScalarNode | None:
        node = self.parts.get(part)
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return None
        if not isinstance(node, yaml.ScalarNode):
            raise SourceError(f"`{part}` is a text", self._place(node))
        return node

    def _schema(self) -> Source | None:
        """Return the schema with its place in the file, if its words are the same there as in YAML's text of it."""
        node = self._scalar("schema")
        if node is None:
            return None
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            start = self.source.text.find("\n", start)  # behind the sign, as in `schema: |+`
        text = self.source.text
        blanked = Source(_blank(text[:start]) + text[start:end] + _blank(text[end:]), self.source.filename)
        alone = Source(node.value, f"{self.source.filename} (schema)")
        try:
            same = [word.text for word in words_of(blanked)] == [word.text for word in words_of(alone)]
        except SourceError:
            same = node.style == "|"
        return blanked if same else alone

    def _relationships(self) -> Iterator[Tuple]:
        node = self._scalar("relationships")
        for text, place in self._placed(node) if node else ():
            try:
                yield relationship_of(text, place)
            except SourceError as wrong:
                self.wrong.append(wrong)

    def _placed(self, node: yaml.ScalarNode) -> Iterator[tuple[str, Place]]:
        """Yield the lines of a text, and where each stands in the file."""
        reached = node.start_mark.index
        for text, _ in lines_of(Source(node.value)):
            found = self.source.text.find(text, reached, node.end_mark.index)
            reached = reached if found < 0 else found
            yield text, place_in(self.source, reached)

    # ---- what is asserted -------------------------------------------------------------------------------------------

    def _asserted(self) -> Iterator[Asserted]:
        for name, key, node in self._mapping("assertions"):
            if name not in _EXPECTED:
                raise SourceError(f"there is no `{name}`; known are {', '.join(_EXPECTED)}", self._place(key))
            for item in self._sequence(node, name):
                try:
                    yield self._assertion(item, _EXPECTED[name])
                except SourceError as wrong:
                    self.wrong.append(wrong)

    def _assertion(self, item: yaml.Node, expected: bool | None) -> Asserted:
        place = self._place(item)
        if not isinstance(item, yaml.ScalarNode):
            raise SourceError("an assertion is a text, such as `document:plan#view@user:ann`", place)
        asked, _, context = item.value.strip().partition(" with ")
        found = relationship_of(asked.strip(), place)
        values = context_of(context, place) if context else ()
        return Asserted(found.object, found.relation, found.subject, values, expected, place)

    def _expected(self) -> Iterator[Expected]:
        for name, key, node in self._mapping("validation"):
            try:
                place = self._place(key)
                subjects = tuple(map(self._expected_subject, self._sequence(node, name)))
                yield Expected(*permission_of(name.strip(), place), subjects, place)
            except SourceError as wrong:
                self.wrong.append(wrong)

    def _expected_subject(self, item: yaml.Node) -> ExpectedSubject:
        """Read `[user:ann] is <document:plan#viewer>`; what stands behind it gives reasons, and may change."""
        place = self._place(item)
        found = _IN_BRACKETS.match(str(item.value))
        if found is None:
            raise SourceError(
                f"`{item.value}` says nobody; one who is expected stands in brackets: `[user:ann]`", place
            )
        excepted = [
            subject_of(text.strip().removesuffix("[...]"), place) for text in (found["but"] or "").split(",") if text
        ]
        return ExpectedSubject(subject_of(found["subject"], place), bool(found["caveated"]), tuple(excepted), place)

    def _mapping(self, part: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        node = self.parts.get(part)
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return []
        if not isinstance(node, yaml.MappingNode):
            raise SourceError(f"`{part}` is a map", self._place(node))
        return list(pairs_of(node))

    def _sequence(self, node: yaml.Node, part: str) -> list[yaml.Node]:
        if node.tag == "tag:yaml.org,2002:null":
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise SourceError(f"`{part}` is a list", self._place(node))
        return list(node.value)

    def _place(self, node: yaml.Node) -> Place:
        return place_in(self.source, node.start_mark.index)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
