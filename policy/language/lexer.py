"""Text -> tokens.

Only a few words are reserved (`RESERVED`). The words in `CONTEXTUAL` are keywords in certain positions and names
everywhere else, so `actor`, `resource` or `test` can be variables, types and predicates.

The lexer also recognizes common mistakes, such as `==` or `1.5`. It notes the error, and then returns the nearest valid
token or skips the text, so that the parser does not report the same mistake again. Each parse uses its own clone of the
lexer, which carries the `notes` of that parse.
"""

import re
import sys
from collections.abc import Callable
from typing import TypeVar

from ply import lex

from policy.language.nodes import Lexer, Token, shown
from policy.language.source import Span

RESERVED = {
    "if": "IF", "iff": "IFF", "and": "AND", "or": "OR", "not": "NOT", "in": "IN", "on": "ON", "matches": "MATCHES",
    "matches!": "MATCHES_EXACTLY", "true": "TRUE", "false": "FALSE",
}  # fmt: skip
CONTEXTUAL = {
    "actor": "ACTOR", "resource": "RESOURCE", "global": "GLOBAL", "extends": "EXTENDS", "declare": "DECLARE",
    "type": "TYPE", "test": "TEST", "fixture": "FIXTURE", "setup": "SETUP", "assert": "ASSERT",
    "assert_not": "ASSERT_NOT",
}  # fmt: skip  # the production `name` turns each of these into a name where it is no keyword
LEGACY = {  # word -> hint: the word is refused with this hint, and then parsed as a name
    "cut": "rules have no order; state the exception with `not`",
    "debug": "policies print nothing; state what you expect in a `test` block",
    "print": "policies print nothing; state what you expect in a `test` block",
    "forall": 'write "for all" as `not (... and not ...)`',
    "of": "choose another name",
}
_KINDS = RESERVED | CONTEXTUAL | dict.fromkeys(LEGACY, "LEGACY") | {"new": "NEW"}

COMPARISONS = ("!=", "<=", ">=", "<", ">")  # besides `=`; `<=` is before `<`, as a regex takes the first match

tokens = [
    "NAME", "STRING", "INTEGER", "NOW", "AT_NAME", "EQ", "COMPARE", "INLINE_QUERY", "LPAREN", "RPAREN", "LBRACKET",
    "RBRACKET", "LBRACE", "RBRACE", "COMMA", "SEMI", "COLON", *RESERVED.values(), *CONTEXTUAL.values(),
]  # fmt: skip

_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"  # typographic quotes, as word processors make them
_INVISIBLE = "\u00ad\u200b\u2060\ufeff"  # soft hyphen, zero-width space, word joiner, byte order mark
_NOT_IN_NAMES = rf"\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\s{_QUOTES}{_INVISIBLE}"
WORD = rf"[^{_NOT_IN_NAMES}\d][^{_NOT_IN_NAMES}]*+"
NAME = rf"{WORD}(?:::{WORD})*+\??"
_CLOSED = r'"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+"'
# What follows the word `new` in `new User(...)` or `new User{...}`. Elsewhere, `new` is a name.
_CREATION = re.compile(rf"\s+(?!(?:{'|'.join(map(re.escape, RESERVED))})\b){NAME}\s*[({{]")

# All Unicode whitespace, and the byte order mark that some editors put at the start of a file.
t_ignore = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff"
t_ignore_COMMENT = r"\#[^\n]*"
t_STRING = _CLOSED
t_INTEGER = r"[+-]?[0-9]+"
t_EQ = r"="
t_COMPARE = "|".join(map(re.escape, COMPARISONS))
t_INLINE_QUERY = r"\?="
t_LPAREN = r"\("
t_RPAREN = r"\)"
t_LBRACKET = r"\["
t_RBRACKET = r"\]"
t_LBRACE = r"\{"
t_RBRACE = r"\}"
t_COMMA = r","
t_SEMI = r";"
t_COLON = r":"

_Rule = TypeVar("_Rule", bound=Callable[[Token], Token | None])
TOKEN: Callable[[str], Callable[[_Rule], _Rule]] = lex.TOKEN


@TOKEN(rf"matches!(?!=)|{NAME}")
def t_NAME(token: Token) -> Token | None:
    token.type = _KINDS.get(token.value, "NAME")
    if token.type == "LEGACY":
        _legacy_word(token)
    elif token.type == "NEW":
        return _creation(token)
    return token


@TOKEN(rf"@(?:{NAME})")
def t_AT_NAME(token: Token) -> Token:
    if token.value == "@current_unix_time":
        token.type = "NOW"
    return token


# ---- common mistakes, each with its own error message --------------------------------------------------------------


@TOKEN(r"[+-]?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![0-9a-zA-Z_])")
def t_FLOAT(token: Token) -> Token:
    return _instead(token, "INTEGER", "0", "floats are not supported", "use an Integer")


@TOKEN(rf"[0-9]+{WORD}")
def t_NUMBERED(token: Token) -> Token:
    message = f"{shown(token.value)} is not a name"
    return _instead(token, "NAME", "_numbered", message, "a name cannot start with a digit")


@TOKEN(_CLOSED.removesuffix('"') + '(?!")')
def t_UNCLOSED(token: Token) -> Token:
    message = "the string is not closed on its line"
    return _instead(token, "STRING", '"unclosed"', message, r"end it with a quote, and write a line break as `\n`")


@TOKEN(rf"'[^'\n]*'?|`[^`\n]*`?|[{_QUOTES}][^{_QUOTES}\"\n]*[{_QUOTES}\"]?")
def t_QUOTED(token: Token) -> Token:
    return _instead(token, "STRING", '"quoted"', "strings stand in double quotes", 'write `"..."`')


@TOKEN(rf"\.+\s*(?:{NAME})?")
def t_ATTRIBUTE(token: Token) -> None:
    hint = "store a fact such as is_owner(User, Repo), and ask for it with a call"
    _note(token, f"attributes do not exist: {shown(token.value)}", hint)


@TOKEN(r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?")
def t_FOREIGN_COMMENT(token: Token) -> None:
    hint = "a comment starts with `#` and ends with its line"
    _note(token, f"{shown(token.value[:2])} does not start a comment", hint)


_INSTEAD = {
    "==": ("EQ", "=", "write `=`"),
    "===": ("EQ", "=", "write `=`"),
    ":=": ("EQ", "=", "write `=`"),
    "=<": ("COMPARE", "<=", "write `<=`"),
    "=>": ("COMPARE", ">=", "write `>=`, or `if` before the conditions of a rule"),
    "<>": ("COMPARE", "!=", "write `!=`"),
    "!==": ("COMPARE", "!=", "write `!=`"),
    "&": ("AND", "and", "write `and`"),
    "&&": ("AND", "and", "write `and`"),
    "|": ("OR", "or", "write `or`; a relation has one type"),
    "||": ("OR", "or", "write `or`"),
    "!": ("NOT", "not", "write `not`"),
    ":-": ("IF", "if", "write `if`"),
    "<-": ("IF", "if", "write `if`"),
    "->": ("COLON", ":", "Polar has no arrow"),
}


@TOKEN(r"===?|:=|=<|=>|<>|!==|!(?!=)|&&?|\|\|?|:-(?![0-9])|<-(?![0-9])|->")
def t_OPERATOR(token: Token) -> Token:
    kind, value, hint = _INSTEAD[token.value]
    return _instead(token, kind, value, f"{shown(token.value)} is not an operator", hint)


@TOKEN(rf"(?:[*/%]|[+-](?![0-9]))\s*(?:{NAME}|[0-9]+|{_CLOSED})?")
def t_ARITHMETIC(token: Token) -> None:
    _note(token, f"arithmetic does not exist: {shown(token.value[0])}", "store the result as a fact, and compare that")


def t_error(token: Token) -> None:
    char = token.value[0]
    token.lexer.skip(1)
    token.value = char
    _note(token, f"unexpected character {shown(char)}", "choose a name without it, or put it inside a string")


def _legacy_word(token: Token) -> None:
    token.type = "NAME"
    _note(token, f"{shown(token.value)} is reserved, and not supported", LEGACY[token.value])


def _creation(token: Token) -> Token | None:
    token.type = "NAME"
    if not _CREATION.match(token.lexer.lexdata, token.lexpos + len(token.value)):
        return token
    _note(token, "`new` does not exist", 'an entity is written with its id: `User{"alice"}`')
    return None


def _instead(token: Token, kind: str, value: str, message: str, hint: str) -> Token:
    _note(token, message, hint)
    token.type, token.value = kind, value
    return token


def _note(token: Token, message: str, hint: str) -> None:
    token.lexer.notes.refuse(Span(token.lexpos, token.lexpos + len(token.value)), message, hint)


def build() -> Lexer:
    lexer: Lexer = lex.lex(module=sys.modules[__name__], reflags=re.NOFLAG)
    return lexer
