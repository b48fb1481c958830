"""What a text declares, for editor tools such as completion. The text need not parse.

The outline is read from words and signs alone, so a mistake in one place hides nothing in another. The head of a block
or test (`resource Repo {`, `test "owners read" {`) cannot stand inside another one, so it always begins a new block or
test, even if an earlier brace is still open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from policy.language.lexer import COMPARISONS, CONTEXTUAL, NAME, RESERVED

LISTS = ("roles", "permissions")
PRIMITIVES = ("String", "Integer", "Boolean")
ABSTRACT = ("Actor", "Resource")
OPENING = ("LPAREN", "LBRACKET", "LBRACE")
CLOSING = ("RPAREN", "RBRACKET", "RBRACE")
HEADS = ("ACTOR", "RESOURCE", "GLOBAL", "TEST")
_NAMED = RESERVED | CONTEXTUAL | {"@current_unix_time": "NOW"}
_SIGNS = {
    "(": "LPAREN", ")": "RPAREN", "[": "LBRACKET", "]": "RBRACKET", "{": "LBRACE", "}": "RBRACE", ",": "COMMA",
    ";": "SEMI", ":": "COLON", "=": "EQ",
}  # fmt: skip
# The lexer's tokens in one regular expression. It takes a tenth of the lexer's time, which counts while somebody types.
_WORD = re.compile(
    rf"""
      (?P<COMMENT> \#[^\n]* )
    | (?P<STRING>  "(?:[^"\\\n]|\\[\s\S])*+"? )
    | (?P<NAME>    matches!(?!=) | @?{NAME} )
    | (?P<INTEGER> [+-]?[0-9]+ )
    | (?P<SIGN>    {"|".join(COMPARISONS)} | [()\[\]{{}},;:=] )
    """,
    re.VERBOSE,
)


class Word(NamedTuple):
    """A word or a sign. `text` is always as written, but the lexer replaces the text of some invalid tokens."""

    kind: str  # the lexer's: NAME, STRING, LPAREN, …
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """Return the text of the word, without the quotes of a string. The string need not be closed."""
        return self.text[1:].removesuffix('"') if self.kind == "STRING" else self.text

    @property
    def is_open_string(self) -> bool:
        return self.kind == "STRING" and (len(self.text) < 2 or not self.text.endswith('"'))


@dataclass(slots=True)
class OutlineBlock:
    """An `actor`, `resource` or `global` block, as far as it is written."""

    kind: str
    name: str  # empty for `global`
    extends: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    permissions: list[str] = field(default_factory=list)
    relations: dict[str, str] = field(default_factory=dict)  # name -> type


@dataclass(frozen=True, slots=True)
class Outline:
    types: Mapping[str, OutlineBlock]
    everything: OutlineBlock  # of all `global` blocks
    predicates: Mapping[str, tuple[str, ...]]  # name -> arguments, as first written
    fixtures: tuple[str, ...]

    def of(self, type_name: str) -> OutlineBlock:
        """Return the block of a type, merged with what it inherits; an empty block for a type without one."""
        found = OutlineBlock("", type_name)
        waiting, seen = [type_name], set()
        while waiting:
            name = waiting.pop(0)
            block = self.types.get(name)
            if block is None or name in seen:
                continue
            seen.add(name)
            found.roles += block.roles
            found.permissions += block.permissions
            found.relations = block.relations | found.relations
            waiting += block.extends
        return found


def words_of(text: str) -> list[Word]:
    """Return all words and signs, without comments; other characters are skipped."""
    return [
        Word(_kind(found), found[0], found.start(), found.end())
        for found in _WORD.finditer(text)
        if found.lastgroup != "COMMENT"
    ]


def _kind(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if kind == "NAME":
        return _NAMED.get(found[0], kind)
    return _SIGNS.get(found[0], "COMPARE") if kind == "SIGN" else kind


# ---- what begins a block or a test -------------------------------------------------------------------------------


def head_length(words: Sequence[Word], at: int) -> int:
    """Return the length in words of the head of a block or test that begins at `at`, or 0 if none begins there.

    The opening brace counts: the head `resource Repo {` has 3 words.
    """
    if words[at].kind not in HEADS:
        return 0
    kinds = [word.kind for word in words[at : at + 4]]
    if kinds[:2] == ["GLOBAL", "LBRACE"]:
        return 2
    if kinds[:1] == ["TEST"]:
        return next((n for n in (3, 4) if kinds[1:n] in (["STRING", "LBRACE"], ["FIXTURE", "NAME", "LBRACE"])), 0)
    if kinds[:2] not in (["ACTOR", "NAME"], ["RESOURCE", "NAME"]):
        return 0
    if kinds[2:3] == ["LBRACE"]:
        return 3
    return _length_with_extends(words, at) if kinds[2:3] == ["EXTENDS"] else 0


def _length_with_extends(words: Sequence[Word], at: int) -> int:
    for place in range(at + 3, len(words)):
        if words[place].kind == "LBRACE":
            return place + 1 - at
        if words[place].kind not in ("NAME", "COMMA"):
            break
    return 0


def outline_of(words: Sequence[Word]) -> Outline:
    types: dict[str, OutlineBlock] = {}
    everything = OutlineBlock("global", "")
    block: OutlineBlock | None = None
    fixtures: list[str] = []
    depth = at = 0
    while at < len(words):
        if length := head_length(words, at):
            head = words[at : at + length]
            block, depth = _block_of(head, types, everything), 1
            if head[1].kind == "FIXTURE":
                fixtures.append(head[2].name)
            at += length
            continue
        depth += {"LBRACE": 1, "RBRACE": -1}.get(words[at].kind, 0)
        if depth <= 0:
            block, depth = None, 0
        if block is not None and depth == 1:
            _read_declaration(words, at, block)
        at += 1
    return Outline(types, everything, dict(_predicates(words)), tuple(dict.fromkeys(fixtures)))


def _block_of(head: Sequence[Word], types: dict[str, OutlineBlock], everything: OutlineBlock) -> OutlineBlock | None:
    match head[0].kind:
        case "GLOBAL":
            return everything
        case "TEST":
            return None
    name = head[1].name
    block = types.setdefault(name, OutlineBlock(head[0].text, name))
    block.extends += [word.name for word in head[3:] if word.kind == "NAME"]
    return block


def _read_declaration(words: Sequence[Word], at: int, block: OutlineBlock) -> None:
    """Read `roles = [...]`, `permissions = [...]` or `relations = {...}` into the block, as far as it is written."""
    kinds = [word.kind for word in words[at + 1 : at + 3]]
    if words[at].text in LISTS and kinds == ["EQ", "LBRACKET"]:
        names: list[str] = getattr(block, words[at].text)
        names += [word.name for word in _until(words, at + 3, "RBRACKET") if word.kind == "STRING" and word.name]
    elif words[at].text == "relations" and kinds == ["EQ", "LBRACE"]:
        inside = list(_until(words, at + 3, "RBRACE"))
        for name, colon, type_word in zip(inside, inside[1:], inside[2:]):
            if colon.kind == "COLON" and type_word.kind == "NAME":
                block.relations[name.name] = type_word.name


def _until(words: Sequence[Word], at: int, end: str) -> Iterator[Word]:
    for place in range(at, len(words)):
        if words[place].kind in (end, "SEMI") or head_length(words, place):
            return
        yield words[place]


# ---- predicates --------------------------------------------------------------------------------------------------


def _predicates(words: Sequence[Word]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every called name and its arguments, from the last call to the first.

    `dict` keeps the last pair of several with the same name, so it keeps the first call of each name.
    """
    called = [at for at, word in enumerate(words[:-1]) if is_called(word, words[at + 1])]
    for at in reversed(called):
        yield words[at].text, tuple(_arguments(words, at + 2))


def is_called(word: Word, following: Word) -> bool:
    """Say whether the two words are `name (`. They are not in `not (` and `actor (`, which begin with a keyword."""
    return following.kind == "LPAREN" and word.kind == "NAME"


def _arguments(words: Sequence[Word], at: int) -> Iterator[str]:
    """Yield the first word of each argument: `user` for `user: User`, and `User` for `User{"ann"}`."""
    for argument in split_arguments(words, at):
        if argument:
            yield argument[0].text


def split_arguments(words: Sequence[Word], at: int = 0) -> list[list[Word]]:
    """Return the words of each argument, from `at`, the index after the opening parenthesis, up to the closing one."""
    found: list[list[Word]] = [[]]
    depth = 0
    for place in range(at, len(words)):
        word = words[place]
        if word.kind == "SEMI" or (word.kind in CLOSING and depth == 0):
            break
        if word.kind == "COMMA" and depth == 0:
            found.append([])
            continue
        depth += (word.kind in OPENING) - (word.kind in CLOSING)
        found[-1].append(word)
    return found
