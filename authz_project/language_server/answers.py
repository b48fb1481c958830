"""Responses of the language server about a document."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lsprotocol import types
from lsprotocol.types import Location, Position, PositionEncodingKind, Range

from policy.language import ast, completion, parse
from policy.language import names as polar_names
from policy.language.format import formatted_tokens
from policy.language.parser import LEGACY, RESERVED, Token, Word, are_policies, parse_with_tokens, pieces_of, tokens_in
from policy.language.parser import NAME as WORD
from policy.language.source import PolicyRejected, Problem, Source, Span, without_collections
from policy.rules import compile_policy
from policy.rules.program import Program
from policy.values import ABSTRACT, PRIMITIVES, quoted

# ---- positions ----------------------------------------------------------------------------------------------------
# Offsets in a text, and positions as in the protocol: lines numbered from 0, and code units of an encoding.


@dataclass(frozen=True)
class Positions:
    """Converts offsets in a text to positions of the protocol, and back."""

    source: Source
    encoding: str = PositionEncodingKind.Utf16

    def position(self, offset: int) -> Position:
        line, column = self.source.position(min(offset, len(self.source.text)))
        if self._is_ascii:
            return Position(line - 1, column - 1)
        start = self.source.line_start(line)
        return Position(line - 1, self._units(self.source.text[start : start + column - 1]))

    @cached_property
    def _is_ascii(self) -> bool:
        return self.source.text.isascii()

    def range(self, span: Span) -> Range:
        return Range(self.position(span.start), self.position(span.end))

    def location(self, uri: str, span: Span) -> Location:
        return Location(uri, self.range(span))

    def whole(self) -> Range:
        return self.range(Span(0, len(self.source.text)))

    def offset(self, position: Position) -> int:
        """Return the offset of a position; beyond the end of a line, the line's end."""
        line = position.line + 1
        if line > self.source.text.count("\n") + 1:
            return len(self.source.text)
        text, left = self.source.line_text(line), position.character
        for column, char in enumerate(text):
            if left <= 0:
                return self.source.line_start(line) + column
            left -= self._units(char)
        return self.source.line_start(line) + len(text)

    def _units(self, text: str) -> int:
        match self.encoding:
            case PositionEncodingKind.Utf8:
                return len(text.encode(errors="surrogatepass"))
            case PositionEncodingKind.Utf32:
                return len(text)
        return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# ---- an open document, analysed lazily ----------------------------------------------------------------------------

_HEAD = re.compile(r"^[ \t]*(?:actor|resource|global|test)\b", re.MULTILINE)
_AHEAD = 2_000  # characters after a position that are read to complete there


@dataclass(frozen=True)
class Parsed:
    policy: ast.Policy
    tokens: list[Token]  # from which it was parsed


@dataclass(frozen=True)
class CompiledText:
    program: Program | None  # None if the policy has errors
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class OpenDocument:
    uri: str
    text: str
    version: int
    encoding: str
    before: completion.TextOutline | None = field(default=None, repr=False)  # of the text before the last change
    known: frozenset[str] = field(default=frozenset(), repr=False)  # valid pieces of an earlier text

    @cached_property
    def source(self) -> Source:
        return Source(self.text)

    @cached_property
    def positions(self) -> Positions:
        return Positions(self.source, self.encoding)

    @cached_property
    def words(self) -> list[Word]:
        with without_collections():
            return completion.words_of(self.text)

    @cached_property
    def names(self) -> polar_names.Names:
        with without_collections():
            return polar_names.names_of(self.words)

    @cached_property
    def outline(self) -> completion.TextOutline:
        return completion.outline_of(self.words)

    @property
    def last_outline(self) -> completion.TextOutline:
        """Return the outline, or the one before the last change, which is good enough for completion while typing."""
        return self.before if self.before and "outline" not in self.__dict__ else self.outline

    @cached_property
    def parsed(self) -> Parsed:
        """Parse the text, the most expensive step of all. Raise PolicyRejected on syntax errors."""
        return Parsed(*parse_with_tokens(self.source))

    @cached_property
    def tokens(self) -> list[Token]:
        """Return the tokens, parsing only unknown pieces. Raise PolicyRejected on syntax errors."""
        if "parsed" not in self.__dict__:
            tokens = tokens_in(self.source)
            if are_policies(pieces_of(self.text, tokens) - self.known):
                return tokens
        return self.parsed.tokens

    @property
    def pieces(self) -> frozenset[str]:
        """Return the latest pieces known to be valid, of this text or of an earlier one."""
        found = self.__dict__.get("parsed")
        return pieces_of(self.text, found.tokens) if found else self.known

    @cached_property
    def compiled(self) -> CompiledText:
        try:
            with without_collections():
                program = compile_policy(self.parsed.policy, self.source)
        except PolicyRejected as reason:
            return CompiledText(None, reason.problems)
        return CompiledText(program, program.warnings)

    @property
    def is_compiled(self) -> bool:
        return "compiled" in self.__dict__

    def around(self, place: int) -> tuple[str, int]:
        """Return the text from the head of the enclosing block or test, and the place's offset in it."""
        start = 0
        for found in _HEAD.finditer(self.text, 0, place):
            start = found.start()
        return self.text[start : place + _AHEAD], place - start


def changed(document: OpenDocument, text: str, version: int) -> OpenDocument:
    return OpenDocument(document.uri, text, version, document.encoding, document.last_outline, document.pieces)


# ---- hover: information about the name under the pointer, as Markdown ---------------------------------------------

MOST = 12  # lines of one kind
_TYPED = re.compile(r"\s*(?::|matches!?)\s*([^\s,;()]+)")


def hover_text(document: OpenDocument, occurrence: polar_names.Occurrence) -> str:
    key = occurrence.key
    match key.kind:
        case polar_names.TYPE:
            return _type(document, key.name)
        case polar_names.NAME:
            return _name(document, key.name)
        case polar_names.PREDICATE:
            return _predicate(document, key)
        case polar_names.VARIABLE:
            return _variable(document, key)
        case polar_names.FIXTURE:
            return _code(_fixture(document, key.name))
    return ""


def _code(lines: Iterable[str]) -> str:
    """Return a code block with a fence longer than any in the text."""
    text = "\n".join(lines)
    fence = "`" * max([3, *(len(found) + 1 for found in re.findall("`{3,}", text))])
    return f"{fence}polar\n{text}\n{fence}\n" if text else ""


# ---- types --------------------------------------------------------------------------------------------------------


def _type(document: OpenDocument, name: str) -> str:
    if name in PRIMITIVES:
        return f"{_code([name])}\nbuilt-in type"
    block = document.outline.types.get(name)
    if block is None:
        return f"{_code([name])}\ntype without a block"
    extends = f" extends {', '.join(block.extends)}" if block.extends else ""
    return _code([f"{block.kind} {name}{extends} {{", *_lists(document.outline.of(name)), "}"])


def _lists(block: completion.OutlineBlock) -> Iterator[str]:
    """Yield what the block declares and inherits."""
    for each in completion.LISTS:
        if names := dict.fromkeys(getattr(block, each)):
            yield f"  {each} = [{', '.join(map(quoted, names))}];"
    if block.relations:
        inside = ", ".join(f"{name}: {type_name}" for name, type_name in block.relations.items())
        yield f"  relations = {{ {inside} }};"


# ---- roles, permissions and relations -----------------------------------------------------------------------------


def _name(document: OpenDocument, name: str) -> str:
    blocks = (*document.outline.types.values(), document.outline.everything)
    declared = [f"* {told}" for block in blocks for told in _declared(block, name)]
    granted = _statements(document, document.names.grants.get(name, ()))
    if not declared and not granted:
        return ""
    because = f"\ngranted by\n\n{_code(granted)}" if granted else "\nnot granted by any rule\n"
    return "\n".join([_code([f'"{name}"']), *_shortened(declared), because])


def _declared(block: completion.OutlineBlock, name: str) -> Iterator[str]:
    owner = f"`{block.name}`" if block.name else "everything"
    if name in block.roles:
        yield f"role of {owner}"
    if name in block.permissions:
        yield f"permission of {owner}"
    if name in block.relations:
        yield f"relation of {owner} to `{block.relations[name]}`"


# ---- predicates, variables and fixtures ---------------------------------------------------------------------------


def _predicate(document: OpenDocument, key: polar_names.NameKey) -> str:
    """Return the facts that the predicate accepts, if the policy compiles, and the rules that define it."""
    program = document.compiled.program if document.is_compiled else None
    accepted = []
    for (predicate, _), patterns in (program.accepted if program else {}).items():
        if predicate == key.name:
            accepted += [", ".join(_types(types) for types in pattern) for pattern in patterns]
    rules = _statements(document, _rules(document, key.name))
    facts = _code(_shortened([f"{key.name}({pattern})" for pattern in accepted]))
    if not program:
        arguments = document.outline.predicates.get(key.name, ())
        return _code([f"{key.name}({', '.join(arguments)})"]) + (f"\nrules\n\n{_code(rules)}" if rules else "")
    told = f"accepted facts\n\n{facts}" if facts else f"`{key.name}`: no facts are accepted\n"
    return told + (f"\nrules\n\n{_code(rules)}" if rules else "")


def _types(types: frozenset[str]) -> str:
    named = sorted(types)
    return " or ".join(named if len(named) <= 4 else [*named[:3], "…"])


def _rules(document: OpenDocument, name: str) -> list[Span]:
    return [symbol.span for symbol in document.names.symbols if symbol.kind == "rule" and symbol.name == name]


def _variable(document: OpenDocument, key: polar_names.NameKey) -> str:
    for each in document.names.of(key):
        if found := _TYPED.match(document.text, each.span.end):
            return _code([f"{key.name}: {found[1]}"])
    return _code([key.name])


def _fixture(document: OpenDocument, name: str) -> list[str]:
    spans = [each.span for each in document.names.symbols if each.kind == "fixture" and each.name == name]
    return _shortened([line for span in spans for line in document.text[span.start : span.end].splitlines()])


# ---- truncation ---------------------------------------------------------------------------------------------------


def _statements(document: OpenDocument, spans: Iterable[Span]) -> list[str]:
    """Format statements of the text with their line numbers, one per line."""
    lines = []
    for span in spans:
        line, _ = document.source.position(span.start)
        lines.append(f"{' '.join(document.text[span.start : span.end].split())}  # line {line}")
    return _shortened(lines)


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST else [*lines[: MOST - 1], f"# and {len(lines) - MOST + 1} more"]


# ---- renaming a symbol throughout the text ------------------------------------------------------------------------

BUILT_IN = {
    polar_names.TYPE: {*PRIMITIVES, *ABSTRACT},
    polar_names.PREDICATE: {"allow", "has_permission", "has_role", "has_relation"},
}
_IN_QUOTES = (polar_names.NAME, polar_names.TEST)
_UNFIT = re.compile(r'["\\\n\r\0]')


class CannotRename(Exception):
    """The symbol cannot be renamed; the message says why."""


def renamable(document: OpenDocument, place: int) -> polar_names.Occurrence:
    occurrence = document.names.at(place)
    if occurrence is None:
        raise CannotRename("no symbol at this position")
    key = occurrence.key
    if key.name in BUILT_IN.get(key.kind, ()):
        raise CannotRename(f"`{key.name}` is built-in and cannot be renamed")
    if key.kind == polar_names.NAME and not document.names.definitions(key):
        raise CannotRename(f'"{key.name}" is a string: no block declares a role, permission or relation with this name')
    return occurrence


def renamed(document: OpenDocument, place: int, new: str) -> list[Span]:
    key = renamable(document, place).key
    spans = [each.span for each in document.names.of(key)]
    if new == key.name:
        return []
    _refuse_unfit(document, key, spans, new)
    if new in BUILT_IN.get(key.kind, ()):
        raise CannotRename(f"`{new}` is built-in")
    if key.kind == polar_names.VARIABLE and new in polar_names.SHORTHAND and document.names.is_in_block(spans[0].start):
        raise CannotRename(f"`{new}` has a meaning of its own in a block")
    if document.names.of(polar_names.NameKey(key.kind, new, key.statement)):
        raise CannotRename(f"a {_called(key)} `{new}` already exists")
    if not _is_sound(document, spans, new):
        raise CannotRename(f"cannot rename to `{new}`: the policy would no longer compile")
    return spans


def _refuse_unfit(document: OpenDocument, key: polar_names.NameKey, spans: list[Span], new: str) -> None:
    quoted = key.kind in _IN_QUOTES and all(document.text[span.start - 1] == '"' for span in spans)
    if quoted and new and new != "*" and not _UNFIT.search(new):
        return
    if re.fullmatch(WORD, new) and new not in RESERVED and new not in LEGACY and new != "_":
        return
    raise CannotRename(f"`{new}` is not a valid name")


def _is_sound(document: OpenDocument, spans: list[Span], new: str) -> bool:
    """Return whether the text compiles with the new name, if it did before; else whether it parses, if it did."""
    changed = OpenDocument(document.uri, with_name(document.text, spans, new), document.version, document.encoding)
    if document.compiled.program is not None:
        return changed.compiled.program is not None
    return _parses(changed.text) or not _parses(document.text)


def _parses(text: str) -> bool:
    try:
        parse(Source(text))
    except PolicyRejected:
        return False
    return True


def with_name(text: str, spans: list[Span], new: str) -> str:
    parts, end = [], 0
    for span in spans:
        parts += [text[end : span.start], new]
        end = span.end
    return "".join([*parts, text[end:]])


def _called(key: polar_names.NameKey) -> str:
    return "variable" if key.kind == polar_names.VARIABLE else key.kind


# ---- handlers of the protocol's requests --------------------------------------------------------------------------

RUN_TESTS = "authz.runTests"
_COMPLETED = {
    "type": types.CompletionItemKind.Class,
    "role": types.CompletionItemKind.EnumMember,
    "permission": types.CompletionItemKind.EnumMember,
    "relation": types.CompletionItemKind.Field,
    "predicate": types.CompletionItemKind.Function,
    "variable": types.CompletionItemKind.Variable,
    "keyword": types.CompletionItemKind.Keyword,
}
_SYMBOLS = {
    "actor": types.SymbolKind.Class,
    "resource": types.SymbolKind.Class,
    "global": types.SymbolKind.Namespace,
    "rule": types.SymbolKind.Function,
    "declare": types.SymbolKind.Interface,
    "fixture": types.SymbolKind.Object,
    "test": types.SymbolKind.Event,
}
_SEVERITIES = {"error": types.DiagnosticSeverity.Error, "warning": types.DiagnosticSeverity.Warning}


def diagnostics(document: OpenDocument, problems: Iterable[Problem]) -> list[types.Diagnostic]:
    return [
        types.Diagnostic(
            document.positions.range(problem.span),
            f"{problem.message} ({problem.hint})" if problem.hint else problem.message,
            severity=_SEVERITIES[problem.severity],
            source="authz",
        )
        for problem in problems
    ]


def completed(document: OpenDocument, position: types.Position) -> types.CompletionList:
    text, place = document.around(document.positions.offset(position))
    shift = document.positions.offset(position) - place
    found = completion.completions(text, place, document.last_outline)
    start = document.positions.position(found.start + shift)
    end = document.positions.position(found.end + shift)
    items = [
        types.CompletionItem(
            label=option.text,
            kind=_COMPLETED.get(option.kind, types.CompletionItemKind.Text),
            detail=option.detail or option.kind,
            text_edit=types.TextEdit(types.Range(start, end), option.text),
            sort_text=f"{order:04}",
        )
        for order, option in enumerate(found.options)
    ]
    return types.CompletionList(is_incomplete=False, items=items)


def hovered(document: OpenDocument, position: types.Position) -> types.Hover | None:
    occurrence = _at(document, position)
    text = hover_text(document, occurrence) if occurrence else ""
    if not occurrence or not text:
        return None
    content = types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.Hover(content, document.positions.range(occurrence.span))


def definitions(document: OpenDocument, position: types.Position) -> list[types.Location]:
    """Return where the symbol is defined: of several places, those in the enclosing block, if any."""
    occurrence = _at(document, position)
    if occurrence is None:
        return []
    found = document.names.definitions(occurrence.key)
    if occurrence.key.kind == polar_names.NAME:
        block = _block_around(document, occurrence)
        found = [each for each in found if each.block == block] or found
    return [document.positions.location(document.uri, each.span) for each in found]


def references(document: OpenDocument, position: types.Position, with_definition: bool) -> list[types.Location]:
    occurrence = _at(document, position)
    found = document.names.of(occurrence.key) if occurrence else ()
    return [
        document.positions.location(document.uri, each.span)
        for each in found
        if with_definition or not each.is_definition
    ]


def highlights(document: OpenDocument, position: types.Position) -> list[types.DocumentHighlight]:
    occurrence = _at(document, position)
    found = document.names.of(occurrence.key) if occurrence else ()
    return [types.DocumentHighlight(document.positions.range(each.span)) for each in found]


def prepared(document: OpenDocument, position: types.Position) -> types.PrepareRenamePlaceholder:
    occurrence = renamable(document, document.positions.offset(position))
    return types.PrepareRenamePlaceholder(document.positions.range(occurrence.span), occurrence.key.name)


def rename(document: OpenDocument, position: types.Position, new: str) -> types.WorkspaceEdit:
    spans = renamed(document, document.positions.offset(position), new)
    edits = [types.TextEdit(document.positions.range(span), new) for span in spans]
    return types.WorkspaceEdit(changes={document.uri: edits})


def symbols(document: OpenDocument) -> list[types.DocumentSymbol]:
    return [_symbol(document, symbol) for symbol in document.names.symbols]


def layout(document: OpenDocument) -> list[types.TextEdit]:
    """Return one edit of the whole text; none if it has syntax errors or is already formatted."""
    try:
        after = formatted_tokens(document.text, document.tokens)
    except PolicyRejected:
        return []
    return [types.TextEdit(document.positions.whole(), after)] if after != document.text else []


def lenses(document: OpenDocument) -> list[types.CodeLens]:
    """Return lenses to run each test, and above the first one, to run all."""
    tests = [symbol for symbol in document.names.symbols if symbol.kind == "test"]
    found = [_lens(document, symbol, "Run test", [document.uri, symbol.name]) for symbol in tests]
    if len(tests) > 1:
        found.insert(0, _lens(document, tests[0], f"Run all {len(tests)} tests", [document.uri, ""]))
    return found


def _lens(document: OpenDocument, symbol: polar_names.Symbol, title: str, arguments: list[str]) -> types.CodeLens:
    command = types.Command(title, RUN_TESTS, arguments=arguments)
    return types.CodeLens(document.positions.range(symbol.name_span), command)


def _symbol(document: OpenDocument, symbol: polar_names.Symbol) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        name=symbol.name or symbol.kind,
        kind=_SYMBOLS.get(symbol.kind, types.SymbolKind.Property),
        range=document.positions.range(symbol.span),
        selection_range=document.positions.range(symbol.name_span),
        detail=symbol.kind,
        children=[_symbol(document, inner) for inner in symbol.inside],
    )


def _at(document: OpenDocument, position: types.Position) -> polar_names.Occurrence | None:
    return document.names.at(document.positions.offset(position))


def _block_around(document: OpenDocument, occurrence: polar_names.Occurrence) -> str:
    for symbol in document.names.symbols:
        if symbol.span.start <= occurrence.span.start < symbol.span.end:
            return symbol.name
    return ""
