"""Read files of SpiceDB: schemas, relationships, and validation files with assertions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from authz_project.importers import files, ir
from authz_project.importers.language import FILE, LanguageReader, path_of
from policy.files import Unreadable, text_of_file
from policy.language.source import Source
from policy.rules.declarations import did_you_mean

T = TypeVar("T")

# ---- schemas: one file --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IncludedName:
    """The partial that a definition includes (`...name`), or the path of the file that a schema imports."""

    name: str
    place: ir.Place = field(default=ir.NOWHERE, compare=False)


@dataclass(frozen=True)
class Definition:
    name: str
    members: tuple[ir.ModelRelation | IncludedName, ...]
    is_partial: bool = False
    comment: tuple[str, ...] = ()
    place: ir.Place = field(default=ir.NOWHERE, compare=False)


@dataclass(frozen=True)
class SchemaText:
    """One file as written, without resolving names."""

    comment: tuple[str, ...]  # at the start and at the end of the file
    definitions: tuple[Definition, ...]
    conditions: tuple[ir.ModelCondition, ...]
    imports: tuple[IncludedName, ...]


_GRAMMAR = files.Grammar(
    r"""
    start: (type | condition | partial | import | use | ";")*
    type: "definition" path _members
    partial: "partial" path _members
    _members: OPEN (relation | permission | named | ";")* "}"
    named: _DOTS path
    relation: "relation" NAME ":" subject ("|" subject)*
    subject: path [userset | everybody] ["with" path [AND NAME]]
    userset: "#" (NAME | _DOTS)
    everybody: ":" "*"
    permission: "permission" NAME (":" path ("|" path)*)? "=" term
    ?term: common | common (_MINUS common)+ -> exclusion
    ?common: sum | sum ("&" sum)+ -> intersection
    ?sum: single | single ("+" single)+ -> union
    ?single: NAME -> computed | NAME _ARROW NAME -> arrow | NAME _DOT NAME "(" NAME ")" -> along | "(" term ")"
    path: NAME (_SLASH NAME)*
    condition: "caveat" path "(" parameter ("," parameter)* ")" body
    parameter: NAME kind
    kind: NAME ("<" kind ("," kind)* ">")?
    !body: "{" _inside+ "}"
    !_inside: TEXT | OTHER | "{" _inside* "}"
    import: "import" PATH
    use: "use" NAME

    AND: "and"
    OPEN: "{"
    _ARROW: "->"
    _DOT: "."
    _MINUS: /-(?!>)/
    _DOTS: "..."
    _SLASH: /\/(?!\*)/
    NAME: /[^\W\d]\w*/
    PATH: /"[^"\n]*"|'[^'\n]*'/
    TEXT.2: /"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*'/
    OTHER.-1: /[^\s\ufeff{}"'\/]+|\/(?![\/*])/
    %ignore /[\s\ufeff]+|\/\/[^\n]*|\/\*[\s\S]*?\*\//
    """,
    {
        "NAME": "a name", "PATH": "the path of a file in quotes", "TEXT": "a condition", "OTHER": "a condition",
        "_SLASH": "`/`", "_MINUS": "`-`", "SEMICOLON": "", "_DOTS": "",
    },
)  # fmt: skip
_COMMENT = re.compile(
    r""""{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)"""
)
_FLAGS = ("expiration", "import", "partial", "self", "typechecking")


def parse(source: Source) -> SchemaText:
    """Parse a schema. Raise `ImportRejected` if it is invalid."""
    return _SchemaReader(source).read()


def tree_of(source: Source) -> files.SyntaxTree:
    try:
        return _GRAMMAR.parse(source.text)
    except files.NotParsed as reason:
        message = reason.message
        if source.text.startswith("/*", reason.at):
            message = "unterminated comment; close it with `*/`"
        elif reason.found in ("_ARROW", "_DOT"):
            message = "arrows cannot be chained; declare a permission on the type in between, and use that"
        raise ir.wrong(files.place_in(source, reason.at), message) from None


class _SchemaReader(LanguageReader):
    def __init__(self, source: Source):
        super().__init__(source)
        self.flags: set[str] = set()

    def read(self) -> SchemaText:
        tree = tree_of(self.source)
        found = ((each.start(), _lines_of(each[0])) for each in _COMMENT.finditer(self.source.text) if each["comment"])
        self.place_comments(tree, found, self._first_blank_line(tree))
        read: dict[str, list[Any]] = {"type": [], "condition": [], "import": []}
        for each in tree.children:
            match each.data:
                case "use":
                    self._use(each, bool(read["type"] or read["condition"]))
                case "import":
                    read["import"].append(IncludedName(each.children[0][1:-1], self.place(each)))
                case "condition":
                    read["condition"].append(replace(self.condition(each), place=self.place(each)))
                case _:
                    read["type"].append(self._definition(each))
        return SchemaText(self.comment(FILE), *map(tuple, read.values()))

    def _first_blank_line(self, tree: files.SyntaxTree) -> list[int]:
        """Return where the first blank line is: comments above it describe the file."""
        text = self.source.text
        start, first = len(text) - len(text.lstrip()), tree.children[0].meta.start_pos if tree.children else len(text)
        free = re.compile(r"\n[ \t\r]*\n").search(text, start, first)
        return [free.start()] if free else []

    def _use(self, tree: files.SyntaxTree, is_late: bool) -> None:
        (flag,) = tree.children
        if flag not in _FLAGS:
            known = ", ".join(_FLAGS)
            raise ir.wrong(self.place(flag), f"unknown feature `use {flag}`; use one of {known}")
        if is_late:
            raise ir.wrong(self.place(tree), f"`use {flag}` must precede all definitions; move it to the top")
        self.flags.add(str(flag))

    # ---- definitions ------------------------------------------------------------------------------------------------

    def _definition(self, tree: files.SyntaxTree) -> Definition:
        path, _, *members = tree.children
        read, comment = tuple(map(self._member, members)), self.comment(tree.meta.start_pos)
        return Definition(path_of(path), read, tree.data == "partial", comment, self.place(tree))

    def _member(self, tree: files.SyntaxTree) -> ir.ModelRelation | IncludedName:
        place = self.place(tree)
        if tree.data == "named":
            return IncludedName(path_of(tree.children[0]), place)
        comment = self.comment(tree.meta.start_pos)
        name, *parts = tree.children
        if tree.data == "permission":  # the types before its expression are known from the relations anyway
            return ir.ModelRelation(str(name), self.expression(parts[-1]), (), True, comment, place)
        subjects = tuple(map(self._subject, parts))
        return ir.ModelRelation(str(name), ir.Direct(place), subjects, False, comment, place)

    def _subject(self, tree: files.SyntaxTree) -> ir.Subject:
        *_, given, and_, end = tree.children
        condition, expires = path_of(given) if given else None, False
        if "expiration" in self.flags and condition == "expiration":
            condition, expires = None, True
            if and_:
                raise ir.wrong(self.place(and_), "the caveat comes first: `with caveat and expiration`")
        elif and_:
            if "expiration" not in self.flags or end != "expiration":
                raise ir.wrong(self.place(end), f"expected `expiration`, after `use expiration`, found `{end}`")
            expires = True
        return self.subject(tree, condition, expires)

    def expression(self, tree: files.SyntaxTree) -> ir.Expression:
        """Convert an expression. `-` has the lowest precedence, then `&`, then `+`."""
        match tree.data, tree.children:
            case "computed", ["nil"]:
                return ir.Nothing()
            case "computed", ["self"] if "self" in self.flags:
                return ir.Itself(self.place(tree))
            case "along", [relation, ("any" | "all") as function, target]:
                return ir.Arrow(str(relation), str(target), function == "all", self.place(tree))
            case "along", [_, function, _]:
                raise ir.wrong(self.place(function), f"unknown function `{function}`; use `any` or `all`")
        return super().expression(tree)


def _lines_of(comment: str) -> list[str]:
    """Return the lines of a comment without comment marks."""
    inner = comment.lstrip("/") if comment.startswith("//") else comment.strip("/").strip("*")
    return "\n".join(line.strip().lstrip("*").strip() for line in inner.split("\n")).strip("\n").split("\n")


# ---- combining schemas --------------------------------------------------------------------------------------------
# Several texts -> one model: partials are expanded, and all names are checked.


_WORDS = ir.ModelWords("definition", "caveat", follows_everybody=False, leads_to_nothing=True)


def model_of(texts: Sequence[SchemaText]) -> ir.Model:
    """Combine the texts. Raise `ImportRejected` with all errors."""
    written = [definition for text in texts for definition in text.definitions]
    conditions = tuple(condition for text in texts for condition in text.conditions)
    faults = [*ir.repeated([*written, *conditions], "duplicate definition, partial or caveat")]
    partials = {each.name: each for each in written if each.is_partial}
    types = [
        ir.Type(each.name, tuple(_members(each, partials, faults)), each.comment, each.place)
        for each in written
        if not each.is_partial
    ]
    model = ir.Model(tuple(types), conditions, tuple(line for text in texts for line in text.comment))
    ir.refuse([*faults, *ir.faults_of(model, _WORDS)])
    return model


def _members(
    definition: Definition, partials: dict[str, Definition], faults: list[ir.Fault]
) -> Iterator[ir.ModelRelation]:
    """Yield the relations and permissions of a definition, and of the partials that it includes, once each."""
    included: set[str] = set()
    pending = [*reversed(definition.members)]
    while pending:
        member = pending.pop()
        if not isinstance(member, IncludedName):
            yield member
        elif member.name not in partials:
            meant = did_you_mean(member.name, partials)
            advice = f"partial `{member.name}` does not exist{f'; {meant}' if meant else ''}"
            faults.append(ir.Fault(member.place, advice))
        elif member.name in included:
            faults.append(ir.Fault(member.place, f"partial `{member.name}` is included already; remove this"))
        else:
            included.add(member.name)
            pending += reversed(partials[member.name].members)


# ---- usersets that permissions pass through -----------------------------------------------------------------------
# For example `group#member`, if a permission refers to `member` there, or to `->member` on the way to it.

SubjectKind = tuple[str, str | None]  # a type, and the relation of a userset


def passed_through(model: ir.Model) -> frozenset[SubjectKind]:
    found: set[SubjectKind] = set()
    for type_, relation in ir.relations_of(model):
        for leaf, _ in ir.leaves(relation.expression):
            if isinstance(leaf, ir.Computed):
                found.add((type_.name, leaf.relation))
            elif isinstance(leaf, ir.Arrow):
                followed = (each for each in type_.relations if each.name == leaf.tupleset)
                found |= {(subject.type, leaf.relation) for each in followed for subject in each.subjects}
    return frozenset(found)


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
            yield text, files.place_in(source, found.start() + found[0].find(text))


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
        context = files.value_of_json(text)
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


class ExpectedSubject(NamedTuple):
    """`[user:ann]`, `[user:bob[...]]` if caveats decide, or `[user:* - {user:eve}]`."""

    subject: ir.Who
    is_caveated: bool
    excepted: list[ir.Who]
    place: ir.Place


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


def _expected_subject(text: str, place: ir.Place) -> ExpectedSubject:
    """Parse `[user:ann] is <document:plan#viewer>`; what follows the brackets is an explanation, and may change."""
    found = _IN_BRACKETS.match(text)
    if found is None:
        raise ir.wrong(place, f"`{text}` has no subject; write expected subjects in brackets: `[user:ann]`")
    excepted = [
        subject_of(each.strip().removesuffix("[...]"), place) for each in (found["but"] or "").split(",") if each
    ]
    return ExpectedSubject(subject_of(found["subject"], place), bool(found["caveated"]), excepted, place)


def _listed(
    validation: files.Located, name: str, passed: frozenset[SubjectKind]
) -> list[ir.ExpectedCheck | ir.SubjectList]:
    """Return lists of exactly these subjects per type, and single checks where lists are not exact.

    If a wildcard has exclusions, each of these subjects is checked. Otherwise a list contains usersets from
    relationships. But a userset that a permission only passes through has the permission as well, and so has the
    userset of the relation itself: for these kinds, each expected subject is checked.
    """
    place = validation.place_of_key(name)
    thing, permission = permission_of(name.strip(), place)
    expected = [_expected_subject(str(text), at) for text, at in validation.placed(name)]
    checks: list[ir.ExpectedCheck | ir.SubjectList] = []
    kinds: dict[SubjectKind, list[ir.Who]] = {}
    by_one = passed | {(thing.type, permission)}
    by_one |= {(each.subject.type, each.subject.relation) for each in expected if each.excepted}
    for each in expected:
        kind = each.subject.type, each.subject.relation
        if kind in by_one or each.is_caveated:
            for who in (*([] if each.subject.is_everybody else [each.subject]), *each.excepted):
                holds = who == each.subject and not each.is_caveated
                checks.append(ir.ExpectedCheck(who, permission, thing, holds, (), each.place))
        if not each.is_caveated:
            kinds.setdefault(kind, []).append(each.subject)
    lists = {kind: found for kind, found in kinds.items() if kind not in by_one}
    return [*checks, *(ir.SubjectList(thing, permission, *kind, (*found,), (), place) for kind, found in lists.items())]


# ---- files --------------------------------------------------------------------------------------------------------
# Reads the given files: a schema or a validation file, then relationships or more validation files.

_YAML = (".yaml", ".yml")


def imported(schema: Path | str, others: Sequence[Path | str] = ()) -> ir.Imported:
    """Read the found. Raise `ImportRejected` with all errors."""
    found = _Files()
    try:
        found.read(Path(schema), is_first=True)
        for each in others:
            found.read(Path(each), is_first=False)
    except ir.ImportRejected as reason:
        found.faults += reason.faults
    ir.refuse(found.faults)
    model = model_of(found.texts)
    passed = passed_through(model)
    scenarios = [found.scenario(name, parts, passed) for name, parts in found.validations]
    ir.refuse(found.faults)
    return ir.Imported(model, tuple(found.tuples), tuple(each for each in scenarios if each.expectations))


class _Files:
    """The contents of files; errors of single lines are in `faults`, others raise `ImportRejected`."""

    def __init__(self) -> None:
        self.tuples: list[ir.Tuple] = []
        self.validations: list[tuple[str, files.Located]] = []  # by the names of their tests
        self.texts: list[SchemaText] = []
        self.faults: list[ir.Fault] = []
        self._imported: set[Path] = set()

    def read(self, path: Path, is_first: bool) -> None:
        """Read a file; the first one has the schema, or names it."""
        source = _source(path)
        if path.suffix in _YAML:
            raw = files.read_yaml(source.text, source.filename)
            parts = files.mapping_of(raw, ir.Place(source.filename), "a validation file", _KNOWN)
            self.validations.append((path.stem, parts))
            if is_first:
                self._schema_of(parts, path)
            self._relationships(parts.source_of("relationships"))
        elif is_first:
            self._schema(source, path.parent)
        else:
            self._relationships(source)

    def _relationships(self, source: Source) -> None:
        self.tuples += converted(relationship_of, lines_of(source), self.faults)

    def scenario(self, name: str, parts: files.Located, passed: frozenset[SubjectKind]) -> ir.Scenario:
        """Return the expectations of a validation file as a test."""
        asserted, validation = parts.mapping("assertions"), parts.mapping("validation")
        asserted.check_keys(_EXPECTED)
        assertions = ((*each, _EXPECTED[kind]) for kind in asserted for each in asserted.placed(kind))
        lists = converted(_listed, ((validation, each, passed) for each in validation), self.faults)
        expectations = (*converted(_assertion, assertions, self.faults), *(each for found in lists for each in found))
        return ir.Scenario(name, (), expectations, expectations[0].place if expectations else ir.NOWHERE)

    def _schema(self, source: Source, folder: Path) -> None:
        """Parse a schema, after its imports."""
        text = parse(source)
        for each in text.imports:
            self._import(each, folder)
        self.texts.append(text)

    def _import(self, named: IncludedName, folder: Path) -> None:
        relative = PurePosixPath(named.name)
        path = (
            None
            if relative.is_absolute() or ".." in relative.parts
            else files.neighbour_file(folder / "this", named.name)
        )
        if path is None:
            raise ir.wrong(named.place, f"`{named.name}` is not a file below the folder of this one; move it there")
        if path not in self._imported:
            self._imported.add(path)
            self._schema(_source(path, named.place), path.parent)

    def _schema_of(self, parts: files.Located, path: Path) -> None:
        name, place, has_schema = (
            parts.text("schemaFile"),
            parts.place_of("schemaFile"),
            parts.get("schema") is not None,
        )
        if has_schema and name:
            raise ir.wrong(place, "`schema` and `schemaFile` cannot both be given; remove one")
        if has_schema:
            self._schema(parts.source_of("schema"), path.parent)
        elif name:
            named = files.neighbour_file(path, name)
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
