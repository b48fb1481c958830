"""Build the document of a statement that takes several lines: where its lines may break.

    rule(
      arguments
    ) if
      condition and
      not (
        condition or
        condition
      );

Lines break after `if` and after each `and` and `or`. A conjunction inside a disjunction, and the inside of brackets,
are groups of their own: they break only if they do not fit on a line themselves.

Most functions take the words and the index of their first word, and also return the index after their last word.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy.language.format.document import Document, Group, IfBroken, Line, Remark, group, nest
from policy.language.format.spacing import TOGETHER
from policy.language.format.words import END, NAMES, Word

MOST_BESIDE = 2  # conditions of a rule that may stand on one line with its head
_SPACE, _NONE, _ALWAYS = " ", "", Line(always=True)
_ENDS = frozenset({"AND", "OR", "IF", "IFF", "SEMI", "COMMA", "RPAREN", "RBRACKET", "RBRACE", END})
_CLOSING = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE"}


def statement(words: Sequence[Word], at: int, is_rule: bool) -> Group:
    """Return the document of a statement, with its `;`.

    A rule outside of blocks (`is_rule`) with more than MOST_BESIDE conditions breaks even if it fits on one line.
    """
    parts, at = _run(words, at)
    operators = 0
    if words[at].kind in ("IF", "IFF"):
        parts.append(f" {words[at].text}")
        condition, operators, end = _formula(words, at + 1)
        parts.append(nest([*_lead(words[at + 1], _SPACE, first=True), *condition]))
        at = end
    if words[at].comments:
        parts += [nest(_remarks(words[at])), _ALWAYS]
    parts.append(";")
    return group(parts, forced=is_rule and operators >= MOST_BESIDE)


def heading(words: Sequence[Word]) -> Group:
    """Return the document of a block's head, with its `{`; `words` end before the `{`.

    The third word is `extends`, if the head has it.
    """
    parts: list[Document] = [words[0].text]
    supertypes: list[Document] = []
    for index, word in enumerate(words[1:], 1):
        if word.kind == "COMMA":
            supertypes.append(",")
        elif index > 2:
            supertypes += [*_lead(word, _SPACE), word.text]
        elif word.comments:
            parts.append(nest([*_lead(word, _SPACE), word.text]))
        else:
            parts.append(f" {word.text}")
    return group([*parts, nest(supertypes), " {"])


# ---- comments -----------------------------------------------------------------------------------------------------


def _lead(word: Word, flat: str, first: bool = False) -> list[Document]:
    """Return what stands before a word: a possible line break, or comments. With `first`, no blank line begins it."""
    if not word.comments:
        return [Line(flat, blank=word.breaks > 1 and not first)]
    return [*_remarks(word, first), Line(always=True, blank=word.breaks > 1)]


def _remarks(word: Word, first: bool = False) -> list[Document]:
    parts: list[Document] = []
    for comment in word.comments:
        if comment.breaks:
            parts += [Line(always=True, blank=comment.breaks > 1 and not first), comment.text]
            first = False
        else:
            parts.append(Remark(comment.text))
    return parts


# ---- formulas -----------------------------------------------------------------------------------------------------


def _formula(words: Sequence[Word], at: int) -> tuple[list[Document], int, int]:
    """Return conditions with `and` and `or` between them, the number of these operators, and the index after them.

    The conditions are no group of their own: they break with the group around them.
    """
    alternatives: list[Document] = []  # before the last `or`
    conjunction, at = _run(words, at)
    rest: list[Document] = []  # the current conjunction after its first condition
    operators = 0
    while words[at].kind in ("AND", "OR"):
        operators += 1
        lead = _lead(words[at + 1], _SPACE)
        condition, end = _run(words, at + 1)
        if words[at].kind == "AND":
            rest += [" and", *lead, *condition]
        else:
            alternatives += [*_branch(conjunction, rest), " or", *lead]
            conjunction, rest = condition, []
        at = end
    if alternatives:
        return [*alternatives, *_branch(conjunction, rest)], operators, at
    return [*conjunction, *rest], operators, at


def _branch(first: list[Document], rest: list[Document]) -> list[Document]:
    """Return a conjunction inside a disjunction as a group, indented from its second line on."""
    return [group([*first, nest(rest)])] if rest else first


def _run(words: Sequence[Word], at: int) -> tuple[list[Document], int]:
    """Return the words before the next operator, separator or closing bracket; brackets among them become groups."""
    parts: list[Document] = []
    previous = ""
    while (word := words[at]).kind not in _ENDS:
        kind = word.kind
        piece, at = _bracket(words, at, previous) if kind in _CLOSING else (word.text, at + 1)
        if not parts:
            parts.append(piece)
        elif word.comments:
            parts.append(nest([*_lead(word, _SPACE, first=True), piece]))
        else:
            parts += [piece] if (previous, kind) in TOGETHER else [" ", piece]
        previous = words[at - 1].kind
    return parts, at


def _bracket(words: Sequence[Word], at: int, previous: str) -> tuple[Document, int]:
    """Return parentheses, brackets or braces with their contents, usually as a group.

    Empty brackets and `{"ann"}`, the id of an entity, stay on one line, unless there are comments inside.
    """
    opening = words[at]
    flat = _SPACE if opening.kind == "LBRACE" else _NONE
    closing = _CLOSING[opening.kind]
    if words[at + 1].kind == closing and not words[at + 1].comments:
        return opening.text + words[at + 1].text, at + 2
    is_key = opening.kind == "LBRACE" and previous in NAMES
    if is_key and not words[at + 1].comments and not words[at + 2].comments:
        return f"{{{words[at + 1].text}}}", at + 3
    inside: list[Document] = []
    if opening.kind == "LPAREN" and previous not in NAMES:
        condition, _, end = _formula(words, at + 1)
        inside += [*_lead(words[at + 1], _NONE, first=True), *condition]
    else:
        end = _elements(words, at + 1, closing, flat, inside)
        if opening.kind != "LPAREN" and not is_key and inside:
            inside.append(IfBroken(","))
    last = words[end]
    inside += _remarks(last, first=not inside)
    line = _ALWAYS if last.comments else Line(flat)
    return group([opening.text, nest(inside), line, last.text]), end + 1


def _elements(words: Sequence[Word], at: int, closing: str, flat: str, inside: list[Document]) -> int:
    """Append the elements and their commas to `inside`, and return the index of the closing bracket."""
    while words[at].kind != closing:
        inside += _lead(words[at], _SPACE if inside else flat, first=not inside)
        element, at = _run(words, at)
        inside += element
        if words[at].kind == "COMMA":
            inside.append(",")
            at += 1
    return at
