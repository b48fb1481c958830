"""Text -> words and tokens. Everything that reads Polar uses this lexer: the parser, completion, highlighting.

Only a few words are reserved (`RESERVED`). The words in `CONTEXTUAL` are keywords in certain positions and names
everywhere else, so `actor`, `resource` or `test` can be variables, types and predicates.

`tokens_of` is for the parser. It also recognizes common mistakes, such as `==` or `1.5`. It records the error, and then
yields the nearest valid token or skips the text, so that the parser does not report the same mistake again. `words_in`
is for text that is being edited, or only displayed: it records nothing, and skips what is not a word.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from policy.language.nodes import Notes, Token, shown
from policy.language.source import Span

RESERVED = {
    "if": "IF", "iff": "IFF", "and": "AND", "or": "OR", "not": "NOT", "in": "IN", "on": "ON", "matches": "MATCHES",
    "matches!": "MATCHES_EXACTLY", "true": "TRUE", "false": "FALSE",
}  # fmt: skip
CONTEXTUAL = {
    "actor": "ACTOR", "resource": "RESOURCE", "global": "GLOBAL", "extends": "EXTENDS", "declare": "DECLARE",
    "type": "TYPE", "test": "TEST", "fixture": "FIXTURE", "setup": "SETUP", "assert": "ASSERT",
    "assert_not": "ASSERT_NOT", "assert_never": "ASSERT_NEVER",
}  # fmt: skip  # the production `name` turns these into names where they are not keywords
LEGACY = {  # word -> hint: the word is rejected with this hint, and then parsed as a name
    "cut": "rules are unordered; express exceptions with `not`",
    "debug": "policies have no output; check results in a `test` block",
    "print": "policies have no output; check results in a `test` block",
    "forall": 'express "for all" as `not (... and not ...)`',
    "of": "choose another name",
}
COMPARISONS = ("!=", "<=", ">=", "<", ">")  # besides `=`
_SIGNS = {
    "(": "LPAREN", ")": "RPAREN", "[": "LBRACKET", "]": "RBRACKET", "{": "LBRACE", "}": "RBRACE", ",": "COMMA",
    ";": "SEMI", ":": "COLON", "?=": "INLINE_QUERY", "=": "EQ", **dict.fromkeys(COMPARISONS, "COMPARE"),
}  # fmt: skip
_KINDS = RESERVED | CONTEXTUAL | _SIGNS | {"@current_unix_time": "NOW"}
_KINDS_FOR_PARSER = _KINDS | dict.fromkeys(LEGACY, "LEGACY") | {"new": "NEW"}

tokens = ["NAME", "AT_NAME", "STRING", "INTEGER", *dict.fromkeys(_KINDS.values())]

# ---- patterns of words, and of mistakes with their error messages --------------------------------------------------

_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"  # typographic quotes, as word processors insert them
_INVISIBLE = "\u00ad\u200b\u2060\ufeff"  # soft hyphen, zero-width space, word joiner, byte order mark
_NOT_IN_NAMES = rf"\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\s{_QUOTES}{_INVISIBLE}"
WORD = rf"[^{_NOT_IN_NAMES}\d][^{_NOT_IN_NAMES}]*+"
NAME = rf"{WORD}(?:::{WORD})*+\??"
_UNCLOSED = r'"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+'

_WORDS = {
    "NAME": rf"matches!(?!=)|{NAME}",
    "AT_NAME": f"@{NAME}",
    "STRING": f'{_UNCLOSED}"',
    "UNCLOSED": _UNCLOSED,
    "COMMENT": r"\#[^\n]*",
}
_LONGER = "|".join(re.escape(sign) for sign in _SIGNS if len(sign) > 1)
_SINGLE = re.escape("".join(sign for sign in _SIGNS if len(sign) == 1))
_NUMBERS_AND_SIGNS = {"INTEGER": "[+-]?[0-9]+", "SIGN": f"{_LONGER}|[{_SINGLE}]"}
_MISTAKES = {
    "FLOAT": r"[+-]?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![0-9a-zA-Z_])",
    "NUMBERED": rf"[0-9]+{WORD}",
    "QUOTED": rf"'[^'\n]*'?|`[^`\n]*`?|[{_QUOTES}][^{_QUOTES}\"\n]*[{_QUOTES}\"]?",
    "ATTRIBUTE": rf"\.+\s*(?:{NAME})?",
    "FOREIGN_COMMENT": r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?",
    "OPERATOR": r"===?|:=|=<|=>|<>|!==|!(?!=)|&&?|\|\|?|:-(?![0-9])|<-(?![0-9])|->",
    "ARITHMETIC": rf'(?:[*/%]|[+-](?![0-9]))\s*(?:{NAME}|[0-9]+|{_UNCLOSED}")?',
}
# Kind -> message, hint, and the token to continue with: its kind and value.
_MESSAGES: dict[str, tuple[str, str, tuple[str, str] | None]] = {
    "UNCLOSED": (
        "unterminated string",
        r"close it on the same line; write a line break as `\n`",
        ("STRING", '"unclosed"'),
    ),
    "FLOAT": ("floats are not supported", "use an Integer", ("INTEGER", "0")),
    "NUMBERED": ("{} is not a valid name", "names cannot start with a digit", ("NAME", "_numbered")),
    "QUOTED": ("strings need double quotes", 'write `"..."`', ("STRING", '"quoted"')),
    "ATTRIBUTE": (
        "attribute access is not supported: {}",
        "store a fact such as `is_owner(User, Repo)`, and call `is_owner(user, repo)`",
        None,
    ),
    "FOREIGN_COMMENT": ("{} does not start a comment", "comments start with `#` and end with the line", None),
    "ARITHMETIC": ("arithmetic is not supported: {}", "store the result as a fact, and compare it", None),
    "NEW": ("`new` is not supported", 'write an entity with its id: `User{"alice"}`', None),
    "STRAY": ("unexpected character {}", "remove it, or put it inside a string", None),
}
_SHOWN = {"FOREIGN_COMMENT": 2, "ARITHMETIC": 1}  # characters of the text to show; of others, the whole text
_OPERATORS = {  # operator -> hint, and the token to continue with
    "==": ("write `=`", ("EQ", "=")),
    "===": ("write `=`", ("EQ", "=")),
    ":=": ("write `=`", ("EQ", "=")),
    "=<": ("write `<=`", ("COMPARE", "<=")),
    "=>": ("write `>=`, or `if` before the conditions of a rule", ("COMPARE", ">=")),
    "<>": ("write `!=`", ("COMPARE", "!=")),
    "!==": ("write `!=`", ("COMPARE", "!=")),
    "&": ("write `and`", ("AND", "and")),
    "&&": ("write `and`", ("AND", "and")),
    "|": ("write `or`; a relation can have only one type", ("OR", "or")),
    "||": ("write `or`", ("OR", "or")),
    "!": ("write `not`", ("NOT", "not")),
    ":-": ("write `if`", ("IF", "if")),
    "<-": ("write `if`", ("IF", "if")),
    "->": ("write `:` before a type, or `on` to follow a relation", ("COLON", ":")),
}


def _any_of(patterns: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items()))


# A regex takes the first match, so mistakes precede the numbers and signs that they begin with. The byte order mark
# counts as space: some editors put one at the start of a file.
_TOKEN = _any_of(_WORDS | {"SPACE": r"[\s\ufeff]+"} | _MISTAKES | _NUMBERS_AND_SIGNS | {"STRAY": r"[\s\S]"})
_WORD = _any_of(_WORDS | _NUMBERS_AND_SIGNS)
# What follows the word `new` in `new User(...)` or `new User{...}`. Elsewhere, `new` is a name.
_CREATION = re.compile(rf"\s+(?!(?:{'|'.join(map(re.escape, RESERVED))})\b){NAME}\s*[({{]")

# ---- words of any text ---------------------------------------------------------------------------------------------


class Word(NamedTuple):
    """A word, a sign or a comment. `text` is always as written, whereas tokens replace the text of some mistakes."""

    kind: str  # that of the token: NAME, STRING, LPAREN, …; or COMMENT
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


def words_in(text: str) -> Iterator[Word]:
    """Yield all words, signs and comments of a text, which need not parse. A string need not be closed."""
    for found in _WORD.finditer(text):
        word, kind = found[0], found.lastgroup or ""
        start, end = found.span()
        yield Word("STRING" if kind == "UNCLOSED" else _KINDS.get(word, kind), word, start, end)


# ---- tokens for the parser -----------------------------------------------------------------------------------------


def tokens_of(notes: Notes) -> Iterator[Token]:
    """Yield the tokens of the text. Mistakes are recorded as they are reached."""
    text = notes.source.text
    for found in _TOKEN.finditer(text):
        group = found.lastgroup or ""
        if group in _SKIPPED:
            continue
        written = found[0]
        kind = _KINDS_FOR_PARSER.get(written, group)
        start, end = found.span()
        if kind not in _REFUSED:
            yield Token(kind, written, start, end)
        elif token := _instead(notes, Token(kind, written, start, end)):
            yield token


_SKIPPED = frozenset({"SPACE", "COMMENT"})
_REFUSED = frozenset({*_MESSAGES, "LEGACY", "OPERATOR"})


def _instead(notes: Notes, token: Token) -> Token | None:
    """Record the mistake, and return the token to continue with; None to skip the text."""
    kind, written = token.type, token.value
    instead: tuple[str, str] | None = ("NAME", written)
    match kind:
        case "NEW" if not _CREATION.match(notes.source.text, token.end):
            token.type = "NAME"
            return token
        case "LEGACY":
            message, hint = "{} is reserved and not supported", LEGACY[written]
        case "OPERATOR":
            message, (hint, instead) = "{} is not an operator", _OPERATORS[written]
        case _:
            message, hint, instead = _MESSAGES[kind]
    notes.refuse(Span(token.lexpos, token.end), message.format(shown(written[: _SHOWN.get(kind)])), hint)
    return Token(*instead, token.lexpos, token.end) if instead else None
