"""The interface to PLY: its tables are built once, in memory, and each parse uses its own copy of lexer and parser."""

import copy
import functools
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import NoReturn

from ply import yacc

from policy.language import ast, conditions, grammar, lexer
from policy.language.collector import without_collections
from policy.language.notes import Notes
from policy.language.ply_types import Lexer, Parser, Production, Token
from policy.language.source import Source, Span
from policy.language.unexpected import problem_at

MAX_BYTES = 1_000_000
MAX_TOKENS = 400_000  # twice what an ordinary text of MAX_BYTES has; bounds the parse time of a hostile text
# Characters that cannot be stored (lone surrogates and NUL), or that make a text look like another one: bidirectional
# controls, and carriage returns without a line feed, which end a line (and a comment) only in some editors.
_UNFIT = re.compile("[\ud800-\udfff\0\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


class _Stop(Exception):
    """Raised to leave PLY's loop at the first syntax error; there is no error recovery."""


def parse(source: Source) -> ast.Policy:
    """Parse the text and return its syntax tree; raise `PolicyRejected` with all syntax errors found."""
    return parse_with_tokens(source)[0]


def parse_with_tokens(source: Source) -> tuple[ast.Policy, list[Token]]:
    """Parse as `parse` does, and return the tokens too; between them are whitespace and comments."""
    notes = Notes(source)
    _refuse_unfit(notes)
    kept: list[Token] = []
    with without_collections():
        policy = _parsed(notes, kept)
    if policy is None or notes.problems:
        notes.reject()
    return policy, kept


def _parsed(notes: Notes, kept: list[Token]) -> ast.Policy | None:
    tokens = _cloned_lexer(notes)
    parser = copy.copy(_parser())  # PLY keeps its stacks on the parser; the tables are shared
    parser.errorfunc = functools.partial(_stop, parser, notes)
    try:
        return parser.parse(lexer=tokens, tokenfunc=functools.partial(next, _counted(tokens, notes, kept), None))
    except _Stop:
        _finish_lexing(tokens)
        return None


def tokens_in(source: Source) -> list[Token]:
    """Return the tokens of a text, which need not parse.

    Raise `PolicyRejected` for lexical mistakes, for forbidden characters, and for a text that is too long.
    """
    notes = Notes(source)
    _refuse_unfit(notes)
    kept: list[Token] = []
    with without_collections():
        deque(_counted(_cloned_lexer(notes), notes, kept), maxlen=0)
    if notes.problems:
        notes.reject()
    return kept


def _counted(tokens: Lexer, notes: Notes, kept: list[Token]) -> Iterator[Token]:
    for token in itertools.islice(iter(tokens.token, None), MAX_TOKENS):
        kept.append(token)
        yield token
    if extra := tokens.token():
        message = f"the policy has more than {MAX_TOKENS} words and signs"
        notes.refuse(Span(extra.lexpos, tokens.lexpos), message, "leave out what repeats; keep data in facts")
        notes.reject()


def _productions() -> dict[str, Callable[[Production], None]]:
    written = {**vars(grammar), **vars(conditions)}
    return {name: production for name, production in written.items() if name.startswith("p_")}


def _refuse_unfit(notes: Notes) -> None:
    text = notes.source.text
    found = _UNFIT.search(text)
    if found:
        hint = "remove it; it cannot be stored, or makes the text look like another"
        notes.refuse(Span(*found.span()), f"the policy holds the character U+{ord(found[0]):04X}", hint)
    elif len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        notes.refuse(Span(0, 0), f"the policy is longer than {MAX_BYTES} bytes", "split the service, or share rules")
    if notes.problems:
        notes.reject()


def _stop(parser: Parser, notes: Notes, token: Token | None) -> NoReturn:
    # After an earlier mistake, a syntax error is most likely only its consequence, so it is not reported.
    if not notes.problems:
        notes.problems.append(problem_at(parser, notes, _cloned_lexer(notes), token))
    raise _Stop


def _finish_lexing(tokens: Lexer) -> None:
    """Read the rest of the text, so that the lexical mistakes in it are noted too."""
    while tokens.token():
        pass


def _cloned_lexer(notes: Notes) -> Lexer:
    tokens = _lexer().clone()
    tokens.notes = notes
    tokens.input(notes.source.text)
    return tokens


@functools.cache
def _lexer() -> Lexer:
    return lexer.build()


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
        # PLY warns that there is no `p_error`. None is needed: each parse sets `errorfunc` on its copy of the parser.
        assert "p_error" in message, message % args

    error = critical = warning

    def info(self, message: str, *args: object) -> None:
        pass

    debug = info
