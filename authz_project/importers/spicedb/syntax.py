"""Parse the SpiceDB schema language."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from authz_project.importers.model import NOWHERE, Fault, Place
from policy.language.source import Source, Span

# ---- The error of a text that cannot be imported, with the place where it is wrong --------------------------------


class SourceError(Exception):
    """Says what is wrong, and where."""

    def __init__(self, message: str, place: Place = NOWHERE):
        super().__init__(message)
        self.message, self.place = message, place

    @property
    def fault(self) -> Fault:
        return Fault(self.place, self.message)


def place_in(source: Source, offset: int) -> Place:
    return Place(source.filename, *source.position(offset))


# ---- words --------------------------------------------------------------------------------------------------------
# Takes a text in the schema language apart into words and signs; conditions of caveats have the same ones.
#
# A name that follows `use` may make other names mean something, so the parser alone tells names from key words. Line
# ends mean nothing here: every statement begins with a word that nothing can be continued with.


class WordKind(Enum):
    NAME = "a name"
    NUMBER = "a number"
    TEXT = "a string"
    SIGN = "a sign"
    COMMENT = "a comment"
    END = "the end"


@dataclass(frozen=True, slots=True)
class SchemaWord:
    kind: WordKind
    text: str
    span: Span

    @property
    def shown(self) -> str:
        return "the end of the file" if self.kind is WordKind.END else f"`{self.text}`"


_SIGNS = (
    "...", "->", "||", "&&", "==", "!=", "<=", ">=", *"{}()[]<>|+-&/=:;#*?!.,%",
)  # fmt: skip  # where one starts like another, the longer one first
_TEXT = r"""[rRbB]{0,2}(?:"{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_WORD = re.compile(
    rf"""
    (?P<SPACE>[\s\ufeff]+)
  | (?P<COMMENT>//[^\n]*|/\*[\s\S]*?\*/)
  | (?P<TEXT>{_TEXT})
  | (?P<NUMBER>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?|\d+[uU]?)(?![A-Za-z_0-9])
  | (?P<NAME>[^\W\d]\w*)
  | (?P<SIGN>(?!/\*)(?:{"|".join(map(re.escape, _SIGNS))}))
    """,
    re.VERBOSE,
)


def words_of(source: Source) -> list[SchemaWord]:
    """Return all words and comments of a text, and the end."""
    words, place = [], 0
    while place < len(source.text):
        found = _WORD.match(source.text, place)
        if found is None:
            raise SourceError(_what_is_wrong(source.text, place), place_in(source, place))
        kind = found.lastgroup or ""
        if kind != "SPACE":
            words.append(SchemaWord(WordKind[kind], found[0], Span(place, found.end())))
        place = found.end()
    return [*words, SchemaWord(WordKind.END, "", Span(place, place))]


def _what_is_wrong(text: str, place: int) -> str:
    if text.startswith("/*", place):
        return "this comment has no end; close it with `*/`"
    if text[place] in "\"'":
        return "this string has no end on its line; close it"
    return f"`{text[place]}` means nothing in a schema; remove it"


# ---- Goes through the words of a text, for whoever parses it; comments are kept beside ----------------------------

DEEPEST = 200  # as deep as conditions of a policy nest


class Reader:
    def __init__(self, source: Source):
        found = words_of(source)
        self.source = source
        self._words = [word for word in found if word.kind is not WordKind.COMMENT]
        self._comments = [word for word in found if word.kind is WordKind.COMMENT]
        self._at = 0
        self._depth = 0
        self._next_comment = 0

    # ---- words ----------------------------------------------------------------------------------------------------

    @property
    def word(self) -> SchemaWord:
        return self._words[self._at]

    @property
    def previous(self) -> SchemaWord:
        return self._words[self._at - 1]

    def following(self, steps: int = 1) -> SchemaWord:
        return self._words[min(self._at + steps, len(self._words) - 1)]

    def take(self) -> SchemaWord:
        taken = self.word
        if taken.kind is not WordKind.END:
            self._at += 1
        return taken

    def is_sign(self, *signs: str) -> bool:
        return self.word.kind is WordKind.SIGN and self.word.text in signs

    def is_name(self, *names: str) -> bool:
        return self.word.kind is WordKind.NAME and (not names or self.word.text in names)

    def took(self, text: str) -> bool:
        """Say whether the next word is this one; if so, take it."""
        if self.word.kind in (WordKind.SIGN, WordKind.NAME) and self.word.text == text:
            self.take()
            return True
        return False

    def expect(self, text: str, why: str) -> SchemaWord:
        if self.word.kind is WordKind.SIGN and self.word.text == text:
            return self.take()
        raise self.unexpected(f"`{text}` {why}")

    def name(self, what: str) -> SchemaWord:
        if self.word.kind is WordKind.NAME:
            return self.take()
        raise self.unexpected(what)

    def unexpected(self, wanted: str) -> SourceError:
        return SourceError(f"expected {wanted}, and found {self.word.shown}", self.place())

    # ---- places ---------------------------------------------------------------------------------------------------

    def place(self, word: SchemaWord | None = None) -> Place:
        return place_in(self.source, (word or self.word).span.start)

    def text_since(self, first: SchemaWord) -> str:
        return self.source.text[first.span.start : self.previous.span.end]

    # ---- depth ----------------------------------------------------------------------------------------------------

    def deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise SourceError(f"this nests deeper than {DEEPEST} times; split it", self.place())

    def higher(self) -> None:
        self._depth -= 1

    # ---- comments -------------------------------------------------------------------------------------------------

    def comment_at_the_start(self) -> tuple[str, ...]:
        """Return the lines above the first free line: they are about the file, and not about what comes first."""
        first = self.word.span.start
        free = re.search(r"\n[ \t\r]*\n", self.source.text[:first].lstrip())
        skipped = first - len(self.source.text[:first].lstrip())
        return self._comments_until(skipped + free.start()) if free else ()

    def comment_before(self) -> tuple[str, ...]:
        """Return the lines of the comments that stand between what was read and the next word."""
        return self._comments_until(self.word.span.start)

    def comment_after(self) -> tuple[str, ...]:
        """Return the lines of the comments that follow on the line of the word that was read last."""
        end = self.source.text.find("\n", self.previous.span.end)
        return self._comments_until(min(self.word.span.start, len(self.source.text) if end < 0 else end))

    def _comments_until(self, place: int) -> tuple[str, ...]:
        lines: list[str] = []
        while self._next_comment < len(self._comments) and self._comments[self._next_comment].span.start < place:
            lines += _lines_of(self._comments[self._next_comment].text)
            self._next_comment += 1
        return tuple(lines)


def _lines_of(comment: str) -> list[str]:
    """Return what a comment says, without its marks."""
    if comment.startswith("//"):
        return [comment.lstrip("/").strip()]
    inner = comment.removeprefix("/*").removesuffix("*/").strip("*")
    lines = [line.strip().lstrip("*").strip() for line in inner.split("\n")]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


# ---- What a schema says, as it was written: nothing is looked up here, nothing checked ----------------------------

# ---- what a permission is made of -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedMember:
    """A relation or permission of the same definition."""

    name: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Along:
    """`relation->target`, `relation.any(target)`; `relation.all(target)` where `every`."""

    relation: str
    target: str
    every: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Nil:
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Self:
    """The resource itself, as a subject."""

    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SumTerm:
    parts: tuple[SchemaTerm, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Common:
    """`a & b`."""

    parts: tuple[SchemaTerm, ...]
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Without:
    """`base - removed`."""

    base: SchemaTerm
    removed: SchemaTerm
    place: Place = field(default=NOWHERE, compare=False)


SchemaTerm: TypeAlias = NamedMember | Along | Nil | Self | SumTerm | Common | Without

# ---- declarations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenSubject:
    """What a relation takes: `user`, `user:*`, `group#member`, each perhaps `with caveat and expiration`."""

    type: str
    relation: str = ""
    is_wildcard: bool = False
    caveat: str = ""
    expires: bool = False
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RelationDeclared:
    name: str
    subjects: tuple[WrittenSubject, ...]
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PermissionDeclared:
    name: str
    term: SchemaTerm
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class PartialNamed:
    """`...name`: what the partial says is said here."""

    name: str
    place: Place = field(default=NOWHERE, compare=False)


DefinitionMember: TypeAlias = RelationDeclared | PermissionDeclared | PartialNamed


@dataclass(frozen=True)
class Definition:
    name: str
    members: tuple[DefinitionMember, ...]
    is_partial: bool = False
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ParameterType:
    """`int`, `list<string>`."""

    name: str
    of: tuple[ParameterType, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(map(str, self.of))}>" if self.of else self.name


@dataclass(frozen=True)
class CaveatParameter:
    name: str
    type: ParameterType
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Caveat:
    name: str
    parameters: tuple[CaveatParameter, ...]
    source: Source = field(compare=False)
    start: int = field(compare=False)  # where the condition begins in it
    text: str = ""  # of the condition
    comment: tuple[str, ...] = ()  # its lines, without their marks
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ImportStatement:
    path: str
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SchemaText:
    """One file."""

    comment: tuple[str, ...] = ()  # at the start of the file
    definitions: tuple[Definition, ...] = ()
    caveats: tuple[Caveat, ...] = ()
    imports: tuple[ImportStatement, ...] = ()


# ---- Schema text -> what it says ----------------------------------------------------------------------------------

FLAGS = ("expiration", "import", "partial", "self", "typechecking")
NO_RELATION = "..."
CommentLines = tuple[str, ...]


def parse(source: Source) -> SchemaText:
    return _SchemaParser(source).schema()


class _SchemaParser:
    def __init__(self, source: Source):
        self.read = Reader(source)
        self.flags: set[str] = set()

    def schema(self) -> SchemaText:
        definitions: list[Definition] = []
        caveats: list[Caveat] = []
        imports: list[ImportStatement] = []
        head = self.read.comment_at_the_start()
        while self.read.word.kind is not WordKind.END:
            comment = self.read.comment_before()
            if self.read.took(";"):
                continue
            if self.read.is_name("use"):
                self._use(bool(definitions or caveats))
            elif self.read.is_name("definition"):
                definitions.append(self._definition(comment))
            elif self.read.is_name("partial"):
                definitions.append(self._definition(comment, is_partial=True))
            elif self.read.is_name("caveat"):
                caveats.append(self._caveat(comment))
            elif self.read.is_name("import"):
                imports.append(self._import())
            else:
                raise self.read.unexpected("`definition`, `caveat`, `partial`, `import` or `use`")
        head += self.read.comment_before()  # what stands at the end
        return SchemaText(head, tuple(definitions), tuple(caveats), tuple(imports))

    def _use(self, is_late: bool) -> None:
        first = self.read.take()
        flag = self.read.name("what is used")
        if flag.text not in FLAGS:
            known = ", ".join(FLAGS)
            raise SourceError(f"nobody knows what `use {flag.text}` means; known are {known}", self.read.place(flag))
        if is_late:
            raise SourceError(
                f"`use {flag.text}` stands behind a definition; move it to the top", self.read.place(first)
            )
        self.flags.add(flag.text)

    def _import(self) -> ImportStatement:
        first = self.read.take()
        if self.read.word.kind is not WordKind.TEXT:
            raise self.read.unexpected("the path of a file in quotes")
        path = self.read.take().text.strip("\"'")
        return ImportStatement(path, self.read.place(first))

    def _path(self, what: str) -> str:
        """Parse a name, perhaps with others before it: `tenant/document`."""
        names = [self.read.name(what).text]
        while self.read.took("/"):
            names.append(self.read.name(what).text)
        return "/".join(names)

    # ---- definitions ------------------------------------------------------------------------------------------------

    def _definition(self, comment: CommentLines, is_partial: bool = False) -> Definition:
        first = self.read.take()
        name = self._path("the name of the definition")
        place = self.read.place(first)
        self.read.expect("{", "that begins the definition")
        comment += self.read.comment_after()
        members: list[DefinitionMember] = []
        while not self.read.is_sign("}"):
            above = self.read.comment_before()
            if self.read.took(";"):
                continue
            members.append(self._member(above))
        comment += self.read.comment_before()
        self.read.take()
        return Definition(name, tuple(members), is_partial, comment, place)

    def _member(self, comment: CommentLines) -> DefinitionMember:
        if self.read.is_name("relation"):
            return self._relation(comment)
        if self.read.is_name("permission"):
            return self._permission(comment)
        if self.read.is_sign("..."):
            first = self.read.take()
            return PartialNamed(self._path("the name of a partial"), self.read.place(first))
        raise self.read.unexpected("`relation`, `permission` or `}`")

    def _relation(self, comment: CommentLines) -> RelationDeclared:
        first = self.read.take()
        name = self.read.name("the name of the relation").text
        self.read.expect(":", f"and the types that `{name}` takes")
        subjects = [self._subject()]
        while self.read.took("|"):
            subjects.append(self._subject())
        comment += self.read.comment_after()
        return RelationDeclared(name, tuple(subjects), comment, self.read.place(first))

    def _subject(self) -> WrittenSubject:
        first = self.read.word
        kind = self._path("a type")
        relation, is_wildcard = "", False
        if self.read.took(":"):
            self.read.expect("*", f"behind `{kind}:`")
            is_wildcard = True
        elif self.read.took("#"):
            named = self.read.take() if self.read.is_sign("...") else self.read.name(f"a relation of `{kind}`")
            relation = "" if named.text == NO_RELATION else named.text
        caveat, expires = self._conditions() if self.read.took("with") else ("", False)
        return WrittenSubject(kind, relation, is_wildcard, caveat, expires, self.read.place(first))

    def _conditions(self) -> tuple[str, bool]:
        """Parse `with …`: return the caveat, and whether the relationship may end."""
        may_end = "expiration" in self.flags
        if may_end and self.read.took("expiration"):
            if self.read.is_name("and"):
                raise SourceError("the caveat comes first: `with caveat and expiration`", self.read.place())
            return "", True
        caveat = self._path("the name of a caveat")
        if may_end and self.read.took("and"):
            if not self.read.took("expiration"):
                raise self.read.unexpected("`expiration`")
            return caveat, True
        return caveat, False

    # ---- permissions ------------------------------------------------------------------------------------------------

    def _permission(self, comment: CommentLines) -> PermissionDeclared:
        first = self.read.take()
        name = self.read.name("the name of the permission").text
        if self.read.took(":"):  # what may have it: known from the relations anyway
            self._path("a type")
            while self.read.took("|"):
                self._path("a type")
        self.read.expect("=", f"and what `{name}` follows from")
        term = self._term()
        comment += self.read.comment_after()
        return PermissionDeclared(name, term, comment, self.read.place(first))

    def _term(self) -> SchemaTerm:
        """Parse a term. `-` binds loosest, then `&`, then `+`."""
        first = self.read.word
        left = self._common()
        while self.read.took("-"):
            left = Without(left, self._common(), self.read.place(first))
        return left

    def _common(self) -> SchemaTerm:
        first = self.read.word
        parts = [self._sum()]
        while self.read.took("&"):
            parts.append(self._sum())
        return parts[0] if len(parts) == 1 else Common(tuple(parts), self.read.place(first))

    def _sum(self) -> SchemaTerm:
        first = self.read.word
        parts = [self._single()]
        while self.read.took("+"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else SumTerm(tuple(parts), self.read.place(first))

    def _single(self) -> SchemaTerm:
        first = self.read.word
        if self.read.took("("):
            self.read.deeper()
            inner = self._term()
            self.read.higher()
            self.read.expect(")", "that closes the parenthesis")
            return inner
        if self.read.took("nil"):
            return Nil(self.read.place(first))
        if "self" in self.flags and self.read.took("self"):
            return Self(self.read.place(first))
        name = self.read.name("a relation or permission").text
        if not self.read.is_sign("->", "."):
            return NamedMember(name, self.read.place(first))
        along = self._along(name)
        if self.read.is_sign("->", "."):
            raise SourceError(
                "one arrow takes one step; make a permission of it on the type between, and refer to that",
                self.read.place(),
            )
        return Along(name, along[0], along[1], self.read.place(first))

    def _along(self, name: str) -> tuple[str, bool]:
        """Parse what stands behind the arrow; say whether it is to hold along every one."""
        if self.read.took("->"):
            return self.read.name(f"a relation or permission of what `{name}` leads to").text, False
        self.read.take()
        function = self.read.name("`any` or `all`")
        if function.text not in ("any", "all"):
            raise SourceError(f"`{function.text}` is no arrow; write `any` or `all`", self.read.place(function))
        self.read.expect("(", f"behind `{function.text}`")
        target = self.read.name(f"a relation or permission of what `{name}` leads to").text
        self.read.expect(")", "that closes the parenthesis")
        return target, function.text == "all"

    # ---- caveats ----------------------------------------------------------------------------------------------------

    def _caveat(self, comment: CommentLines) -> Caveat:
        first = self.read.take()
        name = self._path("the name of the caveat")
        place = self.read.place(first)
        self.read.expect("(", f"and the parameters of `{name}`")
        parameters = [self._parameter()]
        while self.read.took(","):
            parameters.append(self._parameter())
        self.read.expect(")", "behind the parameters")
        self.read.expect("{", "and the condition")
        comment += self.read.comment_after()
        start, text = self._condition(name)
        comment += self.read.comment_before()
        self.read.expect("}", "behind the condition")
        return Caveat(name, tuple(parameters), self.read.source, start, text, comment, place)

    def _condition(self, name: str) -> tuple[int, str]:
        """Take all up to the brace that closes the caveat: another language, which another parser reads."""
        first, open_braces = self.read.word, 0
        while self.read.word.kind is not WordKind.END and (open_braces or not self.read.is_sign("}")):
            open_braces += self.read.is_sign("{") - self.read.is_sign("}")
            self.read.take()
        if self.read.word is first:
            raise self.read.unexpected(f"the condition of `{name}`")
        return first.span.start, self.read.text_since(first)

    def _parameter(self) -> CaveatParameter:
        first = self.read.name("the name of a parameter")
        return CaveatParameter(first.text, self._parameter_type(), self.read.place(first))

    def _parameter_type(self) -> ParameterType:
        name = self.read.name("the type of the parameter").text
        if not self.read.took("<"):
            return ParameterType(name)
        self.read.deeper()
        inner = [self._parameter_type()]
        while self.read.took(","):
            inner.append(self._parameter_type())
        self.read.higher()
        self.read.expect(">", f"behind what the `{name}` holds")
        return ParameterType(name, tuple(inner))
