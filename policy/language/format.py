"""Format policies: a single layout, with the same tokens and comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policy.language import ast
from policy.language.parser import NAMES, Token, parse_with_tokens, tokens
from policy.language.source import PolicyRejected, Source, without_collections

# ---- document -----------------------------------------------------------------------------------------------------
# Documents: texts with possible line breaks between them, to be rendered on one line or on several.
#
# A group breaks at all of its possible line breaks or at none. It breaks at none if nothing forces a break and it fits
# into the width, together with the text after it up to the next line break. Nested parts are indented further. This is
# Wadler's method ("A prettier printer", 2003), which most formatters use.

WIDTH = 100
STEP = 2


@dataclass(frozen=True, slots=True)
class LineBreak:
    """A possible line break, taken if its group breaks.

    `always` forces the group to break. With `blank`, the break leaves a blank line.
    """

    flat: str = " "  # the text if the group does not break
    always: bool = False
    blank: bool = False


@dataclass(frozen=True, slots=True)
class EndComment:
    """A comment at the end of a line. It forces its group to break, and may exceed the width."""

    text: str


@dataclass(frozen=True, slots=True)
class IfBroken:
    """A text that is written only if its group breaks."""

    text: str


@dataclass(frozen=True, slots=True)
class Nest:
    parts: Sequence[LayoutDocument]
    forced: bool  # whether it contains a forced line break


@dataclass(frozen=True, slots=True)
class Group:
    parts: Sequence[LayoutDocument]
    forced: bool


LayoutDocument = str | LineBreak | EndComment | IfBroken | Nest | Group
_Pending = tuple[int, bool, LayoutDocument]  # the indentation, whether the enclosing group is broken, and the document


def nest(parts: Sequence[LayoutDocument]) -> Nest:
    return Nest(parts, _breaks(parts))


def group(parts: Sequence[LayoutDocument], forced: bool = False) -> Group:
    return Group(parts, forced or _breaks(parts))


def _breaks(parts: Iterable[LayoutDocument]) -> bool:
    for part in parts:
        match part:
            case LineBreak(always=True) | EndComment() | Nest(forced=True) | Group(forced=True):
                return True
    return False


def written(document: LayoutDocument, indent: int) -> str:
    """Render the document as text. Its first line starts at column `indent`, but is returned without indentation."""
    out: list[str] = []
    column = indent
    pending: list[_Pending] = [(indent, True, document)]
    while pending:
        level, broken, part = pending.pop()
        match part:
            case str():
                out.append(part)
                column += len(part)
            case LineBreak(flat, always, blank):
                if broken or always:
                    out.append(("\n\n" if blank else "\n") + " " * level)
                    column = level
                else:
                    out.append(flat)
                    column += len(flat)
            case EndComment(text):
                out.append(f"  {text}")
            case IfBroken(text):
                if broken:
                    out.append(text)
            case Nest(parts):
                pending.extend((level + STEP, broken, inner) for inner in reversed(parts))
            case Group(parts, forced):
                breaks = forced or not _fits(WIDTH - column, part, pending)
                pending.extend((level, breaks, inner) for inner in reversed(parts))
    return "".join(out)


def _fits(room: int, tried: Group, after: list[_Pending]) -> bool:
    """Return whether the group on one line, with what follows it up to a line break, fits into `room` columns."""
    pending: list[tuple[bool, LayoutDocument]] = [(False, tried)]
    left = len(after)
    while room >= 0:
        if not pending:
            if not left:
                return True
            left -= 1
            _, broken, part = after[left]
        else:
            broken, part = pending.pop()
        match part:
            case str():
                room -= len(part)
            case LineBreak(flat, always):
                if broken or always:
                    return True
                room -= len(flat)
            case IfBroken(text):
                room -= len(text) if broken else 0
            case Nest(parts):
                pending.extend((broken, inner) for inner in reversed(parts))
            case Group(parts, forced):
                pending.extend((forced or broken, inner) for inner in reversed(parts))
    return False


# ---- The words of a policy, each with the comments before it ------------------------------------------------------
# A comment may occur between any two words of the text, but the formatter breaks lines only at some places. So a word
# that belongs to the word before it (a comma, an operator, an opening bracket) moves in front of the comments between:
#
#     reader(x) # who reads          reader(x) and  # who reads
#     and writer(x);            ->   writer(x);
#
# Afterwards, comments precede only words that may begin a line: an operand, a closing bracket, a statement.

END = "END"  # the kind of the word that marks the end of the text
# Kinds that always move in front of the comments before them.
_ALWAYS = frozenset({
    "COMMA", "AND", "OR", "IF", "IFF", "LBRACKET", "LBRACE", "COLON", "EQ", "COMPARE", "IN", "MATCHES",
    "MATCHES_EXACTLY", "ON",
})  # fmt: skip
_BEFORE_CONDITION = frozenset({"IF", "IFF", "AND", "OR", "NOT", "LPAREN"})
_MAY_FOLLOW_COMMA = frozenset({"RBRACKET", "RBRACE", "LBRACE"})  # LBRACE: `actor User extends Person, {`


class Comment(NamedTuple):
    text: str
    breaks: int  # line breaks before it; 0 if it is on the same line as the word before it


class FormattedWord(NamedTuple):
    kind: str
    text: str
    comments: tuple[Comment, ...]  # before it
    breaks: int  # line breaks before it, after the comments


class _Gap(NamedTuple):
    """The comments and line breaks between two words."""

    comments: tuple[Comment, ...]
    breaks: int


_NEARBY = ("", " ")
_NOTHING = _Gap((), 0)


def words_of(text: str, tokens: Iterable[Token]) -> list[FormattedWord]:
    """Return the words of a text, without trailing commas; `tokens` are the tokens of the text.

    The last word is END. It has the comments after the last token.
    """
    words: list[FormattedWord] = []
    end, previous, carried = 0, END, _NOTHING
    for token in tokens:
        kind, start, value = token.type, token.lexpos, token.value
        between = text[end:start]
        gap = _NOTHING if between in _NEARBY else _gap(between)
        if carried is not _NOTHING:
            gap, carried = _joined(carried, gap), _NOTHING
        if previous == "COMMA" and kind in _MAY_FOLLOW_COMMA:
            words.pop()
        if gap is not _NOTHING and _belongs_before(kind, previous, gap):
            gap, carried = _NOTHING, gap if kind != "SEMI" else _without_free_lines(gap)
        words.append(FormattedWord(kind, value, *gap))
        end, previous = start + len(value), kind
    gap = _joined(carried, _gap(text[end:]))
    words.append(FormattedWord(END, "", *gap))
    return words


def pass_on(words: list[FormattedWord], at: int) -> None:
    """Give the comments and line breaks before the word at `at` to the next word; the caller drops this word."""
    word, following = words[at], words[at + 1]
    gap = _joined(_Gap(word.comments, word.breaks), _Gap(following.comments, following.breaks))
    words[at + 1] = following._replace(comments=gap.comments, breaks=gap.breaks)


def _gap(between: str) -> _Gap:
    if "#" not in between:
        return _Gap((), between.count("\n"))
    comments, breaks = [], 0
    for line in between.split("\n"):
        start = line.find("#")
        if start >= 0:
            comments.append(Comment(line[start:].rstrip(), breaks))
            breaks = 0
        breaks += 1
    return _Gap(tuple(comments), breaks - 1)


def _belongs_before(kind: str, previous: str, gap: _Gap) -> bool:
    """Return whether a word of this kind moves in front of the comments in the gap before it."""
    match kind:
        case "LPAREN":
            return previous in NAMES
        case "NOT":
            return previous not in _BEFORE_CONDITION  # `x not in [...]`
        case "SEMI":
            return all(not comment.breaks for comment in gap.comments)
    return kind in _ALWAYS


def _without_free_lines(gap: _Gap) -> _Gap:
    return _Gap(gap.comments, 1) if gap.comments else _NOTHING


def _joined(first: _Gap, second: _Gap) -> _Gap:
    """Join two gaps; the word between them has moved or is dropped."""
    if first is _NOTHING:
        return second
    comments, breaks = second
    if not comments:
        return _Gap(first.comments, max(first.breaks, breaks))
    own = comments[0].breaks
    if first.comments or own:
        comments = (comments[0]._replace(breaks=max(1, first.breaks, own)), *comments[1:])
    return _Gap(first.comments + comments, breaks)


# ---- spacing ------------------------------------------------------------------------------------------------------
# Which words are joined without a space. This depends only on the kinds of the two words.

_NEVER_BEFORE = {"COMMA", "SEMI", "COLON", "RPAREN", "RBRACKET"}
_NEVER_AFTER = {"LPAREN", "LBRACKET"}


def _is_together(before: str, after: str) -> bool:
    if after in _NEVER_BEFORE or before in _NEVER_AFTER:
        return True
    if after in ("LPAREN", "LBRACE"):
        return before in NAMES  # `call(` and `User{`, but `if (` and `relations = {`
    if before == "LBRACE":
        return after not in NAMES  # `{"ann"` and `{}`, but `{ owner: User`
    return after == "RBRACE" and before not in NAMES


TOGETHER = frozenset((before, after) for before in tokens for after in tokens if _is_together(before, after))


# ---- Build the document of a statement that takes several lines: where its lines may break ------------------------
#     rule(
#       arguments
#     ) if
#       condition and
#       not (
#         condition or
#         condition
#       );
#
# Lines break after `if` and after each `and` and `or`. A conjunction inside a disjunction, and the inside of
# brackets, are groups of their own: they break only if they do not fit on a line themselves.
#
# Most functions take the words and the index of their first word, and also return the index after their last word.

MOST_BESIDE = 2  # conditions of a rule that may share a line with its head
_SPACE, _NONE, _ALWAYS_BREAK = " ", "", LineBreak(always=True)
_ENDS = frozenset({"AND", "OR", "IF", "IFF", "SEMI", "COMMA", "RPAREN", "RBRACKET", "RBRACE", END})
_CLOSING = {"LPAREN": "RPAREN", "LBRACKET": "RBRACKET", "LBRACE": "RBRACE"}


def statement(words: Sequence[FormattedWord], at: int, is_rule: bool) -> Group:
    """Return the document of a statement, including its `;`.

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
        parts += [nest(_remarks(words[at])), _ALWAYS_BREAK]
    parts.append(";")
    return group(parts, forced=is_rule and operators >= MOST_BESIDE)


def heading(words: Sequence[FormattedWord]) -> Group:
    """Return the document of a block's head, including its `{`; `words` end before the `{`.

    The third word is `extends`, if the head has it.
    """
    parts: list[LayoutDocument] = [words[0].text]
    supertypes: list[LayoutDocument] = []
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


def _lead(word: FormattedWord, flat: str, first: bool = False) -> list[LayoutDocument]:
    """Return what precedes a word: a possible line break, or comments. With `first`, without a leading blank line."""
    if not word.comments:
        return [LineBreak(flat, blank=word.breaks > 1 and not first)]
    return [*_remarks(word, first), LineBreak(always=True, blank=word.breaks > 1)]


def _remarks(word: FormattedWord, first: bool = False) -> list[LayoutDocument]:
    parts: list[LayoutDocument] = []
    for comment in word.comments:
        if comment.breaks:
            parts += [LineBreak(always=True, blank=comment.breaks > 1 and not first), comment.text]
            first = False
        else:
            parts.append(EndComment(comment.text))
    return parts


# ---- formulas -----------------------------------------------------------------------------------------------------


def _formula(words: Sequence[FormattedWord], at: int) -> tuple[list[LayoutDocument], int, int]:
    """Return conditions with `and` and `or` between them, the number of these operators, and the index after them.

    The conditions are not a group of their own: they break with the group around them.
    """
    alternatives: list[LayoutDocument] = []  # before the last `or`
    conjunction, at = _run(words, at)
    rest: list[LayoutDocument] = []  # the current conjunction after its first condition
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


def _branch(first: list[LayoutDocument], rest: list[LayoutDocument]) -> list[LayoutDocument]:
    """Return a conjunction inside a disjunction as a group, indented from its second line on."""
    return [group([*first, nest(rest)])] if rest else first


def _run(words: Sequence[FormattedWord], at: int) -> tuple[list[LayoutDocument], int]:
    """Return the words before the next operator, separator or closing bracket; brackets among them become groups."""
    parts: list[LayoutDocument] = []
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


def _bracket(words: Sequence[FormattedWord], at: int, previous: str) -> tuple[LayoutDocument, int]:
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
    inside: list[LayoutDocument] = []
    if opening.kind == "LPAREN" and previous not in NAMES:
        condition, _, end = _formula(words, at + 1)
        inside += [*_lead(words[at + 1], _NONE, first=True), *condition]
    else:
        end = _elements(words, at + 1, closing, flat, inside)
        if opening.kind != "LPAREN" and not is_key and inside:
            inside.append(IfBroken(","))
    last = words[end]
    inside += _remarks(last, first=not inside)
    line = _ALWAYS_BREAK if last.comments else LineBreak(flat)
    return group([opening.text, nest(inside), line, last.text]), end + 1


def _elements(words: Sequence[FormattedWord], at: int, closing: str, flat: str, inside: list[LayoutDocument]) -> int:
    """Append the elements and their commas to `inside`, and return the index of the closing bracket."""
    while words[at].kind != closing:
        inside += _lead(words[at], _SPACE if inside else flat, first=not inside)
        element, at = _run(words, at)
        inside += element
        if words[at].kind == "COMMA":
            inside.append(",")
            at += 1
    return at


# ---- Words -> the text of a policy, statement by statement --------------------------------------------------------
# Each statement starts a line, and the contents of a block are indented by two columns. Of blank lines between
# statements, one is kept. A top-level block with contents is always separated from its neighbors by a blank line.

_OPERATORS = ("AND", "OR")


def laid_out(words: list[FormattedWord]) -> str:
    lines: list[str] = []
    _statements(words, 0, 0, lines)
    return "".join(f"{line}\n" for line in lines)


def _statements(words: list[FormattedWord], at: int, level: int, lines: list[str]) -> int:
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


# ---- comments and blank lines before a statement ------------------------------------------------------------------


def _space(word: FormattedWord, level: int, lines: list[str], first: bool) -> None:
    """Write the comments before a statement, and its blank line if it has one. No block starts with a blank line."""
    first = _comments(word, level, lines, first)
    if word.breaks > 1 and not first:
        lines.append("")


def _comments(word: FormattedWord, level: int, lines: list[str], first: bool) -> bool:
    """Write the comments before a word, and return whether the block still has no lines of its own."""
    for comment in word.comments:
        if comment.breaks == 0 and lines:
            lines[-1] += f"  {comment.text}"
            continue
        if comment.breaks > 1 and not first:
            lines.append("")
        lines.append(" " * level + comment.text)
        first = False
    return first


def _apart(word: FormattedWord) -> FormattedWord:
    """Return the word with a blank line before it or one of its comments.

    If it has none yet, the blank line goes before the first comment that starts a line, or else before the word.
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


def _is_block(words: list[FormattedWord], at: int, level: int) -> bool:
    kind, following = words[at].kind, words[at + 1].kind
    if level:
        return kind == "SETUP" and following == "LBRACE"
    if kind == "GLOBAL":
        return following == "LBRACE"
    return kind in ("ACTOR", "RESOURCE", "TEST") and following != "LPAREN"


def _brace(words: list[FormattedWord], at: int) -> int:
    while words[at].kind != "LBRACE":
        at += 1
    return at


def _is_empty(words: list[FormattedWord], brace: int) -> bool:
    return words[brace + 1].kind == "RBRACE" and not words[brace + 1].comments


def _block(words: list[FormattedWord], at: int, brace: int, level: int, lines: list[str]) -> int:
    lines.append(" " * level + written(heading(words[at:brace]), level))
    if _is_empty(words, brace):
        lines[-1] += "}"
        return brace + 2
    at = _statements(words, brace + 1, level + STEP, lines)
    lines.append(" " * level + "}")
    return at + 1


# ---- statements that end with `;` -----------------------------------------------------------------------------------


def _simple(words: list[FormattedWord], start: int, level: int, lines: list[str]) -> int:
    """Write a statement and return the index after it.

    It takes one line, unless it is too long, has comments inside, or is a rule with many conditions.
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


# ---- The formatter: one layout for every policy, with the same words and comments ---------------------------------
# `words_of` splits a text into words, each with the comments before it. `laid_out` writes the words, statement by
# statement. For a statement that does not fit on one line, `statement` builds a document with its possible line breaks.
#
# All words, parentheses included, are kept, in their order, so the policy keeps its meaning. The only exceptions: a
# comma before a closing `]` or `}` is written if and only if the line breaks there, a comma before the `{` of a block
# is dropped, and so is the `;` of an empty statement.


def formatted(text: str, filename: str = "") -> str:
    """Format a policy; raise `PolicyRejected` if the text does not parse."""
    _, tokens = parse_with_tokens(Source(text, filename))
    return formatted_tokens(text, tokens)


def formatted_tokens(text: str, tokens: list[Token]) -> str:
    """Format a text that has already been parsed; `tokens` are its tokens."""
    with without_collections():
        return laid_out(words_of(text, tokens))


def says_the_same(before: str, after: str) -> bool:
    """Return whether two texts differ only in layout: they have equal trees, and the same comments in the same order.

    Return False if either text does not parse.
    """
    try:
        return _tree_and_comments(before) == _tree_and_comments(after)
    except PolicyRejected:
        return False


def _tree_and_comments(text: str) -> tuple[ast.Policy, list[str]]:
    policy, tokens = parse_with_tokens(Source(text))
    return policy, [comment.text for word in words_of(text, tokens) for comment in word.comments]
