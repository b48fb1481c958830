"""Words -> the text of a policy, statement by statement.

Each statement begins a line, and the contents of a block are indented by two columns. Where the text has blank lines
between statements, one is kept. A top-level block with contents always has a blank line between it and its neighbors.
"""

from __future__ import annotations

from policy.language.format.breaking import MOST_BESIDE, heading, statement
from policy.language.format.document import STEP, WIDTH, written
from policy.language.format.spacing import TOGETHER
from policy.language.format.words import END, Word, pass_on

_OPERATORS = ("AND", "OR")


def laid_out(words: list[Word]) -> str:
    lines: list[str] = []
    _statements(words, 0, 0, lines)
    return "".join(f"{line}\n" for line in lines)


def _statements(words: list[Word], at: int, level: int, lines: list[str]) -> int:
    """Write the statements up to the end of the block, or of the policy, and return the index of that end."""
    first, apart = True, False
    while True:
        word = words[at]
        if word.kind == "SEMI":
            pass_on(words, at)  # the `;` of an empty statement
            at += 1
            continue
        if word.kind in ("RBRACE", END):
            _comments(word, level, lines, first)
            return at
        is_block = _is_block(words, at, level)
        brace = _brace(words, at) if is_block else at
        is_large = is_block and level == 0 and not _is_empty(words, brace)
        _space(_apart(word) if (apart or is_large) and not first else word, level, lines, first)
        at = _block(words, at, brace, level, lines) if is_block else _simple(words, at, level, lines)
        first, apart = False, is_large


# ---- what stands before a statement -------------------------------------------------------------------------------


def _space(word: Word, level: int, lines: list[str], first: bool) -> None:
    """Write the comments before a statement, and its blank line if it has one. No block begins with a blank line."""
    first = _comments(word, level, lines, first)
    if word.breaks > 1 and not first:
        lines.append("")


def _comments(word: Word, level: int, lines: list[str], first: bool) -> bool:
    """Write the comments before a word, and return whether the block is still without any line of its own."""
    for comment in word.comments:
        if comment.breaks == 0 and lines:
            lines[-1] += f"  {comment.text}"
            continue
        if comment.breaks > 1 and not first:
            lines.append("")
        lines.append(" " * level + comment.text)
        first = False
    return first


def _apart(word: Word) -> Word:
    """Return the word with a blank line before it or one of its comments.

    If it has none yet, the blank line goes before the first comment that begins a line, or else before the word.
    """
    own = [index for index, comment in enumerate(word.comments) if comment.breaks]
    if word.breaks > 1 or any(word.comments[index].breaks > 1 for index in own):
        return word
    if not own:
        return word._replace(breaks=2)
    comments = list(word.comments)
    comments[own[0]] = comments[own[0]]._replace(breaks=2)
    return word._replace(comments=tuple(comments))


# ---- blocks ---------------------------------------------------------------------------------------------------------


def _is_block(words: list[Word], at: int, level: int) -> bool:
    kind, following = words[at].kind, words[at + 1].kind
    if level:
        return kind == "SETUP" and following == "LBRACE"
    if kind == "GLOBAL":
        return following == "LBRACE"
    return kind in ("ACTOR", "RESOURCE", "TEST") and following != "LPAREN"


def _brace(words: list[Word], at: int) -> int:
    while words[at].kind != "LBRACE":
        at += 1
    return at


def _is_empty(words: list[Word], brace: int) -> bool:
    return words[brace + 1].kind == "RBRACE" and not words[brace + 1].comments


def _block(words: list[Word], at: int, brace: int, level: int, lines: list[str]) -> int:
    head = " ".join(word.text if word.kind != "COMMA" else "," for word in words[at:brace]).replace(" ,", ",") + " {"
    if len(head) > WIDTH - level or any(word.comments for word in words[at + 1 : brace]):
        head = written(heading(words[at:brace]), level)
    lines.append(" " * level + head)
    if _is_empty(words, brace):
        lines[-1] += "}"
        return brace + 2
    at = _statements(words, brace + 1, level + STEP, lines)
    lines.append(" " * level + "}")
    return at + 1


# ---- what ends with `;` ---------------------------------------------------------------------------------------------


def _simple(words: list[Word], start: int, level: int, lines: list[str]) -> int:
    """Write a statement and return the index after it.

    It stands on one line, unless it is too long, has comments inside, or is a rule with many conditions.
    """
    parts: list[str] = [" " * level]
    previous, depth, operators, has_comments = "LPAREN", 0, 0, False
    at = start
    while previous != "SEMI":
        kind, text, comments, _ = words[at]
        if comments and at > start:
            has_comments = True
        if (previous, kind) not in TOGETHER:
            parts.append(" ")
        parts.append(text)
        if kind == "LPAREN":
            depth += 1
        elif kind == "RPAREN":
            depth -= 1
        elif kind in _OPERATORS and not depth:
            operators += 1
        previous = kind
        at += 1
    is_rule = level == 0
    line = "".join(parts)
    if has_comments or len(line) > WIDTH or (is_rule and operators >= MOST_BESIDE):
        line = " " * level + written(statement(words, start, is_rule), level)
    lines.append(line)
    return at
