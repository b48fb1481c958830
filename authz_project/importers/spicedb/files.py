"""Reads the files that people bring: a schema or a validation file, then relationships or more validation files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from authz_project.importers.model import NOWHERE, Check, Imported, Place, Scenario, SubjectList, Tuple, Who
from authz_project.importers.neighbour_files import neighbour_file
from authz_project.importers.report import Fault, ImportRejected
from authz_project.importers.spicedb.parse import parse
from authz_project.importers.spicedb.passed_usersets import Kind, passed_through
from authz_project.importers.spicedb.relationships import lines_of, relationship_of
from authz_project.importers.spicedb.schema import Schema, schema_of
from authz_project.importers.spicedb.source_errors import SourceError
from authz_project.importers.spicedb.syntax import Import, SchemaText
from authz_project.importers.spicedb.translate import model_of
from authz_project.importers.spicedb.validation_file import (
    Asserted,
    Expected,
    ValidationFile,
    validation_file_of,
)
from policy.files import Unreadable, text_of_file
from policy.language.source import Source

_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Read:
    """All that the files say, as it was written."""

    schema: Schema
    tuples: tuple[Tuple, ...] = ()
    files: tuple[tuple[str, ValidationFile], ...] = ()  # by the names of their tests


def imported(schema: Path, others: Sequence[Path] = ()) -> Imported:
    """Read the files. Raise `ImportRejected` with all that is wrong in them."""
    read = read_files(schema, others)
    passed = passed_through(read.schema)
    scenarios = tuple(found for name, file in read.files if (found := _scenario(name, file, passed)))
    try:
        return Imported(model_of(read.schema), read.tuples, scenarios)
    except SourceError as wrong:
        raise ImportRejected([wrong.fault]) from None


def read_files(schema: Path, others: Sequence[Path] = ()) -> Read:
    return _Reading().read(schema, others)


@dataclass
class _Reading:
    faults: list[Fault] = field(default_factory=list)
    texts: list[SchemaText] = field(default_factory=list)
    tuples: list[Tuple] = field(default_factory=list)
    files: list[tuple[str, ValidationFile]] = field(default_factory=list)
    imported: set[Path] = field(default_factory=set)

    def read(self, schema: Path, others: Sequence[Path]) -> Read:
        try:
            self._first(schema)
            for path in others:
                self._another(path)
        except SourceError as wrong:
            self.faults.append(wrong.fault)
        if self.faults:
            raise ImportRejected(self.faults)
        return Read(schema_of(self.texts), tuple(self.tuples), tuple(self.files))

    def _first(self, path: Path) -> None:
        if path.suffix in _YAML:
            self._validation(path, is_first=True)
        else:
            self._schema(_source(path), path.parent)

    def _another(self, path: Path) -> None:
        if path.suffix in _YAML:
            self._validation(path, is_first=False)
            return
        for text, place in lines_of(_source(path)):
            try:
                self.tuples.append(relationship_of(text, place))
            except SourceError as wrong:
                self.faults.append(wrong.fault)

    def _schema(self, source: Source, folder: Path) -> None:
        """Parse a schema, after what it imports."""
        text = parse(source)
        for each in text.imports:
            self._import(each, folder)
        self.texts.append(text)

    def _import(self, named: Import, folder: Path) -> None:
        relative = PurePosixPath(named.path)
        path = None if relative.is_absolute() or ".." in relative.parts else neighbour_file(folder / "this", named.path)
        if path is None:
            raise SourceError(
                f"`{named.path}` is no file below the folder of this one; imports stay there", named.place
            )
        if path not in self.imported:
            self.imported.add(path)
            self._schema(_source(path, named.place), path.parent)

    def _validation(self, path: Path, is_first: bool) -> None:
        file = validation_file_of(_source(path))
        self.faults += [wrong.fault for wrong in file.wrong]
        self.tuples += file.relationships
        self.files.append((path.stem, file))
        if is_first:
            self._schema_of(file, path)

    def _schema_of(self, file: ValidationFile, path: Path) -> None:
        if file.schema is not None and file.schema_file:
            raise SourceError("there is a `schema` beside this; keep one of them", file.schema_file_place)
        if file.schema is not None:
            self._schema(file.schema, path.parent)
        elif file.schema_file:
            named = neighbour_file(path, file.schema_file)
            if named is None:
                fault = f"`{file.schema_file}` is no file below the folder of this one; name the schema in the command"
                raise SourceError(f"{fault}, first", file.schema_file_place)
            self._schema(_source(named, file.schema_file_place), named.parent)
        else:
            raise SourceError("this file has no `schema`; name the file with the schema first", Place(str(path)))


def _source(path: Path, place: Place = NOWHERE) -> Source:
    """Return the source of a file, which may be named in another."""
    try:
        return Source(text_of_file(str(path)), str(path))
    except Unreadable as reason:
        raise SourceError(reason.message, place) from None


# ---- tests ----------------------------------------------------------------------------------------------------------


def _scenario(name: str, file: ValidationFile, passed: frozenset[Kind]) -> Scenario | None:
    """Return what a validation file expects."""
    expectations = [*map(_check, file.asserted), *(each for one in file.expected for each in _listed(one, passed))]
    return Scenario(name, (), tuple(expectations), expectations[0].place) if expectations else None


def _check(asserted: Asserted) -> Check:
    """Return the check: what caveats have yet to decide is granted to nobody."""
    return Check(
        asserted.subject,
        asserted.relation,
        asserted.object,
        asserted.expected is True,
        asserted.context,
        asserted.place,
    )


def _listed(expected: Expected, passed: frozenset[Kind]) -> Iterator[Check | SubjectList]:
    """Expect exactly these of each type that is named; where some are taken out of everybody, each by itself.

    A list names the usersets that relationships name. One that a permission only passes through on its way has the
    permission all the same, and so has the one that is asked about: of such kinds, each that is listed is asked.
    """
    kinds: dict[Kind, list[Who]] = {}
    by_one = passed | {(expected.object.type, expected.relation)}
    by_one |= {(each.subject.type, each.subject.relation) for each in expected.subjects if each.excepted}
    for each in expected.subjects:
        kind = each.subject.type, each.subject.relation
        if kind in by_one or each.is_caveated:
            for who in (*([] if each.subject.is_everybody else [each.subject]), *each.excepted):
                holds = who == each.subject and not each.is_caveated
                yield Check(who, expected.relation, expected.object, holds, (), each.place)
        if not each.is_caveated:
            kinds.setdefault(kind, []).append(each.subject)
    for (name, relation), found in kinds.items():
        if (name, relation) not in by_one:
            yield SubjectList(expected.object, expected.relation, name, relation, tuple(found), (), expected.place)
