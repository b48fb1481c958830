"""Parse schemas of SpiceDB, and combine them into a model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from authz_project.importers import ir
from authz_project.importers.files import Grammar, NotParsed, SyntaxTree, place_in
from authz_project.importers.language import FILE, LanguageReader, path_of
from policy.language.source import Source
from policy.rules.declarations import did_you_mean

# ---- one file -----------------------------------------------------------------------------------------------------


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


_GRAMMAR = Grammar(
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


def tree_of(source: Source) -> SyntaxTree:
    try:
        return _GRAMMAR.parse(source.text)
    except NotParsed as reason:
        message = reason.message
        if source.text.startswith("/*", reason.at):
            message = "unterminated comment; close it with `*/`"
        elif reason.found in ("_ARROW", "_DOT"):
            message = "arrows cannot be chained; declare a permission on the type in between, and use that"
        raise ir.wrong(place_in(source, reason.at), message) from None


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

    def _first_blank_line(self, tree: SyntaxTree) -> list[int]:
        """Return where the first blank line is: comments above it describe the file."""
        text = self.source.text
        start, first = len(text) - len(text.lstrip()), tree.children[0].meta.start_pos if tree.children else len(text)
        free = re.compile(r"\n[ \t\r]*\n").search(text, start, first)
        return [free.start()] if free else []

    def _use(self, tree: SyntaxTree, is_late: bool) -> None:
        (flag,) = tree.children
        if flag not in _FLAGS:
            known = ", ".join(_FLAGS)
            raise ir.wrong(self.place(flag), f"unknown feature `use {flag}`; use one of {known}")
        if is_late:
            raise ir.wrong(self.place(tree), f"`use {flag}` must precede all definitions; move it to the top")
        self.flags.add(str(flag))

    # ---- definitions ------------------------------------------------------------------------------------------------

    def _definition(self, tree: SyntaxTree) -> Definition:
        path, _, *members = tree.children
        read, comment = tuple(map(self._member, members)), self.comment(tree.meta.start_pos)
        return Definition(path_of(path), read, tree.data == "partial", comment, self.place(tree))

    def _member(self, tree: SyntaxTree) -> ir.ModelRelation | IncludedName:
        place = self.place(tree)
        if tree.data == "named":
            return IncludedName(path_of(tree.children[0]), place)
        comment = self.comment(tree.meta.start_pos)
        name, *parts = tree.children
        if tree.data == "permission":  # the types before its expression are known from the relations anyway
            return ir.ModelRelation(str(name), self.expression(parts[-1]), (), True, comment, place)
        subjects = tuple(map(self._subject, parts))
        return ir.ModelRelation(str(name), ir.Direct(place), subjects, False, comment, place)

    def _subject(self, tree: SyntaxTree) -> ir.Subject:
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

    def expression(self, tree: SyntaxTree) -> ir.Expression:
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
