"""Conditions in the Common Expression Language (CEL), as far as comparisons go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from authz_project.importers.model import (
    AllOf,
    Always,
    AnyOf,
    Constant,
    GivenValue,
    InNetwork,
    IsTrue,
    ModelComparison,
    ModelOperand,
    ModelParameter,
    ModelTest,
    Negation,
    OneOf,
    Place,
    Sum,
    Unsupported,
)
from authz_project.importers.values import NoValue, is_number_of, network_bounds, polar_type, value_of
from policy.values import BOOLEAN, INTEGER, STRING, whole_number

# ---- The tree of an expression ------------------------------------------------------------------------------------

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
class CelNode:
    """`kind` is name, string, bytes, int, float, list, map, call, member, index, an operator, `!`, `-` or `?`.

    Of a call, the first child is what it is called on, or none where that is a plain function; `value` is its name.
    """

    kind: str
    value: str
    children: tuple[CelNode | None, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parsed(text: str) -> CelNode:
    return _CelParser(text).whole()


class _CelParser:
    def __init__(self, text: str):
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0

    def whole(self) -> CelNode:
        node = self.choice()
        if self.token.kind != "end":
            self._refuse("an operator")
        return node

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def choice(self) -> CelNode:
        """Parse `condition ? one : other`."""
        self.depth += 1
        if self.depth > _MOST_DEEP:
            raise NotAnExpression("the expression nests too deep", self.token.start)
        node = self.binary(1)
        if self._skips("?"):
            one = self.choice()
            self._expect(":")
            other = self.choice()
            node = CelNode("?", "", (node, one, other), node.start, other.end)
        self.depth -= 1
        return node

    def binary(self, least: int) -> CelNode:
        node = self.unary()
        while (level := _BINARY.get(self.token.text, 0)) >= least and self.token.kind in ("sign", "name"):
            operator = self._take().text
            right = self.binary(level + 1)
            node = CelNode(operator, "", (node, right), node.start, right.end)
        return node

    def unary(self) -> CelNode:
        token = self.token
        if token.kind == "sign" and token.text in "!-":
            self.depth += 1
            if self.depth > _MOST_DEEP:
                raise NotAnExpression("the expression nests too deep", token.start)
            self._take()
            inner = self.unary()
            self.depth -= 1
            return CelNode(token.text, "", (inner,), token.start, inner.end)
        return self.member()

    def member(self) -> CelNode:
        node = self.primary()
        while True:
            if self._skips("."):
                name = self._take_kind("name", "a name")
                if self._skips("("):
                    node = CelNode("call", name.text, (node, *self._until(")")), node.start, self._end)
                else:
                    node = CelNode("member", name.text, (node,), node.start, self._end)
            elif self._skips("["):
                inner = self.choice()
                self._expect("]")
                node = CelNode("index", "", (node, inner), node.start, self._end)
            else:
                return node

    def primary(self) -> CelNode:
        token = self.token
        if self._skips("("):
            node = self.choice()
            self._expect(")")
            return node
        if self._skips("["):
            return CelNode("list", "", self._until("]"), token.start, self._end)
        if self._skips("{"):
            return CelNode("map", "", self._until("}", pairs=True), token.start, self._end)
        if token.kind == "name":
            self._take()
            if self._skips("("):
                return CelNode("call", token.text, (None, *self._until(")")), token.start, self._end)
            return CelNode("name", token.text, (), token.start, self._end)
        if token.kind in ("int", "float", "string", "bytes"):
            self._take()
            value = _unquoted(token) if token.kind == "string" else token.text
            return CelNode(token.kind, value, (), token.start, self._end)
        return self._refuse("a value")

    def _until(self, close: str, pairs: bool = False) -> tuple[CelNode, ...]:
        """Parse what stands before the closing sign, with commas between; as pairs, a key and a value in turn."""
        found: list[CelNode] = []
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


# ---- What an expression tests, of values that Polar has -----------------------------------------------------------

_ORDERED = {"<", "<=", ">", ">="}
_MADE = ("timestamp", "duration", "ipaddress")  # functions that make a value of a text
_ADDED = ("int", "timestamp", "duration")  # what values that are given may add up to
_CONSTANTS = (*_ADDED, "uint", "double")  # what constants may add up to


class _Typed(NamedTuple):
    operand: ModelOperand
    type: str


class _NoEqual(Exception):
    """Why a part has no equal in Polar."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def test_of(
    node: CelNode, text: str, parameters: Iterable[ModelParameter], place_of: Callable[[int], Place]
) -> ModelTest:
    """Return the test that an expression is; `place_of` says where an offset of its text stands."""
    return _CelReader(text, {each.name: each.type for each in parameters}, place_of).test(node)


class _CelReader:
    def __init__(self, text: str, types: Mapping[str, str], place_of: Callable[[int], Place]):
        self.text, self.types, self.place_of = text, types, place_of

    def test(self, node: CelNode) -> ModelTest:
        match node.kind:
            case "&&":
                return AllOf(tuple(map(self.test, _two(node))))
            case "||":
                return AnyOf(tuple(map(self.test, _two(node))))
            case "!":
                return Negation(self.test(_two(node)[0]))
            case "?":
                chosen, one, other = map(self.test, _two(node))
                return AnyOf((AllOf((chosen, one)), AllOf((Negation(chosen), other))))
        try:
            return self._atom(node)
        except (_NoEqual, NoValue) as reason:
            why = reason.reason if isinstance(reason, _NoEqual) else str(reason)
            return Unsupported(self.text[node.start : node.end], why, self._place(node))

    def _atom(self, node: CelNode) -> ModelTest:
        match node.kind:
            case "name" if node.value in ("true", "false"):
                return Always(node.value == "true")
            case "name":
                if self._typed(node).type != "bool":
                    raise _NoEqual(f"`{node.value}` is neither true nor false")
                return IsTrue(node.value, self._place(node))
            case "in":
                return self._one_of(node)
            case "==" | "!=" | "<" | "<=" | ">" | ">=":
                return self._comparison(node)
            case "call" if node.value == "in_cidr":
                return self._in_network(node)
            case "call":
                raise _NoEqual(f"the function `{node.value}` has no equal here")
        raise _NoEqual("this has no equal here")

    def _comparison(self, node: CelNode) -> ModelTest:
        sides = _two(node)
        left, right = map(self._typed, sides)
        kinds = {polar_type(left.type), polar_type(right.type)}
        if len(kinds) > 1:
            raise _NoEqual(f"values of type {left.type} and {right.type} are not compared here")
        if node.kind in _ORDERED and kinds != {INTEGER}:
            raise _NoEqual(f"values of type {left.type} have no order here")
        if "ipaddress" in (left.type, right.type) and left.type != right.type:
            raise _NoEqual("an address is compared with addresses alone")
        return ModelComparison(node.kind, left.operand, right.operand, self._place(node))

    def _one_of(self, node: CelNode) -> ModelTest:
        first, second = _two(node)
        item = self._typed(first)
        if second.kind == "list":
            values = tuple(self._constant(each, item.type) for each in _two(second))
            return OneOf(item.operand, values, self._place(node))
        listed = self.types.get(second.value, "") if second.kind == "name" else ""
        if polar_type(listed) not in (BOOLEAN, INTEGER, STRING) or not listed.startswith("list<"):
            raise _NoEqual("`in` takes a list that is written there, or a parameter that is one")
        if polar_type(listed) != polar_type(item.type):
            raise _NoEqual(f"a value of type {item.type} is not in {listed}")
        return OneOf(item.operand, GivenValue(second.value, self._place(second)), self._place(node))

    def _in_network(self, node: CelNode) -> ModelTest:
        on, *args = node.children
        if on is None or len(args) != 1 or args[0] is None:
            raise _NoEqual("`in_cidr` is asked of an address, with one network")
        address, network = self._typed(on), self._typed(args[0])
        if address.type != "ipaddress" or network.type != "string":
            raise _NoEqual("`in_cidr` is asked of an address, with a text")
        if isinstance(address.operand, Sum) or isinstance(network.operand, Sum):
            raise _NoEqual("addresses are not added")
        if isinstance(network.operand, Constant):
            try:
                network_bounds(str(network.operand.value))
            except ValueError as reason:
                raise _NoEqual(str(reason)) from None
        return InNetwork(address.operand, network.operand, self._place(node))

    def _constant(self, node: CelNode, type_name: str) -> Constant:
        typed = self._typed(node)
        if not isinstance(typed.operand, Constant) or polar_type(typed.type) != polar_type(type_name):
            raise _NoEqual(f"the list holds other things than constants of type {type_name}")
        return typed.operand

    # ---- operands ----------------------------------------------------------------------------------------------------

    def _typed(self, node: CelNode) -> _Typed:
        place = self._place(node)
        match node.kind:
            case "name" if node.value in ("true", "false"):
                return _Typed(Constant(node.value == "true", place), "bool")
            case "name":
                return _Typed(GivenValue(node.value, place), self._type_of(node))
            case "string":
                value_of("string", node.value)
                return _Typed(Constant(node.value, place), "string")
            case "int":
                return _Typed(Constant(_whole(node), place), "uint" if node.value[-1] in "uU" else "int")
            case "float":
                return _Typed(Constant(_whole(node), place), "double")
            case "-":
                if len(node.children) == 2:
                    return self._sum(node, place)
                inner = self._typed(_two(node)[0])
                if isinstance(inner.operand, Constant) and inner.type in ("int", "double"):
                    return _Typed(Constant(-int(inner.operand.value), place), inner.type)
                raise _NoEqual("a sign before anything but a signed number has no equal here")
            case "+":
                return self._sum(node, place)
            case "call" if node.value in _MADE and node.children[0] is None and len(node.children) == 2:
                return self._made(node, place)
            case "call":
                raise _NoEqual(f"the function `{node.value}` has no equal here")
            case "*" | "/" | "%":
                raise _NoEqual(f"`{node.kind}` has no equal here")
            case "member" | "index":
                raise _NoEqual("parts of a value have no equal here")
        raise _NoEqual("this has no equal here")

    def _type_of(self, node: CelNode) -> str:
        if node.value not in self.types:
            raise _NoEqual(f"`{node.value}` is no parameter of the condition")
        type_name = self.types[node.value]
        if polar_type(type_name) is None or type_name.startswith("list<"):
            raise _NoEqual(f"a value of type {type_name} has no equal here")
        return type_name

    def _made(self, node: CelNode, place: Place) -> _Typed:
        made = node.children[1]
        if made is None or made.kind != "string":
            raise _NoEqual(f"`{node.value}` of something else than a text has no equal here")
        number = int(value_of(node.value, made.value).id)
        return _Typed(Constant(number, place), node.value)

    def _sum(self, node: CelNode, place: Place) -> _Typed:
        left, right = map(self._typed, _two(node))
        minus = node.kind == "-"
        type_name = _type_of_sum(left.type, right.type, minus)
        if isinstance(left.operand, Constant) and isinstance(right.operand, Constant) and type_name is not None:
            first, second = int(left.operand.value), int(right.operand.value)
            return _Typed(_constant_sum(type_name, first - second if minus else first + second, place), type_name)
        if type_name is None or type_name not in _ADDED:
            raise _NoEqual(f"`{node.kind}` of values of type {left.type} and {right.type} has no equal here")
        return _Typed(Sum(left.operand, right.operand, minus, place, type_name), type_name)

    def _place(self, node: CelNode) -> Place:
        return self.place_of(node.start)


def _two(node: CelNode) -> tuple[CelNode, ...]:
    return tuple(each for each in node.children if each is not None)


def _type_of_sum(left: str, right: str, minus: bool) -> str | None:
    """Return the type of `left + right` or `left - right`; None where the language has no such sum."""
    if left == right:
        of_times = "duration" if minus else None
        return of_times if left == "timestamp" else left if left in _CONSTANTS else None
    if {left, right} == {"timestamp", "duration"} and not (minus and left == "duration"):
        return "timestamp"
    return None


def _constant_sum(type_name: str, number: int, place: Place) -> Constant:
    """Return the constant; _NoEqual if it overflows its type: that is an error in CEL, and meets no test."""
    if not is_number_of(type_name, number):
        raise _NoEqual(f"{number} is out of what values of type {type_name} may be")
    return Constant(number, place)


def _whole(node: CelNode) -> int:
    if node.kind == "float":
        number = float(node.value)
        return int(number) if number.is_integer() and abs(number) < 2**53 else _fraction()
    number_text = node.value.rstrip("uU")
    number_ = int(number_text, 16) if number_text.startswith("0x") else whole_number(number_text, 2**63 - 1)
    if number_ is None or number_ >= 2**63:
        raise _NoEqual("a number that does not fit into 64 bits has no equal here")
    return number_


def _fraction() -> NoReturn:
    raise _NoEqual("a fraction has no equal here")


# ---- Conditions in the Common Expression Language, as far as comparisons go ---------------------------------------
# `syntax` makes a tree of the text; `meaning` makes a test of the tree, in which `Unsupported` stands for what has no
# equal here: functions, lists made by others, fractions.

__all__ = ["NotAnExpression", "parsed", "test_of"]
