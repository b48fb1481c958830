"""Offsets in a text, and positions as the protocol counts them: lines from 0, and units of an encoding."""

from dataclasses import dataclass
from functools import cached_property

from lsprotocol.types import Location, Position, PositionEncodingKind, Range

from policy.language.source import Source, Span


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
