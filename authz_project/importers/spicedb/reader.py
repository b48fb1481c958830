"""Goes through the words of a text, for whoever parses it; comments are kept beside."""

import re

from authz_project.importers.model import Place
from authz_project.importers.spicedb.source_errors import SourceError, place_in
from authz_project.importers.spicedb.words import Kind, Word, words_of
from policy.language.source import Source

DEEPEST = 200  # as deep as conditions of a policy nest


class Reader:
    def __init__(self, source: Source):
        found = words_of(source)
        self.source = source
        self._words = [word for word in found if word.kind is not Kind.COMMENT]
        self._comments = [word for word in found if word.kind is Kind.COMMENT]
        self._at = 0
        self._depth = 0
        self._next_comment = 0

    # ---- words ----------------------------------------------------------------------------------------------------

    @property
    def word(self) -> Word:
        return self._words[self._at]

    @property
    def previous(self) -> Word:
        return self._words[self._at - 1]

    def following(self, steps: int = 1) -> Word:
        return self._words[min(self._at + steps, len(self._words) - 1)]

    def take(self) -> Word:
        taken = self.word
        if taken.kind is not Kind.END:
            self._at += 1
        return taken

    def is_sign(self, *signs: str) -> bool:
        return self.word.kind is Kind.SIGN and self.word.text in signs

    def is_name(self, *names: str) -> bool:
        return self.word.kind is Kind.NAME and (not names or self.word.text in names)

    def took(self, text: str) -> bool:
        """Say whether the next word is this one; if so, take it."""
        if self.word.kind in (Kind.SIGN, Kind.NAME) and self.word.text == text:
            self.take()
            return True
        return False

    def expect(self, text: str, why: str) -> Word:
        if self.word.kind is Kind.SIGN and self.word.text == text:
            return self.take()
        raise self.unexpected(f"`{text}` {why}")

    def name(self, what: str) -> Word:
        if self.word.kind is Kind.NAME:
            return self.take()
        raise self.unexpected(what)

    def unexpected(self, wanted: str) -> SourceError:
        return SourceError(f"expected {wanted}, and found {self.word.shown}", self.place())

    # ---- places ---------------------------------------------------------------------------------------------------

    def place(self, word: Word | None = None) -> Place:
        return place_in(self.source, (word or self.word).span.start)

    def text_since(self, first: Word) -> str:
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
