"""Describe a syntax error in words: where it is, what stands there, and what was expected instead."""

import re

from policy.language import ast
from policy.language.lexer import CONTEXTUAL, RESERVED
from policy.language.notes import Notes, shown
from policy.language.ply_types import Lexer, Parser, Symbol, Token
from policy.language.rejection import Problem
from policy.language.source import Span

_PUNCTUATION = {
    "LPAREN": "`(`", "RPAREN": "`)`", "LBRACKET": "`[`", "RBRACKET": "`]`", "LBRACE": "`{`", "RBRACE": "`}`",
    "COMMA": "`,`", "SEMI": "`;`", "COLON": "`:`", "EQ": "`=`",
}  # fmt: skip
_WORDS = {kind: f"`{word}`" for word, kind in (RESERVED | CONTEXTUAL).items()}
_OPENING = {"LPAREN": "(", "LBRACKET": "[", "LBRACE": "{"}
_BETWEEN_ITEMS = "INLINE_QUERY"  # the parser expects this token between items and nowhere else
_NAMES = {"NAME", *CONTEXTUAL.values()}
# Groups of tokens that a person thinks of as one thing: the tokens that identify the group, its name, and its other
# tokens. If all identifying tokens are expected, the name stands for the whole group. Earlier groups take tokens first.
# Example: {"STRING", "RBRACKET"} -> "a string or `]`".
_THINGS: tuple[tuple[set[str], str, set[str]], ...] = (
    ({_BETWEEN_ITEMS}, "a block, a rule, a declaration or a test", _NAMES | {"SEMI", "AT_NAME"}),
    ({"NOT", "LPAREN", "NAME", "STRING"}, "a condition", _NAMES | {"INTEGER", "TRUE", "FALSE", "NOW", "AT_NAME"}),
    ({"NAME", "STRING", "NOW"}, "a variable or a value", _NAMES | {"INTEGER", "TRUE", "FALSE", "AT_NAME", "LBRACKET"}),
    ({"COMPARE", "IN", "MATCHES"}, "a comparison", {"EQ", "MATCHES_EXACTLY", "NOT", "ON", "LPAREN", "LBRACE"}),
    ({"STRING", "INTEGER", "TRUE"}, "a string, a number, `true` or `false`", _NAMES | {"FALSE"}),
    ({"NAME"}, "a name", _NAMES),
    ({"STRING"}, "a string", set()),
)
_AFTER_NAME = re.compile(r"\s*[:,)]")


def problem_at(parser: Parser, notes: Notes, tokens: Lexer, token: Token | None) -> Problem:
    """Return the problem with a token that the parser cannot accept (None at the end of the text).

    `tokens` is a lexer at the start of the text. It reads the text again to find the end of the previous token.
    """
    expected = _acceptable(parser)
    before = _end_before(tokens, token.lexpos if token else len(notes.source.text))
    if _lacks_semicolon(notes, expected, token, before):
        found = f"before {shown(token.value)}" if token else "at the end of the policy"
        return Problem(f"expected `;` {found}", Span(before, before), "did you forget a semicolon?")
    if token is None:
        return _at_end(parser, Span(before, before), expected)
    return _in_text(parser, notes, token, expected)


def _acceptable(parser: Parser) -> set[str]:
    """Return the kinds of token that the parser could accept next."""
    return {kind for kind in parser.action[parser.statestack[-1]] if _accepts(parser, kind)}


def _accepts(parser: Parser, kind: str) -> bool:
    stack = list(parser.statestack)
    while True:
        action = parser.action[stack[-1]].get(kind)
        if action is None or action >= 0:
            return action is not None
        production = parser.productions[-action]
        del stack[len(stack) - production.len :]
        stack.append(parser.goto[stack[-1]][production.name])


def _end_before(tokens: Lexer, offset: int) -> int:
    """Return the end of the last token that starts before the offset; 0 if there is none."""
    end = 0
    while (token := tokens.token()) and token.lexpos < offset:
        end = tokens.lexpos
    return end


def _lacks_semicolon(notes: Notes, expected: set[str], token: Token | None, before: int) -> bool:
    if "SEMI" not in expected or _BETWEEN_ITEMS in expected:
        return False
    if token is None or token.type == "RBRACE":
        return True
    if expected == {"SEMI"} and token.type not in ("RPAREN", "RBRACKET"):
        return True
    return "\n" in notes.source.text[before : token.lexpos]


def _at_end(parser: Parser, span: Span, expected: set[str]) -> Problem:
    for symbol in reversed(parser.symstack):
        if symbol.type in _OPENING:
            place = Span(symbol.lexpos, symbol.lexpos + 1)
            return Problem(f"this `{_OPENING[symbol.type]}` is never closed", place, "the policy ends before")
    return Problem("unexpected end of the policy", span, f"expected {_in_words(expected)}")


def _in_text(parser: Parser, notes: Notes, token: Token, expected: set[str]) -> Problem:
    span = Span(token.lexpos, token.lexpos + len(token.value))
    if token.value in RESERVED and "NAME" in expected and _looks_like_name(notes, span, expected):
        return Problem(f"{shown(token.value)} is a reserved word", span, "choose another name")
    return Problem(f"unexpected {shown(token.value)}", span, _hint(parser.symstack[-1], token, expected))


def _looks_like_name(notes: Notes, span: Span, expected: set[str]) -> bool:
    return _BETWEEN_ITEMS in expected or bool(_AFTER_NAME.match(notes.source.text, span.end))


def _hint(previous: Symbol, token: Token, expected: set[str]) -> str:
    match token.type:
        case "RPAREN" | "RBRACE" if previous.type == "COMMA":
            return "remove the comma before it"
        case "EQ" | "COMPARE" if "AND" in expected:
            return "comparisons do not chain; join two with `and`"
        case "LPAREN" if "COMMA" in expected and "RPAREN" in expected:
            return "calls do not nest; write it as a condition of its own"
        case "INTEGER" if token.value[0] in "+-":
            return "arithmetic does not exist; store the result as a fact, and compare that"
        case "EQ" if expected == {"LPAREN"}:
            return "`roles`, `permissions` and `relations` stand inside a block"
        case "STRING" if _BETWEEN_ITEMS in expected:
            return "shorthand stands inside a block"
        case "IFF":
            return "`iff` belongs to assertions; write `if`"
        case _ if {"EQ", "IF"} <= expected and _written(previous) in ("actor", "resource", "global"):
            return "blocks do not nest; perhaps a `}` is missing before it"
        case "NAME" if "ASSERT" in expected and "SETUP" in expected:
            return "facts stand in `setup { ... }`; then come `assert` and `assert_not`"
    return f"expected {_in_words(expected)}"


def _written(symbol: Symbol) -> str | None:
    """Return the word that a symbol on the parser's stack stands for: the text of a name, or the value as it is."""
    return symbol.value.text if isinstance(symbol.value, ast.Name) else symbol.value


def _in_words(expected: set[str]) -> str:
    rest, words = set(expected), []
    for telling, word, company in _THINGS:
        if telling <= rest:
            rest -= telling | company
            words.append(word)
    words += [(_PUNCTUATION | _WORDS)[kind] for kind in sorted(rest) if kind in _PUNCTUATION or kind in _WORDS]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
