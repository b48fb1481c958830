"""Text -> tokens -> syntax tree: the lexer, PLY's parser, and descriptions of syntax errors."""

import copy
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from ply import yacc

from policy.language import ast
from policy.language.grammar import PRODUCTIONS, Action, Production, StackSymbol
from policy.language.source import Notes, PolicyRejected, Problem, Source, Span, shown, without_collections

# ---- Text -> words and tokens: what reads Polar, from the parser to highlighting, uses this lexer -------------------
# Only a few words are reserved (`RESERVED`). The words in `CONTEXTUAL` are keywords in certain positions and names
# everywhere else, so `actor`, `resource` or `test` can be variables, types and predicates.
#
# `tokens_of` is for the parser. It also recognizes common mistakes, such as `==` or `1.5`. It records the error, and
# then yields the nearest valid token or skips the text, so that the parser does not report the same mistake again.
# `words_in` is for text that is being edited, or only displayed: it records nothing, and skips what is not a word.

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
OPENING = ("LPAREN", "LBRACKET", "LBRACE")
CLOSING = ("RPAREN", "RBRACKET", "RBRACE")
NAMES = {"NAME", *CONTEXTUAL.values()}  # kinds that can be names, and are names before `(`
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


class Token:
    """A token as PLY's parser expects it. `value` is as written, unless the token replaces a mistake."""

    __slots__ = ("end", "lexer", "lexpos", "type", "value")  # PLY sets `lexer` on an unexpected token

    def __init__(self, kind: str, value: str, start: int, end: int):
        self.type = kind
        self.value = value
        self.lexpos = start
        self.end = end


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


# ---- unexpected ---------------------------------------------------------------------------------------------------
# Describe a syntax error: its position, the unexpected token, and what was expected instead.

# PLY's parser during a parse: its stacks and its tables, of which PLY has no types. `action[state][token]` is a number:
# 0 accepts, a positive one shifts, and -n reduces by `productions[n]`.
Parser = Any

_PUNCTUATION = {
    "LPAREN": "`(`", "RPAREN": "`)`", "LBRACKET": "`[`", "RBRACKET": "`]`", "LBRACE": "`{`", "RBRACE": "`}`",
    "COMMA": "`,`", "SEMI": "`;`", "COLON": "`:`", "EQ": "`=`",
}  # fmt: skip
_KEYWORDS_SHOWN = {kind: f"`{word}`" for word, kind in (RESERVED | CONTEXTUAL).items()}
_PAIRS = {"LPAREN": "()", "LBRACKET": "[]", "LBRACE": "{}"}
_BETWEEN_ITEMS = "INLINE_QUERY"  # the parser expects this token only between items
# Groups of tokens that a person regards as one thing: the tokens that identify the group, its name, and its other
# tokens. If all identifying tokens are expected, the name stands for the whole group. Earlier groups take tokens first.
# Example: {"STRING", "RBRACKET"} -> "a string or `]`".
_THINGS: tuple[tuple[set[str], str, set[str]], ...] = (
    ({_BETWEEN_ITEMS}, "a block, a rule, a declaration or a test", NAMES | {"SEMI", "AT_NAME"}),
    ({"NOT", "LPAREN", "NAME", "STRING"}, "a condition", NAMES | {"INTEGER", "TRUE", "FALSE", "NOW", "AT_NAME"}),
    ({"NAME", "STRING", "NOW"}, "a variable or a value", NAMES | {"INTEGER", "TRUE", "FALSE", "AT_NAME", "LBRACKET"}),
    ({"COMPARE", "IN", "MATCHES"}, "a comparison", {"EQ", "MATCHES_EXACTLY", "NOT", "ON", "LPAREN", "LBRACE"}),
    ({"STRING", "INTEGER", "TRUE"}, "a string, a number, `true` or `false`", NAMES | {"FALSE"}),
    ({"NAME"}, "a name", NAMES),
    ({"STRING"}, "a string", set()),
)
_AFTER_NAME = re.compile(r"\s*[:,)]")


def problem_at(parser: Parser, notes: Notes, kept: Sequence[Token], token: Token | None) -> Problem:
    """Return the problem with a token that the parser cannot accept (None at the end of the text).

    `kept` has the tokens up to and including that one.
    """
    expected = {kind for kind in parser.action[parser.statestack[-1]] if _accepts(parser, kind)}
    earlier = kept[-2:-1] if token else kept[-1:]
    before = earlier[0].end if earlier else 0
    if _lacks_semicolon(notes, expected, token, before):
        found = f"before {shown(token.value)}" if token else "at the end of the policy"
        return Problem(f"expected `;` {found}", Span(before, before), "did you forget a semicolon?")
    if token is None:
        return _at_end(parser, Span(before, before), expected)
    return _in_text(parser, notes, token, expected)


def _accepts(parser: Parser, kind: str) -> bool:
    stack = list(parser.statestack)
    while True:
        action = parser.action[stack[-1]].get(kind)
        if action is None or action >= 0:
            return action is not None
        production = parser.productions[-action]
        del stack[len(stack) - production.len :]
        stack.append(parser.goto[stack[-1]][production.name])


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
        if pair := _PAIRS.get(symbol.type):
            place = Span(symbol.lexpos, symbol.lexpos + 1)
            return Problem(f"this `{pair[0]}` is never closed", place, f"add the matching `{pair[1]}`")
    return Problem("unexpected end of the policy", span, f"expected {_in_words(expected)}")


def _in_text(parser: Parser, notes: Notes, token: Token, expected: set[str]) -> Problem:
    span = Span(token.lexpos, token.lexpos + len(token.value))
    if (
        token.value in RESERVED
        and "NAME" in expected
        and (_BETWEEN_ITEMS in expected or _AFTER_NAME.match(notes.source.text, span.end))
    ):
        return Problem(f"{shown(token.value)} is a reserved word", span, "choose another name")
    return Problem(f"unexpected {shown(token.value)}", span, _hint(parser.symstack[-1], token, expected))


def _hint(previous: StackSymbol, token: Token, expected: set[str]) -> str:
    match token.type:
        case "RPAREN" | "RBRACE" if previous.type == "COMMA":
            return "remove the comma before it"
        case "EQ" | "COMPARE" if "AND" in expected:
            return "comparisons cannot be chained; join them with `and`"
        case "LPAREN" if "COMMA" in expected and "RPAREN" in expected:
            return "calls cannot be nested; write a separate condition"
        case "INTEGER" if token.value[0] in "+-":
            return "arithmetic is not supported; store the result as a fact, and compare it"
        case "NAME" | "STRING" if expected == {"LPAREN"}:
            return "expected `(`; a block begins with `actor`, `resource`, `global` or `test`"
        case "EQ" if expected == {"LPAREN"}:
            return "`roles`, `permissions` and `relations` belong inside a block"
        case "STRING" if _BETWEEN_ITEMS in expected:
            return "shorthand rules belong inside a block"
        case "IFF":
            return "`iff` is for assertions; write `if`"
        case _ if {"EQ", "IF"} <= expected and _written(previous) in ("actor", "resource", "global"):
            return "blocks cannot be nested; is a `}` missing before it?"
        case "NAME" if "ASSERT" in expected and "SETUP" in expected:
            return "put facts in `setup { ... }`, before `assert` and `assert_not`"
    return f"expected {_in_words(expected)}"


def _written(symbol: StackSymbol) -> str | None:
    """Return the word that a symbol on the parser's stack stands for: the text of a name, or the value itself."""
    return symbol.value.text if isinstance(symbol.value, ast.Name) else symbol.value


def _in_words(expected: set[str]) -> str:
    rest, words = set(expected), []
    for telling, word, company in _THINGS:
        if telling <= rest:
            rest -= telling | company
            words.append(word)
    words += [
        (_PUNCTUATION | _KEYWORDS_SHOWN)[kind]
        for kind in sorted(rest)
        if kind in _PUNCTUATION or kind in _KEYWORDS_SHOWN
    ]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


# ---- interface to PLY ---------------------------------------------------------------------------------------------
# PLY's tables are built once, in memory, and each parse uses its own copy of the parser.

MAX_BYTES = 1_000_000
MAX_TOKENS = 400_000  # twice as many as an ordinary text of MAX_BYTES has; bounds the parse time of a hostile text
# Characters that cannot be stored (lone surrogates and NUL), or that make a text look like another one: bidirectional
# controls, and carriage returns without a line feed, which end a line (and a comment) only in some editors.
_UNFIT = re.compile("[\ud800-\udfff\0\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


class _Stop(Exception):
    """Raised to leave PLY's loop at the first syntax error; there is no error recovery."""


def parse(source: Source) -> ast.Policy:
    """Parse the text and return its syntax tree; raise `PolicyRejected` with all syntax errors found."""
    return parse_with_tokens(source)[0]


def parse_with_tokens(source: Source) -> tuple[ast.Policy, list[Token]]:
    """Parse a text, and return its syntax tree and its tokens; between them are only whitespace and comments."""
    notes = Notes(source)
    _refuse_unfit(notes)
    kept: list[Token] = []
    with without_collections():
        policy = _parsed(notes, kept)
    if policy is None or notes.problems:
        notes.reject()
    return policy, kept


def _parsed(notes: Notes, kept: list[Token]) -> ast.Policy | None:
    tokens = _counted(notes, kept)
    parser = copy.copy(_parser())  # PLY keeps its stacks on the parser; the tables are shared
    parser.errorfunc = partial(_stop, parser, notes, kept)
    try:
        policy: ast.Policy = parser.parse(lexer=SimpleNamespace(notes=notes), tokenfunc=partial(next, tokens, None))
    except _Stop:
        deque(tokens, maxlen=0)  # records the lexical errors in the rest of the text
        return None
    return policy


def tokens_in(source: Source) -> list[Token]:
    """Return the tokens of a text, which need not parse.

    Raise `PolicyRejected` for lexical errors, for forbidden characters, and for a text that is too long.
    """
    notes = Notes(source)
    _refuse_unfit(notes)
    kept: list[Token] = []
    with without_collections():
        deque(_counted(notes, kept), maxlen=0)
    if notes.problems:
        notes.reject()
    return kept


def _counted(notes: Notes, kept: list[Token]) -> Iterator[Token]:
    tokens = tokens_of(notes)
    for token in itertools.islice(tokens, MAX_TOKENS):
        kept.append(token)
        yield token
    if extra := next(tokens, None):
        message = f"the policy has more than {MAX_TOKENS:,} tokens"
        notes.refuse(Span(extra.lexpos, extra.end), message, "store data as facts")
        notes.reject()


def _productions() -> dict[str, Callable[[Production], None]]:
    """Return a function for each action, in the form that PLY takes: with the productions as its docstring."""
    return {f"p_{number}": _function(*each) for number, each in enumerate(PRODUCTIONS)}


def _function(action: Action, *productions: str) -> Callable[[Production], None]:
    def reduce(p: Production) -> None:
        p.slice[0].value = action(p)

    reduce.__doc__ = "\n".join(productions)
    return reduce


def _refuse_unfit(notes: Notes) -> None:
    text = notes.source.text
    found = _UNFIT.search(text)
    if found:
        hint = "remove it; it cannot be stored, or can disguise the text"
        notes.refuse(Span(*found.span()), f"the policy contains the character U+{ord(found[0]):04X}", hint)
    elif len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        notes.refuse(Span(0, 0), f"the policy is larger than {MAX_BYTES:,} bytes", "store data as facts")
    if notes.problems:
        notes.reject()


def _stop(parser: Parser, notes: Notes, kept: Sequence[Token], token: Token | None) -> NoReturn:
    # After an earlier error, a syntax error is most likely its consequence, so it is not reported.
    if not notes.problems:
        notes.problems.append(problem_at(parser, notes, kept, token))
    raise _Stop


@cache
def _parser() -> Parser:
    module = SimpleNamespace(**_productions(), tokens=tokens, start="policy", __file__=__file__)
    # PLY reports conflicts only with `debug=True`; the NullLogger keeps it from writing a debug file.
    log = yacc.NullLogger()
    parser: Parser = yacc.yacc(module=module, write_tables=False, debug=True, debuglog=log, errorlog=_Strict())
    return parser


class _Strict:
    """An error log for PLY that raises AssertionError for a conflict, an unused token or another warning."""

    def warning(self, message: str, *args: object) -> None:
        # PLY warns that there is no `p_error`. It is not needed: each parse sets `errorfunc` on its copy of the parser.
        assert "p_error" in message, message % args

    error = critical = warning

    def info(self, message: str, *args: object) -> None:
        pass

    debug = info


# ---- Check the syntax of an edited text by parsing only the changed parts ---------------------------------------
# A policy is a sequence of statements, each of which parses independently of the others. So if every piece of a text
# parses, the whole text parses too, wherever it was cut between two tokens. A caller that keeps the pieces of an
# earlier policy need not parse these again.

_ENDS = frozenset({"SEMI", "RBRACE"})  # these end a statement outside of all brackets


def pieces_of(text: str, tokens: Iterable[Token]) -> frozenset[str]:
    """Return the pieces of a text, which is cut after each statement; `tokens` are the tokens of the text.

    >>> text = "actor User {} allow(u: User, _, _) if is_ok(u);"
    >>> pieces_of(text, tokens_in(Source(text)))
    frozenset({'actor User {}', 'allow(u: User, _, _) if is_ok(u);'})
    """
    pieces: set[str] = set()
    start, depth = -1, 0
    for token in tokens:
        kind = token.type
        if start < 0:
            start = token.lexpos
        if kind in OPENING:
            depth += 1
        elif kind in CLOSING:
            depth -= 1
        if depth == 0 and kind in _ENDS:
            pieces.add(text[start : token.lexpos + 1])
            start = -1
    if start >= 0:
        pieces.add(text[start:])
    return frozenset(pieces)


def are_policies(pieces: Iterable[str]) -> bool:
    """Return whether every piece parses. If not, the whole text may still parse: the cuts may be in wrong places."""
    try:
        for piece in pieces:
            parse(Source(piece))
    except PolicyRejected:
        return False
    return True
