"""The interface to PLY: parser tables are built once, in memory, and each parse uses a clone of the parser."""

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
MAX_TOKENS = 400_000  # twice what a text of that size has by nature; bounds the time of a hostile one
# Characters that cannot be stored, or that make a text look like another one: lone surrogates, NUL, the controls that
# change the direction of writing, and carriage returns that end a line (and a comment) only in some editors.
_UNFIT = re.compile("[\ud800-\udfff\0\u202a-\u202e\u2066-\u2069]|\r(?!\n)")


class _Stop(Exception):
    """Leaves PLY's loop at the first syntax error; there is no recovery."""


def parse(source: Source) -> ast.Policy:
    """Parse the text and return its syntax tree; raise `PolicyRejected` with all syntax errors found."""
    return parse_with_tokens(source)[0]


def parse_with_tokens(source: Source) -> tuple[ast.Policy, list[Token]]:
    """The syntax tree, and the tokens that it was made of: between them stand whitespace and comments."""
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
    """The tokens of a text, whether or not it is a policy. PolicyRejected carries what is wrong with them."""
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
    # After a lexical mistake on the way, what does not fit is most likely its consequence.
    if not notes.problems:
        notes.problems.append(problem_at(parser, notes, _cloned_lexer(notes), token))
    raise _Stop


def _finish_lexing(tokens: Lexer) -> None:
    """Reads the rest, for the lexical mistakes in it."""
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
    # PLY counts conflicts only when it debugs; without a file to debug into, that costs nothing.
    log = yacc.NullLogger()
    parser: Parser = yacc.yacc(module=module, write_tables=False, debug=True, debuglog=log, errorlog=_Strict())
    return parser


class _Strict:
    """PLY's log: a conflict, an unused token or any other doubt about the grammar is an error."""

    def warning(self, message: str, *args: object) -> None:
        # The error function is set per parse, on the clone.
        assert "p_error" in message, message % args

    error = critical = warning

    def info(self, message: str, *args: object) -> None:
        pass

    debug = info
