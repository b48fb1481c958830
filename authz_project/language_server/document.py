"""An open text, what is known about it, and positions in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from lsprotocol.types import Location, Position, PositionEncodingKind, Range

from policy.language import ast
from policy.language.completion import TextOutline, outline_of, words_of
from policy.language.lexer import Word
from policy.language.names import Names, names_of
from policy.language.nodes import Token
from policy.language.parser import are_policies, parse_with_tokens, pieces_of, tokens_in
from policy.language.source import PolicyRejected, Problem, Source, Span, without_collections
from policy.rules import compile_policy
from policy.rules.program import Program

# ---- positions ----------------------------------------------------------------------------------------------------
# Offsets in a text, and positions as the protocol counts them: lines from 0, and units of an encoding.


@dataclass(frozen=True)
class Positions:
    """A text, to turn offsets in it into positions of the protocol, and back."""

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
        """Return the offset of a position; of one behind the end of its line, that end."""
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


# ---- An open text, and what is known of it; each thing is found when it is first asked for ------------------------

_HEAD = re.compile(r"^[ \t]*(?:actor|resource|global|test)\b", re.MULTILINE)
_AHEAD = 2_000  # characters after a place that are read to complete there


@dataclass(frozen=True)
class Parsed:
    policy: ast.Policy
    tokens: list[Token]  # that it was made of


@dataclass(frozen=True)
class CompiledText:
    program: Program | None  # where it is a policy
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class OpenDocument:
    uri: str
    text: str
    version: int
    encoding: str
    before: TextOutline | None = field(default=None, repr=False)  # of the text before the last change
    known: frozenset[str] = field(default=frozenset(), repr=False)  # pieces of an earlier text that was a policy

    @cached_property
    def source(self) -> Source:
        return Source(self.text)

    @cached_property
    def positions(self) -> Positions:
        return Positions(self.source, self.encoding)

    @cached_property
    def words(self) -> list[Word]:
        with without_collections():
            return words_of(self.text)

    @cached_property
    def names(self) -> Names:
        with without_collections():
            return names_of(self.words)

    @cached_property
    def outline(self) -> TextOutline:
        return outline_of(self.words)

    @property
    def last_outline(self) -> TextOutline:
        """Return the outline, or the one before the last change: to complete what is typed now, that is as good."""
        return self.before if self.before and "outline" not in self.__dict__ else self.outline

    @cached_property
    def parsed(self) -> Parsed:
        """Return what takes longest of all that is asked; PolicyRejected where the text is no policy by its form."""
        return Parsed(*parse_with_tokens(self.source))

    @cached_property
    def tokens(self) -> list[Token]:
        """Return the tokens, parsing only pieces that are not known from before; PolicyRejected if it is no policy."""
        if "parsed" not in self.__dict__:
            tokens = tokens_in(self.source)
            if are_policies(pieces_of(self.text, tokens) - self.known):
                return tokens
        return self.parsed.tokens

    @property
    def pieces(self) -> frozenset[str]:
        """Return the latest that are known to be policies: of this text, or of an earlier one."""
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
        """Return the text from the head of the block or test before a place on, and where the place is in it."""
        start = 0
        for found in _HEAD.finditer(self.text, 0, place):
            start = found.start()
        return self.text[start : place + _AHEAD], place - start


def changed(document: OpenDocument, text: str, version: int) -> OpenDocument:
    return OpenDocument(document.uri, text, version, document.encoding, document.last_outline, document.pieces)
