"""The occurrences of each name in a text: definitions, uses and grants.

Names are read from words alone, like the outline, so the text need not parse. Roles, permissions and relations are
named by strings, and several types may share a string (`role if role on "folder"` passes every role on under its own
name). So equal strings count as one name in the whole policy. A variable is one name only within its statement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from policy.language.completion import LISTS, segments_in
from policy.language.grammar import text_of
from policy.language.parser import NAMES, Word
from policy.language.source import Span
from policy.values import STRING, quoted

TYPE, PREDICATE, FIXTURE, VARIABLE, NAME, TEST = "type", "predicate", "fixture", "variable", "name", "test"
_BLOCKS = ("ACTOR", "RESOURCE", "GLOBAL")
SHORTHAND = ("role", "permission", "actor", "resource")  # words with a meaning in a block


class NameKey(NamedTuple):
    """The name that an occurrence refers to. `statement` is the number of a variable's statement, otherwise 0."""

    kind: str
    name: str
    statement: int = 0


class Occurrence(NamedTuple):
    key: NameKey
    span: Span  # for a string, the part between its quotes
    is_definition: bool = False
    block: str = ""  # the type in whose block it is defined


@dataclass(slots=True)
class Symbol:
    """A block, a test, a fixture, a rule, a declaration, or a list in a block."""

    kind: str  # the keyword that introduces it, or rule
    name: str
    span: Span
    name_span: Span
    inside: list[Symbol] = field(default_factory=list)


@dataclass(frozen=True)
class Names:
    occurrences: tuple[Occurrence, ...]  # in text order
    symbols: tuple[Symbol, ...]
    grants: Mapping[str, tuple[Span, ...]]  # name of a role, permission or relation -> the statements that grant it

    @cached_property
    def _starts(self) -> list[int]:
        return [each.span.start for each in self.occurrences]

    @cached_property
    def _by_key(self) -> dict[NameKey, list[Occurrence]]:
        found: dict[NameKey, list[Occurrence]] = {}
        for each in self.occurrences:
            found.setdefault(each.key, []).append(each)
        return found

    def at(self, place: int) -> Occurrence | None:
        """Return the occurrence that contains or ends at the offset `place`; None if there is none."""
        index = bisect_right(self._starts, place) - 1
        if index < 0 or place > self.occurrences[index].span.end:
            return None
        return self.occurrences[index]

    def of(self, key: NameKey) -> Sequence[Occurrence]:
        return self._by_key.get(key, ())

    def definitions(self, key: NameKey) -> list[Occurrence]:
        """Return the definitions of a name; a variable without a type is defined by its first occurrence."""
        found = [each for each in self.of(key) if each.is_definition]
        return found or list(self.of(key)[:1] if key.kind == VARIABLE else ())

    def is_in_block(self, place: int) -> bool:
        """Return whether the offset is in an actor, a resource or the global block."""
        kinds = [each.kind.upper() for each in self.symbols if each.span.start <= place < each.span.end]
        return any(kind in _BLOCKS for kind in kinds)


def names_of(words: Sequence[Word]) -> Names:
    reading = _Reading(words)
    reading.read()
    occurrences = sorted(reading.occurrences, key=lambda each: each.span.start)
    grants = {name: tuple(spans) for name, spans in reading.grants.items()}
    return Names(tuple(occurrences), tuple(reading.symbols), grants)


@dataclass
class _Reading:
    """One pass over the words, which collects the names."""

    words: Sequence[Word]
    occurrences: list[Occurrence] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    grants: dict[str, list[Span]] = field(default_factory=dict)
    statement: int = 0
    symbol: Symbol | None = None  # the current block or test
    kind: str = ""  # kind of the current block or test: ACTOR, RESOURCE, GLOBAL, TEST, or empty

    def read(self) -> None:
        is_setup = False
        for kind, words in segments_in(self.words):
            match kind:
                case "head":
                    self._head(words)
                case "statement":
                    self._statement(words)
                case "end" if not is_setup:
                    self._close(words[0].end)
            is_setup = kind == "setup" or (is_setup and kind == "statement")

    # ---- blocks -----------------------------------------------------------------------------------------------

    def _head(self, words: Sequence[Word]) -> None:
        first, named = words[:2]
        self.kind = first.kind
        match first.kind, named.kind:
            case "GLOBAL", _:
                named = first
            case "TEST", "FIXTURE":
                named = words[2]
                self._add(FIXTURE, named, is_definition=True)
            case "TEST", _:
                self._add(TEST, named, is_definition=True)
            case _:
                self._add(TYPE, named, is_definition=True)
                for word in words[3:]:
                    if word.kind in NAMES:
                        self._add(TYPE, word)
        kind = "fixture" if words[1].kind == "FIXTURE" else first.text
        self.symbol = Symbol(kind, _meant(named), Span(first.start, words[-1].end), _inner(named))
        self.symbols.append(self.symbol)

    def _close(self, end: int) -> None:
        if self.symbol:
            self.symbol.span = Span(self.symbol.span.start, end)
        self.symbol, self.kind = None, ""

    # ---- statements -------------------------------------------------------------------------------------------

    def _statement(self, words: Sequence[Word]) -> None:
        self.statement += 1
        span = Span(words[0].start, words[-1].end)
        if self.kind in _BLOCKS and len(words) > 2 and words[1].kind == "EQ":
            self._declaration(words, span)
        else:
            self._granted(words, span)
            self._formula(words)
            if not self.kind:
                self._top_symbol(words, span)

    def _declaration(self, words: Sequence[Word], span: Span) -> None:
        """Read `roles = [...]`, `permissions = [...]` or `relations = {...}`."""
        assert self.symbol
        self.symbol.inside.append(Symbol(words[0].text, words[0].text, span, _inner(words[0])))
        block = self.symbol.name if self.kind != "GLOBAL" else ""
        for before, word in pairwise(words[1:]):
            if words[0].text in LISTS and word.kind == "STRING":
                self._add(NAME, word, is_definition=True, block=block)
            elif word.kind in NAMES and before.kind == "COLON":
                self._add(TYPE, word)
            elif word.kind in NAMES:
                self._add(NAME, word, is_definition=True, block=block)

    def _granted(self, words: Sequence[Word], span: Span) -> None:
        """Record the names that a statement grants: the head of shorthand, or strings in the head of a rule.

        In a block, `"read" if "owner";` grants read. Outside, `has_role(u: User, "owner", r: Repo);` grants owner.
        """
        if self.kind in _BLOCKS and words[0].kind == "STRING":
            self.grants.setdefault(_spelled(words[0]), []).append(span)
        elif not self.kind and words[0].text.startswith("has_") and len(words) > 1 and words[1].kind == "LPAREN":
            head = next((at for at, word in enumerate(words) if word.kind == "IF"), len(words))
            for before, word in pairwise(words[:head]):
                if word.kind == "STRING" and before.kind == "COMMA":
                    self.grants.setdefault(_spelled(word), []).append(span)

    def _top_symbol(self, words: Sequence[Word], span: Span) -> None:
        is_declared = words[0].kind == "DECLARE" and len(words) > 2 and words[1].kind != "LPAREN"
        named = words[1] if is_declared else words[0]
        if named.kind in NAMES:
            self.symbols.append(Symbol("declare" if is_declared else "rule", named.text, span, _inner(named)))

    def _formula(self, words: Sequence[Word]) -> None:
        in_head = not self.kind
        is_declared = words[0].kind == "DECLARE" and len(words) > 2 and words[1].kind != "LPAREN"
        for at, word in enumerate(words):
            before = words[at - 1].kind if at else ""
            after = words[at + 1].kind if at + 1 < len(words) else ""
            if word.kind == "IF":
                in_head = False
            if word.kind == "STRING":
                typed = words[at - 2] if before == "LBRACE" and at > 1 else word
                if typed.kind not in NAMES or typed.text == STRING:  # an entity's id is not a name
                    self._add(NAME, word)
            elif word.kind in NAMES:
                self._word(word, before, after, in_head, is_declared, first=at == 0)

    def _word(self, word: Word, before: str, after: str, in_head: bool, is_declared: bool, first: bool) -> None:
        if after == "LPAREN":
            self._add(PREDICATE, word, is_definition=in_head)
        elif after == "LBRACE" or before in ("COLON", "MATCHES", "MATCHES_EXACTLY"):
            self._add(TYPE, word)
        elif before == "FIXTURE":
            self._add(FIXTURE, word)
        elif is_declared:
            if not first:
                self._add(TYPE, word)
        elif not first and word.text != "_" and not self._is_of_language(word, after):
            self._add(VARIABLE, word, is_definition=after in ("COLON", "MATCHES", "MATCHES_EXACTLY"))

    def _is_of_language(self, word: Word, after: str) -> bool:
        """Return whether this is a keyword here: a SHORTHAND word in a block, or `global` before a string or name."""
        in_block = self.kind in _BLOCKS and word.text in SHORTHAND
        return in_block or (word.kind == "GLOBAL" and after in ("STRING", "NAME"))

    def _add(self, kind: str, word: Word, is_definition: bool = False, block: str = "") -> None:
        key = NameKey(kind, _spelled(word), self.statement if kind == VARIABLE else 0)
        self.occurrences.append(Occurrence(key, _inner(word), is_definition, block))


def _meant(word: Word) -> str:
    """Return the name that a word stands for: a closed string without its quotes and escapes."""
    return text_of(word.text) if word.kind == "STRING" and not word.is_open_string else word.name


def _spelled(word: Word) -> str:
    """Return the name that a word stands for, as the formatter spells it between quotes."""
    return quoted(_meant(word))[1:-1] if word.kind == "STRING" and not word.is_open_string else word.name


def _inner(word: Word) -> Span:
    """Return the span of the word, without the quotes of a string."""
    start = word.start + (word.kind == "STRING")
    return Span(start, start + len(word.name))
