"""Read schemas, relationships and validation files of SpiceDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from authz_project.importers.cel import test_of
from authz_project.importers.files import (
    Comments,
    Grammar,
    NotParsed,
    SyntaxTree,
    neighbour_file,
    node_of_yaml,
    pairs_of,
    value_of_json,
)
from authz_project.importers.model import (
    NOWHERE,
    Arrow,
    Computed,
    ContextValues,
    Direct,
    Exclusion,
    ExpectedCheck,
    Expression,
    Fault,
    Imported,
    ImportRejected,
    Intersection,
    Itself,
    Model,
    ModelCondition,
    ModelParameter,
    ModelRelation,
    ModelWords,
    Nothing,
    Place,
    Scenario,
    Subject,
    SubjectList,
    Thing,
    Tuple,
    Type,
    Union,
    Who,
    faults_of,
    leaves,
    refuse,
    relations_of,
    repeated,
    wrong,
)
from policy.files import Unreadable, text_of_file
from policy.language.source import Source
from policy.rules.declarations import did_you_mean

# ---- one file -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartialNamed:
    """`...name`: includes the contents of the partial."""

    name: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Definition:
    name: str
    members: tuple[ModelRelation | PartialNamed, ...]
    is_partial: bool = False
    comment: tuple[str, ...] = ()
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ImportStatement:
    path: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SchemaText:
    """One file as written, without resolving names."""

    comment: tuple[str, ...]  # at the start and at the end of the file
    definitions: tuple[Definition, ...]
    conditions: tuple[ModelCondition, ...]
    imports: tuple[ImportStatement, ...]


_GRAMMAR = Grammar(
    r"""
    start: (definition | caveat | partial | import | use | ";")*
    definition: "definition" path _members
    partial: "partial" path _members
    _members: OPEN (relation | permission | named | ";")* "}"
    named: _DOTS path
    relation: "relation" NAME ":" subject ("|" subject)*
    subject: path [userset | everybody] ["with" path [AND NAME]]
    userset: "#" (NAME | _DOTS)
    everybody: ":" "*"
    permission: "permission" NAME (":" path ("|" path)*)? "=" term
    ?term: common (_MINUS common)*
    ?common: sum ("&" sum)*
    ?sum: single ("+" single)*
    ?single: NAME -> computed | along | "(" term ")"
    along: NAME _ARROW NAME | NAME _DOT NAME "(" NAME ")"
    path: NAME (_SLASH NAME)*
    caveat: "caveat" path "(" parameter ("," parameter)* ")" body
    parameter: NAME type
    type: NAME ("<" type ("," type)* ">")?
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


def place_in(source: Source, offset: int) -> Place:
    return Place(source.filename, *source.position(offset))


def parse(source: Source) -> SchemaText:
    """Parse a schema. Raise `ImportRejected` if it is invalid."""
    return _SchemaReader(source).read()


def tree_of(source: Source) -> SyntaxTree:
    try:
        return _GRAMMAR.parse(source.text)
    except NotParsed as reason:
        message = reason.message
        if source.text.startswith("/*", reason.at):
            message = "this comment has no end; close it with `*/`"
        elif reason.found in ("_ARROW", "_DOT"):
            message = "one arrow takes one step; make a permission of it on the type between, and refer to that"
        raise wrong(place_in(source, reason.at), message) from None


class _SchemaReader:
    """Traverses the syntax tree of a schema in order, so that comments stay with what they describe."""

    def __init__(self, source: Source):
        self.source = source
        self.comments = Comments(
            source.text,
            ((*each.span(), _lines_of(each[0])) for each in _COMMENT.finditer(source.text) if each["comment"]),
        )
        self.flags: set[str] = set()

    def read(self) -> SchemaText:
        tree = tree_of(self.source)
        head = self._comment_at_the_start(tree)
        found: dict[str, list[Any]] = {"definition": [], "caveat": [], "import": []}
        for each in tree.children:
            comment = self.comments.until(each.meta.start_pos)
            match each.data:
                case "use":
                    self._use(each, bool(found["definition"] or found["caveat"]))
                    head += comment
                case "import":
                    found["import"].append(ImportStatement(each.children[0][1:-1], self.place(each)))
                    head += comment
                case "caveat":
                    found["caveat"].append(self._caveat(each, comment))
                case _:
                    found["definition"].append(self._definition(each, comment))
        head += self.comments.until(len(self.source.text))
        return SchemaText(head, *map(tuple, found.values()))

    def place(self, node: SyntaxTree) -> Place:
        return place_in(self.source, (node.meta if hasattr(node, "meta") else node).start_pos)

    def _comment_at_the_start(self, tree: SyntaxTree) -> tuple[str, ...]:
        """Return the comments above the first blank line: they describe the file, and not its first definition."""
        text = self.source.text
        start, first = len(text) - len(text.lstrip()), tree.children[0].meta.start_pos if tree.children else len(text)
        free = re.compile(r"\n[ \t\r]*\n").search(text, start, first)
        return self.comments.until(free.start()) if free else ()

    def _use(self, tree: SyntaxTree, is_late: bool) -> None:
        (flag,) = tree.children
        if flag not in _FLAGS:
            known = ", ".join(_FLAGS)
            raise wrong(self.place(flag), f"nobody knows what `use {flag}` means; known are {known}")
        if is_late:
            raise wrong(self.place(tree), f"`use {flag}` stands behind a definition; move it to the top")
        self.flags.add(str(flag))

    # ---- definitions ------------------------------------------------------------------------------------------------

    def _definition(self, tree: SyntaxTree, comment: tuple[str, ...]) -> Definition:
        path, opening, *members = tree.children
        comment += self.comments.beside(opening.end_pos)
        read = tuple(map(self._member, members))
        comment += self.comments.until(tree.meta.end_pos)
        return Definition(_path(path), read, tree.data == "partial", comment, self.place(tree))

    def _member(self, tree: SyntaxTree) -> ModelRelation | PartialNamed:
        place = self.place(tree)
        if tree.data == "named":
            return PartialNamed(_path(tree.children[0]), place)
        comment = self.comments.until(tree.meta.start_pos) + self.comments.beside(tree.meta.end_pos)
        name, *parts = tree.children
        if tree.data == "permission":  # the types before its expression are known from the relations anyway
            return ModelRelation(str(name), self._expression(parts[-1]), (), True, comment, place)
        return ModelRelation(str(name), Direct(place), tuple(map(self._subject, parts)), False, comment, place)

    def _subject(self, tree: SyntaxTree) -> Subject:
        path, kind, given, _and, end = tree.children
        relation = str(kind.children[0]) if kind and kind.children else None
        condition, expires = _path(given) if given else None, False
        if "expiration" in self.flags and condition == "expiration":
            condition, expires = None, True
            if _and:
                raise wrong(self.place(_and), "the caveat comes first: `with caveat and expiration`")
        elif _and:
            if "expiration" not in self.flags or end != "expiration":
                raise wrong(self.place(end), f"expected `expiration`, after `use expiration`, found `{end}`")
            expires = True
        is_everybody = bool(kind) and kind.data == "everybody"
        return Subject(_path(path), relation, is_everybody, condition, expires, self.place(tree))

    def _expression(self, tree: SyntaxTree) -> Expression:
        """Convert an expression. `-` has the lowest precedence, then `&`, then `+`."""
        place = self.place(tree)
        match tree.data, tree.children:
            case "computed", ["nil"]:
                return Nothing()
            case "computed", ["self"] if "self" in self.flags:
                return Itself(place)
            case "computed", [name]:
                return Computed(str(name), place)
            case "along", [relation, target]:
                return Arrow(str(relation), str(target), False, place)
            case "along", [relation, ("any" | "all") as function, target]:
                return Arrow(str(relation), str(target), function == "all", place)
            case "along", [_, function, _]:
                raise wrong(self.place(function), f"`{function}` is no arrow; write `any` or `all`")
            case "term", parts:
                return reduce(Exclusion, map(self._expression, parts))
            case "common", parts:
                return Intersection(tuple(_flat(map(self._expression, parts), Intersection)))
        return Union(tuple(_flat(map(self._expression, tree.children), Union)))

    # ---- caveats ----------------------------------------------------------------------------------------------------

    def _caveat(self, tree: SyntaxTree, comment: tuple[str, ...]) -> ModelCondition:
        path, *parameters, body = tree.children
        start, end = body.children[1].start_pos, body.children[-2].end_pos
        name, text = _path(path), self.source.text[start:end]
        comment += self.comments.beside(tree.meta.end_pos)
        read = tuple(ModelParameter(str(each.children[0]), _type(each.children[1]), self.place(each))
                     for each in parameters)  # fmt: skip

        def place_of(offset: int) -> Place:
            return place_in(self.source, start + offset)

        try:
            return ModelCondition(name, read, test_of(text, read, place_of), text, comment, self.place(tree))
        except NotParsed as reason:
            raise wrong(place_of(reason.at), f"the condition of `{name}`: {reason.message}") from None


def _path(tree: SyntaxTree) -> str:
    return "/".join(tree.children)


def _type(tree: SyntaxTree) -> str:
    name, *inner = tree.children
    return f"{name}<{', '.join(map(_type, inner))}>" if inner else str(name)


def _flat(parts: Iterable[Expression], kind: type[Union | Intersection]) -> Iterator[Expression]:
    """Yield the parts, flattened: `(a + b) + c` has three."""
    for part in parts:
        yield from part.parts if isinstance(part, kind) else (part,)


def _lines_of(comment: str) -> list[str]:
    """Return the lines of a comment without comment marks."""
    if comment.startswith("//"):
        return [comment.lstrip("/").strip()]
    inner = comment.removeprefix("/*").removesuffix("*/").strip("*")
    lines = [line.strip().lstrip("*").strip() for line in inner.split("\n")]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


# ---- combining schemas --------------------------------------------------------------------------------------------
# Several texts -> one model: partials are expanded, and all names are checked.


_WORDS = ModelWords("definition", "caveat", follows_everybody=False, leads_to_nothing=True)


def model_of(texts: Sequence[SchemaText]) -> Model:
    """Combine the texts. Raise `ImportRejected` with all errors."""
    written = [definition for text in texts for definition in text.definitions]
    conditions = tuple(condition for text in texts for condition in text.conditions)
    faults = [*repeated([*written, *conditions], "there is another definition, partial or caveat")]
    partials = _Partials({each.name: each for each in written if each.is_partial}, faults)
    types = tuple(partials.put_into(each) for each in written if not each.is_partial)
    model = Model(types, conditions, tuple(line for text in texts for line in text.comment))
    refuse([*faults, *faults_of(model, _WORDS)])
    return model


@dataclass
class _Partials:
    by_name: dict[str, Definition]
    faults: list[Fault]

    def put_into(self, definition: Definition) -> Type:
        members = tuple(self._members(definition, ()))
        return Type(definition.name, members, definition.comment, definition.place)

    def _members(self, definition: Definition, within: tuple[str, ...]) -> Iterator[ModelRelation]:
        for member in definition.members:
            if not isinstance(member, PartialNamed):
                yield member
            elif member.name in within:
                self.faults.append(Fault(member.place, f"the partial `{member.name}` contains itself; remove this"))
            elif member.name not in self.by_name:
                meant = did_you_mean(member.name, self.by_name)
                advice = f"there is no partial `{member.name}`{f'; {meant}' if meant else ''}"
                self.faults.append(Fault(member.place, advice))
            else:
                yield from self._members(self.by_name[member.name], (*within, member.name))


# ---- usersets that permissions pass through -----------------------------------------------------------------------
# For example `group#member`, if a permission refers to `member` there, or to `->member` on the way to it.

SubjectKind = tuple[str, str | None]  # a type, and the relation of a userset


def passed_through(model: Model) -> frozenset[SubjectKind]:
    return frozenset(
        kind
        for type_, relation in relations_of(model)
        if relation.is_permission
        for leaf, _ in leaves(relation.expression)
        for kind in _of_leaf(leaf, type_)
    )


def _of_leaf(leaf: Expression, type_: Type) -> Iterator[SubjectKind]:
    if isinstance(leaf, Computed):
        yield type_.name, leaf.relation
    elif isinstance(leaf, Arrow):
        for relation in type_.relations:
            if relation.name == leaf.tupleset:
                yield from ((subject.type, leaf.relation) for subject in relation.subjects)


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


def lines_of(source: Source) -> Iterator[tuple[str, Place]]:
    """Yield the lines of a text that are neither blank nor comments, each with its place."""
    for found in re.finditer(r"[^\n]+", source.text):
        text = found[0].strip(" \t\r\f\v\ufeff")
        if text and not text.startswith("//"):
            yield text, place_in(source, found.start() + found[0].find(text))


def relationship_of(text: str, place: Place) -> Tuple:
    found = _RELATIONSHIP.fullmatch(text)
    if found is None:
        raise wrong(place, f"`{text}` is no relationship; one looks like `document:plan#viewer@user:ann`")
    values = context_of(found["context"], place) if found["context"] else ()
    end = _end(found["end"], place) if found["end"] else None
    thing = Thing(found["type"], found["id"])
    return Tuple(thing, found["relation"], _who(found), found["caveat"], values, end, place)


def subject_of(text: str, place: Place) -> Who:
    found = _SUBJECT_ALONE.fullmatch(text)
    if found is None:
        raise wrong(place, f"`{text}` is no subject; one looks like `user:ann` or `group:eng#member`")
    return _who(found)


def permission_of(text: str, place: Place) -> tuple[Thing, str]:
    """Parse an object and the name of its relation or permission."""
    found = _RESOURCE_ALONE.fullmatch(text)
    if found is None:
        raise wrong(place, f"`{text}` is no permission of a resource; one looks like `document:plan#view`")
    return Thing(found["type"], found["id"]), found["relation"]


def context_of(text: str, place: Place) -> ContextValues:
    """Parse names and values written as JSON."""
    try:
        context = value_of_json(text)
    except ValueError as reason:
        raise wrong(place, f"`{text}` is no JSON: {reason}") from None
    if not isinstance(context, dict):
        raise wrong(place, f'`{text}` names no values; write an object, such as `{{"hour": 9}}`')
    return tuple(context.items())


def _who(found: re.Match[str]) -> Who:
    relation = found["subject_relation"]
    return Who(found["subject_type"], found["subject"], None if relation == "..." else relation)


def _end(text: str, place: Place) -> datetime:
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(place, f"`{text}` is no time; one looks like `2030-01-01T00:00:00Z`") from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)


# ---- validation files ---------------------------------------------------------------------------------------------
# YAML with a schema (or the name of its file), relationships, assertions, and expected relations.
#
# Every part keeps its place in the file, so that error messages have the file's line numbers.

_EXPECTED = {"assertTrue": True, "assertFalse": False, "assertCaveated": False}
_KNOWN = ("schema", "schemaFile", "relationships", "assertions", "validation", "namespace_configs", "validation_tuples")
_OLD = {"namespace_configs": "write `schema`", "validation_tuples": "write `relationships`"}
_IN_BRACKETS = re.compile(r"\s*\[(?P<subject>[^\s\]\[]+)(?P<caveated>\[\.\.\.\])?(?:\s+-\s+\{(?P<but>[^}]+)\})?\]")


@dataclass(frozen=True)
class ExpectedSubject:
    """`[user:ann]`, `[user:bob[...]]` if caveats decide, or `[user:* - {user:eve}]`."""

    subject: Who
    is_caveated: bool
    excepted: tuple[Who, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Expected:
    """All subjects of a relation or permission: exactly these."""

    object: Thing
    relation: str
    subjects: tuple[ExpectedSubject, ...]
    place: Place = field(default=NOWHERE, compare=False)


def validation_file_of(source: Source) -> ValidationFile:
    """Read a validation file. Raise `ImportRejected` if it is invalid; errors of single lines are in the result."""
    try:
        root = node_of_yaml(source.text)
        if isinstance(root, yaml.MappingNode):
            return ValidationFile(source, _parts_of(root, source))
    except yaml.YAMLError as reason:
        mark = getattr(reason, "problem_mark", None)
        place = place_in(source, mark.index) if mark else Place(source.filename)
        raise wrong(place, f"this is no YAML: {getattr(reason, 'problem', reason)}") from None
    message = "a validation file has `schema`, `relationships` and `assertions`; this has none of them"
    raise wrong(Place(source.filename), message)


def _parts_of(root: yaml.MappingNode, source: Source) -> dict[str, yaml.Node]:
    parts = {}
    for name, key, value in pairs_of(root):
        if name not in _KNOWN or name in _OLD:
            advice = _OLD.get(name, f"known are {', '.join(_KNOWN[:5])}")
            raise wrong(place_in(source, key.start_mark.index), f"a validation file has no `{name}`; {advice}")
        parts[name] = value
    return parts


class ValidationFile:
    """The contents of a validation file; `schema` is embedded, `schema_file` names a separate file."""

    def __init__(self, source: Source, parts: dict[str, yaml.Node]):
        self.source, self.parts = source, parts
        self.faults: list[Fault] = []  # errors of single lines
        self.relationships = tuple(self._relationships())
        self.asserted = tuple(self._asserted())
        self.expected = tuple(self._expected())
        named = self._scalar("schemaFile")
        self.schema_file: str = named.value if named else ""
        self.schema_file_place = self._place(named) if named else NOWHERE
        self.schema = self._schema()

    def _scalar(self, part: str) -> yaml.ScalarNode | None:
        node = self.parts.get(part)
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return None
        if not isinstance(node, yaml.ScalarNode):
            raise wrong(self._place(node), f"`{part}` is a text")
        return node

    def _schema(self) -> Source | None:
        """Return the schema with its place in the file, if its tokens there are the same as in the parsed YAML."""
        node = self._scalar("schema")
        if node is None:
            return None
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            start = self.source.text.find("\n", start)  # after the indicator, as in `schema: |+`
        text = self.source.text
        blanked = Source(_blank(text[:start]) + text[start:end] + _blank(text[end:]), self.source.filename)
        alone = Source(node.value, f"{self.source.filename} (schema)")
        try:
            same = bool(tree_of(blanked) == tree_of(alone))
        except ImportRejected:
            same = node.style == "|"
        return blanked if same else alone

    def _relationships(self) -> Iterator[Tuple]:
        node = self._scalar("relationships")
        for text, place in self._placed(node) if node else ():
            try:
                yield relationship_of(text, place)
            except ImportRejected as reason:
                self.faults += reason.faults

    def _placed(self, node: yaml.ScalarNode) -> Iterator[tuple[str, Place]]:
        """Yield the lines of a text, each with its place in the file."""
        reached = node.start_mark.index
        for text, _ in lines_of(Source(node.value)):
            found = self.source.text.find(text, reached, node.end_mark.index)
            reached = reached if found < 0 else found
            yield text, place_in(self.source, reached)

    # ---- assertions -------------------------------------------------------------------------------------------------

    def _asserted(self) -> Iterator[ExpectedCheck]:
        for name, key, node in self._mapping("assertions"):
            if name not in _EXPECTED:
                raise wrong(self._place(key), f"there is no `{name}`; known are {', '.join(_EXPECTED)}")
            for item in self._sequence(node, name):
                try:
                    yield self._assertion(item, _EXPECTED[name])
                except ImportRejected as reason:
                    self.faults += reason.faults

    def _assertion(self, item: yaml.Node, expected: bool) -> ExpectedCheck:
        place = self._place(item)
        if not isinstance(item, yaml.ScalarNode):
            raise wrong(place, "an assertion is a text, such as `document:plan#view@user:ann`")
        asked, _, context = item.value.strip().partition(" with ")
        found = relationship_of(asked.strip(), place)
        values = context_of(context, place) if context else ()
        return ExpectedCheck(found.subject, found.relation, found.object, expected, values, place)

    def _expected(self) -> Iterator[Expected]:
        for name, key, node in self._mapping("validation"):
            try:
                place = self._place(key)
                subjects = tuple(map(self._expected_subject, self._sequence(node, name)))
                yield Expected(*permission_of(name.strip(), place), subjects, place)
            except ImportRejected as reason:
                self.faults += reason.faults

    def _expected_subject(self, item: yaml.Node) -> ExpectedSubject:
        """Parse `[user:ann] is <document:plan#viewer>`; what follows the brackets is an explanation, and may change."""
        place = self._place(item)
        found = _IN_BRACKETS.match(str(item.value))
        if found is None:
            raise wrong(place, f"`{item.value}` says nobody; one who is expected stands in brackets: `[user:ann]`")
        excepted = [
            subject_of(text.strip().removesuffix("[...]"), place) for text in (found["but"] or "").split(",") if text
        ]
        return ExpectedSubject(subject_of(found["subject"], place), bool(found["caveated"]), tuple(excepted), place)

    def _mapping(self, part: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        node = self.parts.get(part)
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return []
        if not isinstance(node, yaml.MappingNode):
            raise wrong(self._place(node), f"`{part}` is a map")
        return list(pairs_of(node))

    def _sequence(self, node: yaml.Node, part: str) -> list[yaml.Node]:
        if node.tag == "tag:yaml.org,2002:null":
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise wrong(self._place(node), f"`{part}` is a list")
        return list(node.value)

    def _place(self, node: yaml.Node) -> Place:
        return place_in(self.source, node.start_mark.index)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


# ---- files --------------------------------------------------------------------------------------------------------
# Reads the given files: a schema or a validation file, then relationships or more validation files.

_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class SpiceDBFiles:
    """The contents of all files, as written."""

    model: Model
    tuples: tuple[Tuple, ...] = ()
    files: tuple[tuple[str, ValidationFile], ...] = ()  # by the names of their tests


def imported(schema: Path | str, others: Sequence[Path | str] = ()) -> Imported:
    """Read the files. Raise `ImportRejected` with all errors."""
    read = read_files(Path(schema), [Path(each) for each in others])
    passed = passed_through(read.model)
    scenarios = tuple(found for name, file in read.files if (found := _scenario(name, file, passed)))
    return Imported(read.model, read.tuples, scenarios)


def read_files(schema: Path, others: Sequence[Path] = ()) -> SpiceDBFiles:
    return _FileReader().read(schema, others)


@dataclass
class _FileReader:
    faults: list[Fault] = field(default_factory=list)
    texts: list[SchemaText] = field(default_factory=list)
    tuples: list[Tuple] = field(default_factory=list)
    files: list[tuple[str, ValidationFile]] = field(default_factory=list)
    imported: set[Path] = field(default_factory=set)

    def read(self, schema: Path, others: Sequence[Path]) -> SpiceDBFiles:
        try:
            self._first(schema)
            for path in others:
                self._another(path)
        except ImportRejected as reason:
            self.faults += reason.faults
        if self.faults:
            raise ImportRejected(self.faults)
        return SpiceDBFiles(model_of(self.texts), tuple(self.tuples), tuple(self.files))

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
            except ImportRejected as reason:
                self.faults += reason.faults

    def _schema(self, source: Source, folder: Path) -> None:
        """Parse a schema, after its imports."""
        text = parse(source)
        for each in text.imports:
            self._import(each, folder)
        self.texts.append(text)

    def _import(self, named: ImportStatement, folder: Path) -> None:
        relative = PurePosixPath(named.path)
        path = None if relative.is_absolute() or ".." in relative.parts else neighbour_file(folder / "this", named.path)
        if path is None:
            raise wrong(named.place, f"`{named.path}` is no file below the folder of this one; imports stay there")
        if path not in self.imported:
            self.imported.add(path)
            self._schema(_source(path, named.place), path.parent)

    def _validation(self, path: Path, is_first: bool) -> None:
        file = validation_file_of(_source(path))
        self.faults += file.faults
        self.tuples += file.relationships
        self.files.append((path.stem, file))
        if is_first:
            self._schema_of(file, path)

    def _schema_of(self, file: ValidationFile, path: Path) -> None:
        if file.schema is not None and file.schema_file:
            raise wrong(file.schema_file_place, "there is a `schema` beside this; keep one of them")
        if file.schema is not None:
            self._schema(file.schema, path.parent)
        elif file.schema_file:
            named = neighbour_file(path, file.schema_file)
            if named is None:
                fault = f"`{file.schema_file}` is no file below the folder of this one; name the schema in the command"
                raise wrong(file.schema_file_place, f"{fault}, first")
            self._schema(_source(named, file.schema_file_place), named.parent)
        else:
            raise wrong(Place(str(path)), "this file has no `schema`; name the file with the schema first")


def _source(path: Path, place: Place = NOWHERE) -> Source:
    """Read a file, which may be named in another file at `place`."""
    try:
        return Source(text_of_file(str(path)), str(path))
    except Unreadable as reason:
        raise wrong(place, reason.message) from None


# ---- tests ----------------------------------------------------------------------------------------------------------


def _scenario(name: str, file: ValidationFile, passed: frozenset[SubjectKind]) -> Scenario | None:
    """Return the expectations of a validation file as a test."""
    expectations = [*file.asserted, *(each for one in file.expected for each in _listed(one, passed))]
    return Scenario(name, (), tuple(expectations), expectations[0].place) if expectations else None


def _listed(expected: Expected, passed: frozenset[SubjectKind]) -> Iterator[ExpectedCheck | SubjectList]:
    """Yield lists of exactly these subjects per type, and single checks where lists are not exact.

    If a wildcard has exclusions, each of these subjects is checked. Otherwise a list contains usersets from
    relationships. But a userset that a permission only passes through has the permission as well, and so has the
    userset of the relation itself: for these kinds, each expected subject is checked.
    """
    kinds: dict[SubjectKind, list[Who]] = {}
    by_one = passed | {(expected.object.type, expected.relation)}
    by_one |= {(each.subject.type, each.subject.relation) for each in expected.subjects if each.excepted}
    for each in expected.subjects:
        kind = each.subject.type, each.subject.relation
        if kind in by_one or each.is_caveated:
            for who in (*([] if each.subject.is_everybody else [each.subject]), *each.excepted):
                holds = who == each.subject and not each.is_caveated
                yield ExpectedCheck(who, expected.relation, expected.object, holds, (), each.place)
        if not each.is_caveated:
            kinds.setdefault(kind, []).append(each.subject)
    for (name, relation), found in kinds.items():
        if (name, relation) not in by_one:
            yield SubjectList(expected.object, expected.relation, name, relation, tuple(found), (), expected.place)
