"""The context of a position in a text: the block or test around it, the statement and the call.

The words before the position determine the context. The words after it show what else belongs to the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.language.outline import (
    CLOSING,
    OPENING,
    Outline,
    OutlineBlock,
    Word,
    head_length,
    is_called,
    split_arguments,
)


@dataclass(frozen=True, slots=True)
class CursorContext:
    """The context of a position: the block or test around it, the statement there, and what can be named."""

    head: Sequence[Word]  # of the block or test, up to its `{`; empty if none is open
    is_setup: bool
    statement: Sequence[Word]  # the words of the statement before the position
    ahead: Sequence[Word]  # the words after the position; they may go on beyond the statement
    outline: Outline
    in_string: bool
    opened: tuple[int, ...]  # indexes in `statement` of the brackets that are still open

    @property
    def kind(self) -> str:
        """Return actor, resource, global, test or fixture; an empty string if no block or test is open."""
        if not self.head:
            return ""
        return "fixture" if self.head[1].kind == "FIXTURE" else self.head[0].text

    @property
    def block(self) -> OutlineBlock:
        """Return what the block around the position declares or inherits."""
        return self.outline.everything if self.kind == "global" else self.outline.of(self.head[1].name)

    @property
    def last(self) -> str:
        return self.statement[-1].kind if self.statement else ""

    @property
    def has_if(self) -> bool:
        return any(word.kind == "IF" for word in self.statement)

    @property
    def rest(self) -> list[Word]:
        """Return the words after the position, up to the `;` of the statement."""
        found: list[Word] = []
        for word in self.ahead:
            if word.kind == "SEMI":
                break
            found.append(word)
        return found

    @property
    def call(self) -> tuple[str, int, list[list[Word]]] | None:
        """Return the innermost call around the position; None if there is none.

        This is the predicate, the index of the argument that is being written, and the words of all arguments, with `_`
        at the position. With `|` for the position: has_role(user, |, repo) -> "has_role", 1, [[user], [_], [repo]].
        """
        for at in reversed(self.opened):
            if self.statement[at].kind == "LPAREN" and at and is_called(self.statement[at - 1], self.statement[at]):
                inside = self.statement[at + 1 :]
                here = len(split_arguments(inside)) - 1
                whole = split_arguments([*inside, Word("NAME", "_", 0, 0), *self.rest])
                return self.statement[at - 1].text, here, whole
        return None

    @property
    def list_of(self) -> str:
        """Return the keyword of the declaration whose list the position is in; an empty string outside of such lists.

        The keyword is roles, permissions or relations, unless the text has another word there.
        """
        is_list = len(self.statement) > 2 and self.statement[1].kind == "EQ" and bool(self.opened)
        return self.statement[0].text if is_list else ""


def context_of(before: Sequence[Word], ahead: Sequence[Word], outline: Outline, in_string: bool) -> CursorContext:
    """Return the context of the position between the words `before` and the words `ahead`."""
    head: Sequence[Word] = ()
    begin = at = depth = 0
    is_setup = False
    while at < len(before):
        word = before[at]
        if length := head_length(before, at):
            head, at, depth, is_setup = before[at : at + length], at + length, 0, False
            begin = at
            continue
        if word.kind == "LBRACE" and before[at - 1].kind == "SETUP":
            begin, is_setup = at + 1, True
        elif word.kind == "LBRACE":
            depth += 1
        elif word.kind == "RBRACE" and depth:
            depth -= 1
        elif word.kind == "RBRACE" and is_setup:
            begin, is_setup = at + 1, False
        elif word.kind == "RBRACE":
            head, begin = (), at + 1
        elif word.kind == "SEMI":
            begin, depth = at + 1, 0
        at += 1
    statement = before[begin:]
    return CursorContext(head, is_setup, statement, ahead, outline, in_string, tuple(_opened(statement)))


def _opened(statement: Sequence[Word]) -> list[int]:
    found: list[int] = []
    for at, word in enumerate(statement):
        if word.kind in OPENING:
            found.append(at)
        elif word.kind in CLOSING and found:
            found.pop()
    return found
