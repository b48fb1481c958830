"""Types for the part of PLY that this package uses, as PLY has no type hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from policy.language import ast
from policy.language.notes import Notes


class Token(Protocol):
    """A token as the lexer makes it. `lexer` is there only while a rule of the lexer has it."""

    type: str
    value: str
    lexpos: int
    lexer: Lexer


class Lexer(Protocol):
    """One parse's clone of the lexer, which carries its notes."""

    notes: Notes
    lexdata: str
    lexpos: int

    def clone(self) -> Lexer: ...

    def input(self, s: str) -> None: ...

    def token(self) -> Token | None: ...

    def skip(self, n: int) -> None: ...


class Symbol(Protocol):
    """What lies on the parser's stack: a token, or what a production made, which has any type."""

    type: str
    value: Any
    lexpos: int


class Production(Protocol):
    """The argument of each production: `p[n]` is the value of its n-th symbol, a node or the text of a token."""

    lexer: Lexer
    slice: Sequence[Symbol]
    stack: Sequence[Symbol]

    def __getitem__(self, n: int) -> Any: ...

    def __setitem__(self, n: int, v: object) -> None: ...


class Rewrite(Protocol):
    """A production in the parser's tables: the name on its left, and how many symbols are on its right."""

    name: str
    len: int


class Parser(Protocol):
    """The parser where it stands, with its tables: an action that is negative reduces."""

    statestack: Sequence[int]
    symstack: Sequence[Symbol]
    action: Mapping[int, Mapping[str, int]]
    goto: Mapping[int, Mapping[str, int]]
    productions: Sequence[Rewrite]
    errorfunc: Callable[[Token | None], NoReturn]

    def parse(self, *, lexer: Lexer, tokenfunc: Callable[[], Token | None]) -> ast.Policy: ...
