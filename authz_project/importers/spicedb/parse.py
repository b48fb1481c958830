"""Schema text -> what it says."""

from authz_project.importers.spicedb.reader import Reader
from authz_project.importers.spicedb.source_errors import SourceError
from authz_project.importers.spicedb.syntax import (
    Along,
    Caveat,
    Common,
    Definition,
    Import,
    Member,
    Named,
    Nil,
    Parameter,
    ParameterType,
    PartialNamed,
    PermissionDeclared,
    RelationDeclared,
    SchemaText,
    Self,
    Subject,
    Sum,
    Term,
    Without,
)  # fmt: skip
from authz_project.importers.spicedb.words import Kind
from policy.language.source import Source

FLAGS = ("expiration", "import", "partial", "self", "typechecking")
NO_RELATION = "..."
Comment = tuple[str, ...]


def parse(source: Source) -> SchemaText:
    return _Parser(source).schema()


class _Parser:
    def __init__(self, source: Source):
        self.read = Reader(source)
        self.flags: set[str] = set()

    def schema(self) -> SchemaText:
        definitions: list[Definition] = []
        caveats: list[Caveat] = []
        imports: list[Import] = []
        head = self.read.comment_at_the_start()
        while self.read.word.kind is not Kind.END:
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

    def _import(self) -> Import:
        first = self.read.take()
        if self.read.word.kind is not Kind.TEXT:
            raise self.read.unexpected("the path of a file in quotes")
        path = self.read.take().text.strip("\"'")
        return Import(path, self.read.place(first))

    def _path(self, what: str) -> str:
        """Parse a name, perhaps with others before it: `tenant/document`."""
        names = [self.read.name(what).text]
        while self.read.took("/"):
            names.append(self.read.name(what).text)
        return "/".join(names)

    # ---- definitions ------------------------------------------------------------------------------------------------

    def _definition(self, comment: Comment, is_partial: bool = False) -> Definition:
        first = self.read.take()
        name = self._path("the name of the definition")
        place = self.read.place(first)
        self.read.expect("{", "that begins the definition")
        comment += self.read.comment_after()
        members: list[Member] = []
        while not self.read.is_sign("}"):
            above = self.read.comment_before()
            if self.read.took(";"):
                continue
            members.append(self._member(above))
        comment += self.read.comment_before()
        self.read.take()
        return Definition(name, tuple(members), is_partial, comment, place)

    def _member(self, comment: Comment) -> Member:
        if self.read.is_name("relation"):
            return self._relation(comment)
        if self.read.is_name("permission"):
            return self._permission(comment)
        if self.read.is_sign("..."):
            first = self.read.take()
            return PartialNamed(self._path("the name of a partial"), self.read.place(first))
        raise self.read.unexpected("`relation`, `permission` or `}`")

    def _relation(self, comment: Comment) -> RelationDeclared:
        first = self.read.take()
        name = self.read.name("the name of the relation").text
        self.read.expect(":", f"and the types that `{name}` takes")
        subjects = [self._subject()]
        while self.read.took("|"):
            subjects.append(self._subject())
        comment += self.read.comment_after()
        return RelationDeclared(name, tuple(subjects), comment, self.read.place(first))

    def _subject(self) -> Subject:
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
        return Subject(kind, relation, is_wildcard, caveat, expires, self.read.place(first))

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

    def _permission(self, comment: Comment) -> PermissionDeclared:
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

    def _term(self) -> Term:
        """Parse a term. `-` binds loosest, then `&`, then `+`."""
        first = self.read.word
        left = self._common()
        while self.read.took("-"):
            left = Without(left, self._common(), self.read.place(first))
        return left

    def _common(self) -> Term:
        first = self.read.word
        parts = [self._sum()]
        while self.read.took("&"):
            parts.append(self._sum())
        return parts[0] if len(parts) == 1 else Common(tuple(parts), self.read.place(first))

    def _sum(self) -> Term:
        first = self.read.word
        parts = [self._single()]
        while self.read.took("+"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else Sum(tuple(parts), self.read.place(first))

    def _single(self) -> Term:
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
            return Named(name, self.read.place(first))
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

    def _caveat(self, comment: Comment) -> Caveat:
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
        while self.read.word.kind is not Kind.END and (open_braces or not self.read.is_sign("}")):
            open_braces += self.read.is_sign("{") - self.read.is_sign("}")
            self.read.take()
        if self.read.word is first:
            raise self.read.unexpected(f"the condition of `{name}`")
        return first.span.start, self.read.text_since(first)

    def _parameter(self) -> Parameter:
        first = self.read.name("the name of a parameter")
        return Parameter(first.text, self._parameter_type(), self.read.place(first))

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
