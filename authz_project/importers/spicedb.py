"""Read files of SpiceDB: relationships, and validation files with assertions; `spicedb_schema` parses the schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from authz_project.importers import ir, spicedb_schema
from authz_project.importers.files import Located, mapping_of, neighbour_file, place_in, read_yaml, value_of_json
from policy.files import Unreadable, text_of_file
from policy.language.source import Source

T = TypeVar("T")

# ---- relationships ------------------------------------------------------------------------------------------------
# Relationships as people write them, one per line: `document:plan#viewer@group:eng#member[at_night:{"from": 22}]`.

_NAME = r"(?:[a-z][a-z0-9_]*/)*[a-z][a-z0-9_]*"
_ID = r"[a-zA-Z0-9/_|\-=+]+"
_SUBJECT = rf"(?P<subject_type>{_NAME}):(?P<subject>{_ID}|\*)(?:\#(?P<subject_relation>[a-z][a-z0-9_]*|\.\.\.))?"
_RESOURCE = rf"(?P<type>{_NAME}):(?P<id>{_ID})\#(?P<relation>[a-z][a-z0-9_]*)"
_RELATIONSHIP = re.compile(
    rf"""{_RESOURCE}@{_SUBJECT}
    (?:\[(?!expiration:)(?P<caveat>{_NAME})(?::(?P<context>\{{.*\}}))?\])?
    (?:\[expiration:(?P<end>[^\]]+)\])?""",
    re.VERBOSE,
)
_SUBJECT_ALONE, _RESOURCE_ALONE = re.compile(_SUBJECT), re.compile(_RESOURCE)


def lines_of(source: Source) -> Iterator[tuple[str, ir.Place]]:
    """Yield the lines of a text that are neither blank nor comments, each with its place."""
    for found in re.finditer(r"[^\n]+", source.text):
        text = found[0].strip(" \t\r\f\v\ufeff")
        if text and not text.startswith("//"):
            yield text, place_in(source, found.start() + found[0].find(text))


def relationship_of(text: str, place: ir.Place) -> ir.Tuple:
    found = _RELATIONSHIP.fullmatch(text)
    if found is None:
        raise ir.wrong(place, f"`{text}` is not a relationship such as `document:plan#viewer@user:ann`")
    values = context_of(found["context"], place) if found["context"] else ()
    end = _end(found["end"], place) if found["end"] else None
    thing = ir.Thing(found["type"], found["id"])
    return ir.Tuple(thing, found["relation"], _who(found), found["caveat"], values, end, place)


def subject_of(text: str, place: ir.Place) -> ir.Who:
    found = _SUBJECT_ALONE.fullmatch(text)
    if found is None:
        raise ir.wrong(place, f"`{text}` is not a subject such as `user:ann` or `group:eng#member`")
    return _who(found)


def permission_of(text: str, place: ir.Place) -> tuple[ir.Thing, str]:
    """Parse an object and the name of its relation or permission."""
    found = _RESOURCE_ALONE.fullmatch(text)
    if found is None:
        raise ir.wrong(place, f"`{text}` is not a permission of a resource, such as `document:plan#view`")
    return ir.Thing(found["type"], found["id"]), found["relation"]


def context_of(text: str, place: ir.Place) -> ir.ContextValues:
    """Parse names and values written as JSON."""
    try:
        context = value_of_json(text)
    except ValueError as reason:
        raise ir.wrong(place, f"`{text}` is not valid JSON: {reason}") from None
    if not isinstance(context, dict):
        raise ir.wrong(place, f'`{text}` is not an object such as `{{"hour": 9}}`')
    return tuple(context.items())


def _who(found: re.Match[str]) -> ir.Who:
    relation = found["subject_relation"]
    return ir.Who(found["subject_type"], found["subject"], None if relation == "..." else relation)


def _end(text: str, place: ir.Place) -> datetime:
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise ir.wrong(place, f"`{text}` is not a time such as `2030-01-01T00:00:00Z`") from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)


# ---- validation files ---------------------------------------------------------------------------------------------
# YAML with a schema (or the name of its file), relationships, assertions, and expected relations.

_EXPECTED = {"assertTrue": True, "assertFalse": False, "assertCaveated": False}
_KNOWN = ("schema", "schemaFile", "relationships", "assertions", "validation")
_IN_BRACKETS = re.compile(r"\s*\[(?P<subject>[^\s\]\[]+)(?P<caveated>\[\.\.\.\])?(?:\s+-\s+\{(?P<but>[^}]+)\})?\]")


@dataclass(frozen=True)
class ExpectedSubject:
    """`[user:ann]`, `[user:bob[...]]` if caveats decide, or `[user:* - {user:eve}]`."""

    subject: ir.Who
    is_caveated: bool
    excepted: tuple[ir.Who, ...]
    place: ir.Place = field(default=ir.NOWHERE, compare=False)


@dataclass(frozen=True)
class Expected:
    """All subjects of a relation or permission: exactly these."""

    object: ir.Thing
    relation: str
    subjects: tuple[ExpectedSubject, ...]
    place: ir.Place = field(default=ir.NOWHERE, compare=False)


class ValidationFile:
    """The contents of a validation file. Errors of single lines are in `faults`; others raise `ImportRejected`."""

    def __init__(self, source: Source):
        raw = read_yaml(source.text, source.filename)
        self.source = source
        self.parts = mapping_of(raw, ir.Place(source.filename), "a validation file", _KNOWN)
        self.faults: list[ir.Fault] = []
        lines = lines_of(self.parts.source_of("relationships", as_lines=True))
        self.relationships = (*converted(relationship_of, lines, self.faults),)
        self.asserted = (*converted(_assertion, self._assertions(), self.faults),)
        validation = self.parts.mapping("validation")
        self.expected = (*converted(_expected, ((validation, name) for name in validation), self.faults),)
        has_schema = self.parts.get("schema") is not None
        self.schema = self.parts.source_of("schema") if has_schema else None

    def _assertions(self) -> Iterator[tuple[Any, ir.Place, bool]]:
        asserted = self.parts.mapping("assertions")
        asserted.check_keys(_EXPECTED)
        for name in asserted:
            yield from ((each, place, _EXPECTED[name]) for each, place in asserted.placed(name))


def converted(convert: Callable[..., T], items: Iterable[tuple[Any, ...]], faults: list[ir.Fault]) -> Iterator[T]:
    """Yield what each item is converted to, and collect the errors."""
    for item in items:
        try:
            yield convert(*item)
        except ir.ImportRejected as reason:
            faults += reason.faults


def _assertion(text: Any, place: ir.Place, expected: bool) -> ir.ExpectedCheck:
    if not isinstance(text, str):
        raise ir.wrong(place, "an assertion must be a string such as `document:plan#view@user:ann`")
    asked, _, context = text.strip().partition(" with ")
    found = relationship_of(asked.strip(), place)
    values = context_of(context, place) if context else ()
    return ir.ExpectedCheck(found.subject, found.relation, found.object, expected, values, place)


def _expected(validation: Located, name: str) -> Expected:
    place = validation.place_of_key(name)
    subjects = tuple(_expected_subject(str(text), place) for text, place in validation.placed(name))
    return Expected(*permission_of(name.strip(), place), subjects, place)


def _expected_subject(text: str, place: ir.Place) -> ExpectedSubject:
    """Parse `[user:ann] is <document:plan#viewer>`; what follows the brackets is an explanation, and may change."""
    found = _IN_BRACKETS.match(text)
    if found is None:
        raise ir.wrong(place, f"`{text}` has no subject; write expected subjects in brackets: `[user:ann]`")
    excepted = [
        subject_of(each.strip().removesuffix("[...]"), place) for each in (found["but"] or "").split(",") if each
    ]
    return ExpectedSubject(subject_of(found["subject"], place), bool(found["caveated"]), tuple(excepted), place)


# ---- files --------------------------------------------------------------------------------------------------------
# Reads the given files: a schema or a validation file, then relationships or more validation files.

_YAML = (".yaml", ".yml")


def imported(schema: Path | str, others: Sequence[Path | str] = ()) -> ir.Imported:
    """Read the files. Raise `ImportRejected` with all errors."""
    read = SpiceDBFiles(Path(schema), [Path(each) for each in others])
    passed = spicedb_schema.passed_through(read.model)
    scenarios = tuple(found for name, file in read.files if (found := _scenario(name, file, passed)))
    return ir.Imported(read.model, tuple(read.tuples), scenarios)


class SpiceDBFiles:
    """The contents of all files, as written. Raise `ImportRejected` with all errors."""

    def __init__(self, schema: Path, others: Sequence[Path] = ()):
        self.tuples: list[ir.Tuple] = []
        self.files: list[tuple[str, ValidationFile]] = []  # by the names of their tests
        self._texts: list[spicedb_schema.SchemaText] = []
        self._imported: set[Path] = set()
        self._faults: list[ir.Fault] = []
        try:
            self._read(schema, is_first=True)
            for path in others:
                self._read(path, is_first=False)
        except ir.ImportRejected as reason:
            self._faults += reason.faults
        if self._faults:
            raise ir.ImportRejected(self._faults)
        self.model = spicedb_schema.model_of(self._texts)

    def _read(self, path: Path, is_first: bool) -> None:
        """Read a file; the first one has the schema, or names it."""
        source = _source(path)
        if path.suffix in _YAML:
            file = ValidationFile(source)
            self._faults += file.faults
            self.tuples += file.relationships
            self.files.append((path.stem, file))
            if is_first:
                self._schema_of(file, path)
        elif is_first:
            self._schema(source, path.parent)
        else:
            self.tuples += converted(relationship_of, lines_of(source), self._faults)

    def _schema(self, source: Source, folder: Path) -> None:
        """Parse a schema, after its imports."""
        text = spicedb_schema.parse(source)
        for each in text.imports:
            self._import(each, folder)
        self._texts.append(text)

    def _import(self, named: spicedb_schema.IncludedName, folder: Path) -> None:
        relative = PurePosixPath(named.name)
        path = None if relative.is_absolute() or ".." in relative.parts else neighbour_file(folder / "this", named.name)
        if path is None:
            raise ir.wrong(named.place, f"`{named.name}` is not a file below the folder of this one; move it there")
        if path not in self._imported:
            self._imported.add(path)
            self._schema(_source(path, named.place), path.parent)

    def _schema_of(self, file: ValidationFile, path: Path) -> None:
        name, place = file.parts.text("schemaFile"), file.parts.place_of("schemaFile")
        if file.schema is not None and name:
            raise ir.wrong(place, "`schema` and `schemaFile` cannot both be given; remove one")
        if file.schema is not None:
            self._schema(file.schema, path.parent)
        elif name:
            named = neighbour_file(path, name)
            if named is None:
                fault = f"`{name}` is not a file below this folder; name the schema in the command, first"
                raise ir.wrong(place, fault)
            self._schema(_source(named, place), named.parent)
        else:
            raise ir.wrong(ir.Place(str(path)), "this file has no `schema`; name the file with the schema first")


def _source(path: Path, place: ir.Place = ir.NOWHERE) -> Source:
    """Read a file, which may be named in another file at `place`."""
    try:
        return Source(text_of_file(str(path)), str(path))
    except Unreadable as reason:
        raise ir.wrong(place, reason.message) from None


# ---- tests ----------------------------------------------------------------------------------------------------------


def _scenario(name: str, file: ValidationFile, passed: frozenset[spicedb_schema.SubjectKind]) -> ir.Scenario | None:
    """Return the expectations of a validation file as a test."""
    expectations = [*file.asserted, *(each for one in file.expected for each in _listed(one, passed))]
    return ir.Scenario(name, (), tuple(expectations), expectations[0].place) if expectations else None


def _listed(
    expected: Expected, passed: frozenset[spicedb_schema.SubjectKind]
) -> Iterator[ir.ExpectedCheck | ir.SubjectList]:
    """Yield lists of exactly these subjects per type, and single checks where lists are not exact.

    If a wildcard has exclusions, each of these subjects is checked. Otherwise a list contains usersets from
    relationships. But a userset that a permission only passes through has the permission as well, and so has the
    userset of the relation itself: for these kinds, each expected subject is checked.
    """
    kinds: dict[spicedb_schema.SubjectKind, list[ir.Who]] = {}
    by_one = passed | {(expected.object.type, expected.relation)}
    by_one |= {(each.subject.type, each.subject.relation) for each in expected.subjects if each.excepted}
    for each in expected.subjects:
        kind = each.subject.type, each.subject.relation
        if kind in by_one or each.is_caveated:
            for who in (*([] if each.subject.is_everybody else [each.subject]), *each.excepted):
                holds = who == each.subject and not each.is_caveated
                yield ir.ExpectedCheck(who, expected.relation, expected.object, holds, (), each.place)
        if not each.is_caveated:
            kinds.setdefault(kind, []).append(each.subject)
    for (name, relation), found in kinds.items():
        if (name, relation) not in by_one:
            yield ir.SubjectList(expected.object, expected.relation, name, relation, tuple(found), (), expected.place)
