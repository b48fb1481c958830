"""Takes a text in the schema language apart into words and signs; conditions of caveats have the same ones.

A name that follows `use` may make other names mean something, so the parser alone tells names from key words.
Line ends mean nothing here: every statement begins with a word that nothing can be continued with.
"""

import re
from dataclasses import dataclass
from enum import Enum

from authz_project.importers.spicedb.source_errors import SourceError, place_in
from policy.language.source import Source, Span


class Kind(Enum):
    NAME = "a name"
    NUMBER = "a number"
    TEXT = "a string"
    SIGN = "a sign"
    COMMENT = "a comment"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Word:
    kind: Kind
    text: str
    span: Span

    @property
    def shown(self) -> str:
        return "the end of the file" if self.kind is Kind.END else f"`{self.text}`"


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


def words_of(source: Source) -> list[Word]:
    """Return all words and comments of a text, and the end."""
    words, place = [], 0
    while place < len(source.text):
        found = _WORD.match(source.text, place)
        if found is None:
            raise SourceError(_what_is_wrong(source.text, place), place_in(source, place))
        kind = found.lastgroup or ""
        if kind != "SPACE":
            words.append(Word(Kind[kind], found[0], Span(place, found.end())))
        place = found.end()
    return [*words, Word(Kind.END, "", Span(place, place))]


def _what_is_wrong(text: str, place: int) -> str:
    if text.startswith("/*", place):
        return "this comment has no end; close it with `*/`"
    if text[place] in "\"'":
        return "this string has no end on its line; close it"
    return f"`{text[place]}` means nothing in a schema; remove it"
