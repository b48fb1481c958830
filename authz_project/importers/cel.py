"""Conditions in the Common Expression Language (CEL), as far as comparisons go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from authz_project.importers.files import Grammar, NotParsed, SyntaxTree
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

_GRAMMAR = Grammar(
    r"""
    ?start: either | either "?" start ":" start -> choice
    ?either: both (_OR both)*
    ?both: relation (_AND relation)*
    ?relation: sum | relation COMPARED sum -> compared | relation _IN sum -> one_of
    ?sum: product (SIGN product)*
    ?product: unary (TIMES unary)*
    ?unary: member | "!" unary -> negation | "-" unary -> negative
    ?member: primary
        | member "." NAME -> part
        | member "[" start "]" -> part
        | member "." NAME "(" _values? ")" -> method
    ?primary: "(" start ")"
        | NAME -> name
        | NAME "(" _values? ")" -> call
        | "[" _values? "]" -> list
        | "{" (_pair ("," _pair)* ","?)? "}" -> map
        | INT -> int
        | FLOAT -> float
        | STRING -> string
        | BYTES -> bytes
    _values: start ("," start)* ","?
    _pair: start ":" start

    _OR: "||"
    _AND: "&&"
    _IN: "in"
    COMPARED: /[=!<>]=|[<>]/
    SIGN: /[-+]/
    TIMES: /[*\/%]/
    FLOAT.2: /\d+\.\d+([eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+([eE][-+]?\d+)?/
    INT: /0x[0-9a-fA-F]+[uU]?|\d+[uU]?/
    BYTES.3: /([bB][rR]?|[rR][bB])("(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*')/
    STRING.2: /[rR]?("{3}[\s\S]*?"{3}|'{3}[\s\S]*?'{3}|"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*')/
    NAME: /[A-Za-z_][A-Za-z0-9_]*/
    %ignore /\s+|\/\/[^\n]*/
    """,
    {
        "NAME": "a value",
        **dict.fromkeys(("_OR", "_AND", "_IN", "COMPARED", "SIGN", "TIMES"), "an operator"),
        **dict.fromkeys(("INT", "FLOAT", "STRING", "BYTES", "BANG", "MINUS", "LPAR", "LSQB", "LBRACE", "DOT"), ""),
    },
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES |= {each: each for each in "\\?\"'`"}


def _unquoted(node: SyntaxTree) -> str:
    text = str(node.children[0])
    raw = text[0] in "rR"
    body = text[1:] if raw else text
    marks = 3 if body[:3] in ('"""', "'''") else 1
    inside = body[marks:-marks]
    if raw:
        return inside
    try:
        return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|.)", _escape, inside, flags=re.DOTALL)
    except ValueError as reason:
        raise NotParsed(str(reason), node.meta.start_pos) from None


def _escape(found: re.Match[str]) -> str:
    text = found[1]
    if text[0] in "uUxX" and len(text) > 1 and int(text[1:], 16) <= 0x10FFFF:
        return chr(int(text[1:], 16))
    if text not in _ESCAPES:
        raise ValueError(f"the escape `\\{text}` is none, or not known here")
    return _ESCAPES[text]


# ---- What an expression tests, of values that Polar has -----------------------------------------------------------
# `Unsupported` stands for what has no equal here: functions, lists made by others, fractions.

_ORDERED = {"<", "<=", ">", ">="}
_MADE = ("timestamp", "duration", "ipaddress")  # functions that make a value of a text
_ADDED = ("int", "timestamp", "duration")  # what values that are given may add up to
_CONSTANTS = (*_ADDED, "uint", "double")  # what constants may add up to


class _Typed(NamedTuple):
    operand: ModelOperand
    type: str


class _NoEqual(Exception):
    """Why a part has no equal in Polar."""


def test_of(text: str, parameters: Iterable[ModelParameter], place_of: Callable[[int], Place]) -> ModelTest:
    """Return the test that an expression is; `place_of` says where an offset of its text stands. NotParsed if wrong."""
    return _CelReader(text, {each.name: each.type for each in parameters}, place_of).test(_GRAMMAR.parse(text))


class _CelReader:
    def __init__(self, text: str, types: Mapping[str, str], place_of: Callable[[int], Place]):
        self.text, self.types, self.place_of = text, types, place_of

    def test(self, node: SyntaxTree) -> ModelTest:
        match node.data:
            case "both":
                return reduce(lambda left, right: AllOf((left, right)), map(self.test, node.children))
            case "either":
                return reduce(lambda left, right: AnyOf((left, right)), map(self.test, node.children))
            case "negation":
                return Negation(self.test(node.children[0]))
            case "choice":
                chosen, one, other = map(self.test, node.children)
                return AnyOf((AllOf((chosen, one)), AllOf((Negation(chosen), other))))
        try:
            return self._atom(node)
        except (_NoEqual, NoValue) as reason:
            return Unsupported(self.text[node.meta.start_pos : node.meta.end_pos], str(reason), self._place(node))

    def _atom(self, node: SyntaxTree) -> ModelTest:
        match node.data, node.children:
            case "name", ["true" | "false" as value]:
                return Always(value == "true")
            case "name", [name]:
                if self._typed(node).type != "bool":
                    raise _NoEqual(f"`{name}` is neither true nor false")
                return IsTrue(str(name), self._place(node))
            case "one_of", [item, values]:
                return self._one_of(node, self._typed(item), values)
            case "compared", [left, operator, right]:
                return self._comparison(node, self._typed(left), str(operator), self._typed(right))
            case "method", [address, "in_cidr", *args]:
                return self._in_network(node, address, args)
            case ("call", [name, *_]) | ("method", [_, name, *_]):
                raise _NoEqual(f"the function `{name}` has no equal here")
        raise _NoEqual("this has no equal here")

    def _comparison(self, node: SyntaxTree, left: _Typed, operator: str, right: _Typed) -> ModelTest:
        kinds = {polar_type(left.type), polar_type(right.type)}
        if len(kinds) > 1:
            raise _NoEqual(f"values of type {left.type} and {right.type} are not compared here")
        if operator in _ORDERED and kinds != {INTEGER}:
            raise _NoEqual(f"values of type {left.type} have no order here")
        if "ipaddress" in (left.type, right.type) and left.type != right.type:
            raise _NoEqual("an address is compared with addresses alone")
        return ModelComparison(operator, left.operand, right.operand, self._place(node))

    def _one_of(self, node: SyntaxTree, item: _Typed, values: SyntaxTree) -> ModelTest:
        if values.data == "list":
            constants = tuple(self._constant(each, item.type) for each in values.children)
            return OneOf(item.operand, constants, self._place(node))
        name = str(values.children[0]) if values.data == "name" else ""
        listed = self.types.get(name, "")
        if polar_type(listed) not in (BOOLEAN, INTEGER, STRING) or not listed.startswith("list<"):
            raise _NoEqual("`in` takes a list that is written there, or a parameter that is one")
        if polar_type(listed) != polar_type(item.type):
            raise _NoEqual(f"a value of type {item.type} is not in {listed}")
        return OneOf(item.operand, GivenValue(name, self._place(values)), self._place(node))

    def _in_network(self, node: SyntaxTree, on: SyntaxTree, args: list[SyntaxTree]) -> ModelTest:
        if len(args) != 1:
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

    def _constant(self, node: SyntaxTree, type_name: str) -> Constant:
        typed = self._typed(node)
        if not isinstance(typed.operand, Constant) or polar_type(typed.type) != polar_type(type_name):
            raise _NoEqual(f"the list holds other things than constants of type {type_name}")
        return typed.operand

    # ---- operands ----------------------------------------------------------------------------------------------------

    def _typed(self, node: SyntaxTree) -> _Typed:
        place = self._place(node)
        match node.data, node.children:
            case "name", ["true" | "false" as value]:
                return _Typed(Constant(value == "true", place), "bool")
            case "name", [name]:
                return _Typed(GivenValue(str(name), place), self._type_of(str(name)))
            case "string", _:
                text = _unquoted(node)
                value_of("string", text)
                return _Typed(Constant(text, place), "string")
            case "int", [number]:
                return _Typed(Constant(_whole(number), place), "uint" if number[-1] in "uU" else "int")
            case "float", [number]:
                return _Typed(Constant(_without_fraction(number), place), "double")
            case "negative", [inner]:
                operand, type_name = self._typed(inner)
                if isinstance(operand, Constant) and type_name in ("int", "double"):
                    return _Typed(Constant(-int(operand.value), place), type_name)
                raise _NoEqual("a sign before anything but a signed number has no equal here")
            case "sum", [first, *rest]:
                signs, others = rest[::2], map(self._typed, rest[1::2])
                return reduce(lambda left, step: _sum(left, *step, place), zip(signs, others), self._typed(first))
            case "call", [name, made] if name in _MADE:
                if made.data != "string":
                    raise _NoEqual(f"`{name}` of something else than a text has no equal here")
                return _Typed(Constant(int(value_of(str(name), _unquoted(made)).id), place), str(name))
            case ("call", [name, *_]) | ("method", [_, name, *_]):
                raise _NoEqual(f"the function `{name}` has no equal here")
            case "product", [_, operator, *_]:
                raise _NoEqual(f"`{operator}` has no equal here")
            case "part", _:
                raise _NoEqual("parts of a value have no equal here")
        raise _NoEqual("this has no equal here")

    def _type_of(self, name: str) -> str:
        if name not in self.types:
            raise _NoEqual(f"`{name}` is no parameter of the condition")
        type_name = self.types[name]
        if polar_type(type_name) is None or type_name.startswith("list<"):
            raise _NoEqual(f"a value of type {type_name} has no equal here")
        return type_name

    def _place(self, node: SyntaxTree) -> Place:
        return self.place_of(node.meta.start_pos)


def _sum(left: _Typed, sign: str, right: _Typed, place: Place) -> _Typed:
    minus = sign == "-"
    type_name = _type_of_sum(left.type, right.type, minus)
    if isinstance(left.operand, Constant) and isinstance(right.operand, Constant) and type_name is not None:
        first, second = int(left.operand.value), int(right.operand.value)
        return _Typed(_constant_sum(type_name, first - second if minus else first + second, place), type_name)
    if type_name is None or type_name not in _ADDED:
        raise _NoEqual(f"`{sign}` of values of type {left.type} and {right.type} has no equal here")
    return _Typed(Sum(left.operand, right.operand, minus, place, type_name), type_name)


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


def _whole(text: str) -> int:
    digits = text.rstrip("uU")
    number = int(digits, 16) if digits.startswith("0x") else whole_number(digits, 2**63 - 1)
    if number is None or number >= 2**63:
        raise _NoEqual("a number that does not fit into 64 bits has no equal here")
    return number


def _without_fraction(text: str) -> int:
    number = float(text)
    if not number.is_integer() or abs(number) >= 2**53:
        raise _NoEqual("a fraction has no equal here")
    return int(number)
