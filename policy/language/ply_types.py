"""Types for the part of PLY that this package uses, as PLY has no type hints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from policy.language import ast
from policy.language.notes import Notes


class Token(Protocol):
    """A token as the lexer makes it. `lexer` is set only on tokens that a `t_` function of the lexer handles."""

    type: str
    value: str
    lexpos: int
    lexer: Lexer


class Lexer(Protocol):
    """The clone of the lexer that one parse uses. It carries the `notes` of that parse."""

    notes: Notes
    lexdata: str
    lexpos: int

    def clone(self) -> Lexer: ...

    def input(self, s: str) -> None: ...

    def token(self) -> Token | None: ...

    def skip(self, n: int) -> None: ...


class Symbol(Protocol):
    """An entry of the parser's stack: a token, or the result of a production, whose `value` can have any type."""

    type: str
    value: Any
    lexpos: int


class Production(Protocol):
    """The argument of each `p_` function: `p[n]` is the value of its n-th symbol, a node or the text of a token."""

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
    """A parser within a parse: its stacks and its tables.

    `action[state][token]` is a number: 0 accepts, a positive one shifts, and -n reduces by `productions[n]`.
    """

    statestack: Sequence[int]
    symstack: Sequence[Symbol]
    action: Mapping[int, Mapping[str, int]]
    goto: Mapping[int, Mapping[str, int]]
    productions: Sequence[Rewrite]
    errorfunc: Callable[[Token | None], NoReturn]

    def parse(self, *, lexer: Lexer, tokenfunc: Callable[[], Token | None]) -> ast.Policy: ...
