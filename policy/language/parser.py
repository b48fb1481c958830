"""Parse the text of a policy with PLY, and describe syntax errors."""

from __future__ import annotations

import copy
import functools
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import NoReturn

from ply import yacc

from policy.language import ast, grammar, lexer
from policy.language.completion import CLOSING, OPENING
from policy.language.lexer import CONTEXTUAL, RESERVED, tokens_of
from policy.language.nodes import Notes, Parser, Production, StackSymbol, Token, shown
from policy.language.source import PolicyRejected, Problem, Source, Span, without_collections

# ---- unexpected ---------------------------------------------------------------------------------------------------
# Describe a syntax error: its position, the unexpected token, and what was expected instead.

_PUNCTUATION = {
    "LPAREN": "`(`", "RPAREN": "`)`", "LBRACKET": "`[`", "RBRACKET": "`]`", "LBRACE": "`{`", "RBRACE": "`}`",
    "COMMA": "`,`", "SEMI": "`;`", "COLON": "`:`", "EQ": "`=`",
}  # fmt: skip
_WORDS = {kind: f"`{word}`" for word, kind in (RESERVED | CONTEXTUAL).items()}
_PAIRS = {"LPAREN": "()", "LBRACKET": "[]", "LBRACE": "{}"}
_BETWEEN_ITEMS = "INLINE_QUERY"  # the parser expects this token only between items
_NAMES = {"NAME", *CONTEXTUAL.values()}
# Groups of tokens that a person regards as one thing: the tokens that identify the group, its name, and its other
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


def problem_at(parser: Parser, notes: Notes, kept: Sequence[Token], token: Token | None) -> Problem:
    """Return the problem with a token that the parser cannot accept (None at the end of the text).

    `kept` has the tokens up to and including that one.
    """
    expected = _acceptable(parser)
    earlier = kept[-2:-1] if token else kept[-1:]
    before = earlier[0].end if earlier else 0
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
    if token.value in RESERVED and "NAME" in expected and _looks_like_name(notes, span, expected):
        return Problem(f"{shown(token.value)} is a reserved word", span, "choose another name")
    return Problem(f"unexpected {shown(token.value)}", span, _hint(parser.symstack[-1], token, expected))


def _looks_like_name(notes: Notes, span: Span, expected: set[str]) -> bool:
    return _BETWEEN_ITEMS in expected or bool(_AFTER_NAME.match(notes.source.text, span.end))


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
    words += [(_PUNCTUATION | _WORDS)[kind] for kind in sorted(rest) if kind in _PUNCTUATION or kind in _WORDS]
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
    parser.errorfunc = functools.partial(_stop, parser, notes, kept)
    try:
        return parser.parse(lexer=SimpleNamespace(notes=notes), tokenfunc=functools.partial(next, tokens, None))
    except _Stop:
        deque(tokens, maxlen=0)  # records the lexical errors in the rest of the text
        return None


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
    return {name: production for name, production in vars(grammar).items() if name.startswith("p_")}


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


@functools.cache
def _parser() -> Parser:
    module = SimpleNamespace(**_productions(), tokens=lexer.tokens, start="policy", __file__=grammar.__file__)
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


# ---- Check the syntax of an edited text by parsing only the changed parts ----------------------------------------- A
# policy is a sequence of statements, each of which parses independently of the others. So if every piece of a text
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
