"""The words of a model in the modelling language, with the comments before them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from authz_project.importers.model import Place
from authz_project.importers.report import Fault, ImportRejected

_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")
_SIGNS = "[](){}:,#*<>"
_HASHED = re.compile(r'''"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|(?<!\S)\#(?P<comment>[^\n]*)''')


@dataclass(frozen=True, slots=True)
class Word:
    """`kind` is word, sign, body (what stands in the braces of a condition) or end."""

    kind: str
    text: str
    place: Place
    is_first: bool  # on its line
    before: tuple[str, ...] = ()  # comments on lines of their own
    after: str = ""  # the comment at the end of its line, if it is the last word there


def words_of(text: str, file: str) -> list[Word]:
    return _Reader(text, file).words()


class _Reader:
    def __init__(self, text: str, file: str):
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.file = file
        self.found: list[Word] = []
        self.comments: list[str] = []
        self.is_condition = False

    def words(self) -> list[Word]:
        number = 0
        while number < len(self.lines):
            number = self._line(number)
        last = next((at for at in range(len(self.lines), 0, -1) if self.lines[at - 1].strip()), 1)
        self._add("end", "", Place(self.file, last, len(self.lines[last - 1].rstrip()) + 1), True)
        return self.found

    def _line(self, number: int) -> int:
        """Read one line, or more where a condition's body goes on; the number of the next."""
        line, at, is_first = self.lines[number], 0, True
        while at < len(line):
            char, place = line[at], Place(self.file, number + 1, at + 1)
            if char.isspace():
                at += 1
            elif char == "#" and (at == 0 or line[at - 1].isspace()):
                self._comment(line[at + 1 :].strip(), is_first)
                break
            elif char == "{" and self.is_condition:
                return self._body(number, at)
            elif found := _WORD.match(line, at):
                self.is_condition = found[0] == "condition" if is_first else self.is_condition
                self._add("word", found[0], place, is_first)
                at, is_first = found.end(), False
            elif char in _SIGNS:
                self._add("sign", char, place, is_first)
                at, is_first = at + 1, False
            else:
                raise ImportRejected([Fault(place, f"`{char}` means nothing here")])
        return number + 1

    def _comment(self, text: str, is_alone: bool) -> None:
        if is_alone:
            self.comments.append(text)
        elif self.found:
            last = self.found[-1]
            self.found[-1] = Word(last.kind, last.text, last.place, last.is_first, last.before, text)

    def _body(self, number: int, at: int) -> int:
        """Return what stands in braces, as it is; a `}` in a text or a comment ends nothing."""
        start = Place(self.file, number + 1, at + 2)
        text = "\n".join([self.lines[number][at + 1 :], *self.lines[number + 1 :]])
        without_comments = _HASHED.sub(_blanked, text)
        end = _closing(without_comments)
        if end is None:
            raise ImportRejected([Fault(start, "the condition has no `}`")])
        body = without_comments[:end]
        self.comments += [found["comment"].strip() for found in _HASHED.finditer(text, 0, end) if found["comment"]]
        self._add("body", body, start, False)
        self.is_condition = False
        last = number + body.count("\n")
        rest = text[end + 1 :].split("\n", 1)[0].strip()
        if rest.startswith("#"):
            self._comment(rest[1:].strip(), False)
        elif rest:
            place = Place(self.file, last + 1, self.lines[last].rfind(rest) + 1)
            raise ImportRejected([Fault(place, f"`{rest}` stands behind a condition")])
        return last + 1

    def _add(self, kind: str, text: str, place: Place, is_first: bool) -> None:
        self.found.append(Word(kind, text, place, is_first, tuple(self.comments)))
        self.comments = []


def _blanked(found: re.Match[str]) -> str:
    """Put blanks in the place of a comment that `#` begins; texts, and comments of the expression, stay."""
    return found[0] if found["comment"] is None else " " * len(found[0])


def _closing(text: str) -> int | None:
    """Return where the `}` stands that ends a body."""
    depth, at = 0, 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            found = re.compile(rf"{char}(?:\\.|[^{char}\\\n])*{char}").match(text, at)
            at = found.end() if found else at + 1
            continue
        if text.startswith("//", at):
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            if not depth:
                return at
            depth -= 1
        at += 1
    return None
