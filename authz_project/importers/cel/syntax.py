"""The tree of an expression."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
    | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    | (?P<int>0x[0-9a-fA-F]+[uU]?|\d+[uU]?)
    | (?P<bytes>(?:[bB][rR]?|[rR][bB])(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<string>[rR]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,(){}\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)
_BINARY = {
    "||": 1, "&&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES |= {each: each for each in "\\?\"'`"}
_MOST_DEEP = 100


class NotAnExpression(ValueError):
    """What is wrong, and at which offset."""

    def __init__(self, message: str, at: int):
        super().__init__(message)
        self.message, self.at = message, at


@dataclass(frozen=True, slots=True)
class Node:
    """`kind` is name, string, bytes, int, float, list, map, call, member, index, an operator, `!`, `-` or `?`.

    Of a call, the first child is what it is called on, or none where that is a plain function; `value` is its name.
    """

    kind: str
    value: str
    children: tuple[Node | None, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parsed(text: str) -> Node:
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str):
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0

    def whole(self) -> Node:
        node = self.choice()
        if self.token.kind != "end":
            self._refuse("an operator")
        return node

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def choice(self) -> Node:
        """Parse `condition ? one : other`."""
        self.depth += 1
        if self.depth > _MOST_DEEP:
            raise NotAnExpression("the expression nests too deep", self.token.start)
        node = self.binary(1)
        if self._skips("?"):
            one = self.choice()
            self._expect(":")
            other = self.choice()
            node = Node("?", "", (node, one, other), node.start, other.end)
        self.depth -= 1
        return node

    def binary(self, least: int) -> Node:
        node = self.unary()
        while (level := _BINARY.get(self.token.text, 0)) >= least and self.token.kind in ("sign", "name"):
            operator = self._take().text
            right = self.binary(level + 1)
            node = Node(operator, "", (node, right), node.start, right.end)
        return node

    def unary(self) -> Node:
        token = self.token
        if token.kind == "sign" and token.text in "!-":
            self.depth += 1
            if self.depth > _MOST_DEEP:
                raise NotAnExpression("the expression nests too deep", token.start)
            self._take()
            inner = self.unary()
            self.depth -= 1
            return Node(token.text, "", (inner,), token.start, inner.end)
        return self.member()

    def member(self) -> Node:
        node = self.primary()
        while True:
            if self._skips("."):
                name = self._take_kind("name", "a name")
                if self._skips("("):
                    node = Node("call", name.text, (node, *self._until(")")), node.start, self._end)
                else:
                    node = Node("member", name.text, (node,), node.start, self._end)
            elif self._skips("["):
                inner = self.choice()
                self._expect("]")
                node = Node("index", "", (node, inner), node.start, self._end)
            else:
                return node

    def primary(self) -> Node:
        token = self.token
        if self._skips("("):
            node = self.choice()
            self._expect(")")
            return node
        if self._skips("["):
            return Node("list", "", self._until("]"), token.start, self._end)
        if self._skips("{"):
            return Node("map", "", self._until("}", pairs=True), token.start, self._end)
        if token.kind == "name":
            self._take()
            if self._skips("("):
                return Node("call", token.text, (None, *self._until(")")), token.start, self._end)
            return Node("name", token.text, (), token.start, self._end)
        if token.kind in ("int", "float", "string", "bytes"):
            self._take()
            value = _unquoted(token) if token.kind == "string" else token.text
            return Node(token.kind, value, (), token.start, self._end)
        return self._refuse("a value")

    def _until(self, close: str, pairs: bool = False) -> tuple[Node, ...]:
        """Parse what stands before the closing sign, with commas between; as pairs, a key and a value in turn."""
        found: list[Node] = []
        while not self._skips(close):
            if found:
                self._expect(",")
                if self._skips(close):
                    break
            found.append(self.choice())
            if pairs:
                self._expect(":")
                found.append(self.choice())
        return tuple(found)

    @property
    def _end(self) -> int:
        last = self.tokens[self.at - 1]
        return last.start + len(last.text)

    def _take(self) -> _Token:
        token = self.token
        self.at += 1
        return token

    def _take_kind(self, kind: str, wanted: str) -> _Token:
        if self.token.kind != kind:
            self._refuse(wanted)
        return self._take()

    def _skips(self, sign: str) -> bool:
        if self.token.kind != "sign" or self.token.text != sign:
            return False
        self.at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skips(sign):
            self._refuse(f"`{sign}`")

    def _refuse(self, wanted: str) -> NoReturn:
        found = f"`{self.token.text}`" if self.token.text else "the end"
        raise NotAnExpression(f"expected {wanted}, found {found}", self.token.start)


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotAnExpression(f"`{text[at]}` means nothing here", at)
        if match.lastgroup != "space":
            found.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    return [*found, _Token("end", "", len(text.rstrip()))]


def _unquoted(token: _Token) -> str:
    text = token.text
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    marks = 3 if body[:3] in ('"""', "'''") else 1
    inside = body[marks:-marks]
    if raw:
        return inside
    try:
        return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|.)", _escape, inside, flags=re.DOTALL)
    except ValueError as reason:
        raise NotAnExpression(str(reason), token.start) from None


def _escape(found: re.Match[str]) -> str:
    text = found[1]
    if text[0] in "uUxX" and len(text) > 1 and int(text[1:], 16) <= 0x10FFFF:
        return chr(int(text[1:], 16))
    if text not in _ESCAPES:
        raise ValueError(f"the escape `\\{text}` is none, or not known here")
    return _ESCAPES[text]
