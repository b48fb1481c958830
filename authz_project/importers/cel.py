"""Parse conditions in the Common Expression Language (CEL), limited to comparisons, and their parameters' values."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import reduce
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from authz_project.importers import ir
from authz_project.importers.files import Grammar, NotParsed, SyntaxTree
from facts.wire import MAX_ID_BYTES
from policy.values import BOOLEAN, INTEGER, STRING, Value, whole_number

# ---- IP addresses -------------------------------------------------------------------------------------------------
# IPv4 addresses as integers; those of IPv6 do not fit into 64 bits.


def address_number(text: str) -> int:
    """Convert an IPv4 address to an integer. Raise ValueError if it is not one."""
    return int(IPv4Address(text))


def network_bounds(text: str) -> tuple[int, int]:
    """Return the first and last address of a network such as `10.0.0.0/8`. Raise ValueError if it is not one."""
    if not re.fullmatch(r"[0-9.]+/([0-9]|[1-9][0-9])", text):  # /08 is none
        raise ValueError(f"{text!r} is not a network such as 10.0.0.0/8")
    network = IPv4Network(text, strict=False)
    return int(network.network_address), int(network.broadcast_address)


# ---- values -------------------------------------------------------------------------------------------------------
# Convert parameter values from JSON to Polar: times and durations become seconds, addresses integers. What the original
# does not accept is refused, too: there it meets no condition.

_TYPES = {
    "int": INTEGER, "uint": INTEGER, "double": INTEGER, "timestamp": INTEGER, "duration": INTEGER,
    "ipaddress": INTEGER, "string": STRING, "bool": BOOLEAN,
}  # fmt: skip
_EMPTY = {True: Value(STRING, "empty"), False: Value(BOOLEAN, "false")}  # by whether it is a list of bools
_LONGEST_TEXT = 200  # of a duration's text
_LONGEST_DURATION = 9_223_372_036  # seconds; more would overflow 64 bits of nanoseconds
_INTEGER, _DECIMAL = re.compile(r"[+-]?[0-9]+"), re.compile(r"[-+.0-9eE]+")
_MOST_EXACT = 2**53  # of a number in JSON, which the original reads as a float
_MOST_DIGITS = 20
_FIRST_TIME, _LAST_TIME = -62_135_596_800, 253_402_300_799  # from year 1 to 9999
_BOUNDS = {
    "uint": (0, 2**63 - 1), "double": (-_MOST_EXACT, _MOST_EXACT), "duration": (-_LONGEST_DURATION, _LONGEST_DURATION),
    "timestamp": (_FIRST_TIME, _LAST_TIME),
}  # fmt: skip
_LIST = re.compile(r"list<(\w+)>")
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_LENGTHS = {"h": "3600", "m": "60", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "ns": "1e-9"}
_UNITS = {unit: Decimal(length) for unit, length in _LENGTHS.items()}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


ID_LIMITS = f"must have 1 to {MAX_ID_BYTES} bytes of UTF-8, without NUL, and must not be `*`"


def is_id(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= MAX_ID_BYTES and "\0" not in text and text != "*"
    except UnicodeEncodeError:  # a lone surrogate
        return False


class NoEquivalent(ValueError):
    """A value, tuple, check or part of a condition has no equivalent in Polar; the message says why.

    `is_wrong` if it is invalid in the original model, too.
    """

    def __init__(self, message: str, is_wrong: bool = False):
        super().__init__(message)
        self.is_wrong = is_wrong


def polar_type(type_name: str) -> str | None:
    """Return the Polar type of a parameter's values; None if there is none."""
    listed = _LIST.fullmatch(type_name)
    return _TYPES.get(listed[1] if listed else type_name)


def values_of(type_name: str, raw: object) -> list[Value]:
    """Return the Polar values for a JSON value: one for each element of a list.

    An empty list becomes one value of a different type than its elements' type, to distinguish it from a missing list.
    """
    listed = _LIST.fullmatch(type_name)
    if not listed:
        return [value_of(type_name, raw)]
    if not isinstance(raw, list):
        raise NoEquivalent(f"{raw!r} is not a list")
    return [value_of(listed[1], each) for each in raw] or [empty_list(_TYPES.get(listed[1], STRING))]


def element_type(type_name: str) -> str | None:
    """Return the Polar type of a list's elements; None if the type is no list, or they have no equivalent."""
    listed = _LIST.fullmatch(type_name)
    return _TYPES.get(listed[1]) if listed else None


def empty_list(of: str) -> Value:
    """Return the value that represents an empty list of this Polar type."""
    return _EMPTY[of == BOOLEAN]


def value_of(type_name: str, raw: object) -> Value:
    kind = _TYPES.get(type_name)
    if kind is None:
        raise NoEquivalent(f"values of type {type_name} are not supported")
    if kind == BOOLEAN:
        if isinstance(raw, bool):
            return Value(BOOLEAN, str(raw).lower())
        raise NoEquivalent(f"{raw!r} is not true or false")
    if kind == STRING:
        if not isinstance(raw, str):
            raise NoEquivalent(f"{raw!r} is not a string")
        if not is_id(raw):
            raise NoEquivalent(f"a string {ID_LIMITS}")
        return Value(STRING, raw)
    number = _number(type_name, raw)
    if not is_number_of(type_name, number):
        raise NoEquivalent(f"{raw!r} is outside the supported range of type {type_name}")
    return Value(INTEGER, str(number))


def is_number_of(type_name: str, number: int) -> bool:
    """Return whether the number is in the range of the type that Polar supports."""
    low, high = _BOUNDS.get(type_name, (-(2**63), 2**63 - 1))
    return low <= number <= high


def _number(type_name: str, raw: object) -> int:
    try:
        if type_name in _WRITTEN:
            if not isinstance(raw, str):
                raise NoEquivalent(f"{raw!r} is not a string")
            return _WRITTEN[type_name](raw)
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise NoEquivalent(f"{raw!r} is not a number")
        if isinstance(raw, str) and not (_DECIMAL if type_name == "double" else _INTEGER).fullmatch(raw):
            raise NoEquivalent(f"{raw!r} is not a {'' if type_name == 'double' else 'whole '}number")
        if not isinstance(raw, str) and abs(raw) > _MOST_EXACT:
            raise NoEquivalent(f"{raw!r} is not exact in JSON; write it as a string")
        number = Decimal(str(raw))
        if not number.is_finite() or number.adjusted() >= _MOST_DIGITS:
            raise NoEquivalent(f"{raw!r} is too large")
        if number != number.to_integral_value():
            raise NoEquivalent(f"{raw!r} is not a whole number")
        return int(number)
    except (InvalidOperation, OverflowError):
        raise NoEquivalent(f"{raw!r} is not a number") from None
    except ValueError as reason:
        raise NoEquivalent(str(reason)) from None


def seconds_of_time(text: str) -> int:
    """Convert an RFC 3339 time to Unix time. Raise NoEquivalent if it is invalid, or has a fraction of a second."""
    found = _TIME.fullmatch(text)
    if not found:
        raise NoEquivalent(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")
    day, clock, fraction, zone = found.groups()
    if fraction and fraction.strip(".0"):
        raise NoEquivalent(f"{text!r} has a fraction of a second")
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone == 'Z' else zone}")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    if not _FIRST_TIME <= seconds <= _LAST_TIME:
        raise NoEquivalent(f"{text!r} is not within the years 1 to 9999")
    return seconds


def seconds_of_duration(text: str) -> int:
    """Convert a duration such as `1h30m` to seconds. Raise NoEquivalent if it is invalid, or has a fraction."""
    body, sign = (text[1:], -1) if text[:1] == "-" else (text.removeprefix("+"), 1)
    parts = _DURATION.findall(body)
    if "".join(number + unit for number, unit in parts) != body or not body:
        if body == "0":
            return 0
        raise NoEquivalent(f"{text!r} is not a duration such as 1h30m")
    if len(body) > _LONGEST_TEXT:
        raise NoEquivalent("the duration is too long")
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in parts), Decimal(0))
    if seconds != seconds.to_integral_value():
        raise NoEquivalent(f"{text!r} has a fraction of a second")
    return sign * int(seconds)


# Types whose values are written as texts; in CEL, functions of the same names convert them.
_WRITTEN = {"timestamp": seconds_of_time, "duration": seconds_of_duration, "ipaddress": address_number}


# ---- derived values --------------------------------------------------------------------------------------------------


def described(operand: ir.ModelOperand) -> str:
    """Return the name of a parameter that has the operand's value: `granted + lifetime`."""
    match operand:
        case ir.GivenValue(name):
            return name
        case ir.Constant(value):
            return str(value)
        case ir.NetworkEnd(name, is_last):
            return f"{name} {'last' if is_last else 'first'}"
        case ir.Sum(left, right, minus):
            second = f"({described(right)})" if isinstance(right, ir.Sum) else described(right)
            return f"{described(left)} {'-' if minus else '+'} {second}"


def parameters_of(operand: ir.ModelOperand) -> list[str]:
    match operand:
        case ir.GivenValue(name) | ir.NetworkEnd(name):
            return [name]
        case ir.Sum(left, right):
            return [*parameters_of(left), *parameters_of(right)]
    return []


def unasked(condition: ir.ModelCondition) -> list[str]:
    """Return the parameters that the translated test does not use."""
    asked = {name for operand in ir.operands(condition.test) for name in parameters_of(operand)}
    return [each.name for each in condition.parameters if each.name not in asked]


def sums(test: ir.ModelTest) -> list[ir.Sum]:
    """Return the outermost sums of a test."""
    return [each for each in ir.operands(test) if isinstance(each, ir.Sum)]


def worked_out(condition: ir.ModelCondition, values: ir.ContextValues) -> dict[str, list[Value]]:
    """Return the values that a tuple or request gives to a condition, by name. Raise NoEquivalent if one has none."""
    types = {each.name: each.type for each in condition.parameters}
    found: dict[str, list[Value]] = {}
    for name, raw in values:
        if name in types:
            try:
                found[name] = values_of(types[name], raw)
            except NoEquivalent as reason:
                raise NoEquivalent(f"parameter {name}: {reason}") from None
    needed = dict.fromkeys(unasked(condition) if condition.needs_every_value else ())
    for operand in ir.operands(condition.test):
        needed[described(operand)] = None
        if not isinstance(operand, ir.GivenValue) and (number := _number_of(operand, found)) is not None:
            found[described(operand)] = [Value(INTEGER, str(number))]
    return {name: each for name, each in found.items() if name in needed}


def _number_of(operand: ir.ModelOperand, found: Mapping[str, list[Value]]) -> int | None:
    """Return the operand's value; None if a parameter has none."""
    match operand:
        case ir.GivenValue(name):
            return int(found[name][0].id) if name in found else None
        case ir.Constant(value):
            return int(value)
        case ir.NetworkEnd(name, is_last):
            try:
                return network_bounds(found[name][0].id)[is_last] if name in found else None
            except ValueError as reason:
                raise NoEquivalent(f"parameter {name}: {reason}") from None
        case ir.Sum(left, right, minus, type=type_name):
            first, second = _number_of(left, found), _number_of(right, found)
            if first is None or second is None:
                return None
            number = first - second if minus else first + second
            if not is_number_of(type_name, number):
                raise NoEquivalent(f"{described(operand)} is out of range for type {type_name}")
            return number


# ---- parsing ------------------------------------------------------------------------------------------------------

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
        raise ValueError(f"unknown escape `\\{text}`")
    return _ESCAPES[text]


# ---- syntax tree -> test ------------------------------------------------------------------------------------------
# `Unsupported` stands for parts without an equivalent: functions, lists made by functions, fractions.

_ORDERED = {"<", "<=", ">", ">="}
_ADDED = ("int", "timestamp", "duration")  # types of sums of parameters
_CONSTANTS = (*_ADDED, "uint", "double")  # types of sums of constants


class _Typed(NamedTuple):
    operand: ir.ModelOperand
    type: str


def test_of(text: str, parameters: Iterable[ir.ModelParameter], place_of: Callable[[int], ir.Place]) -> ir.ModelTest:
    """Parse an expression. `place_of` converts offsets in its text to places. Raise NotParsed if it is invalid."""
    return _CelReader(text, {each.name: each.type for each in parameters}, place_of).test(_GRAMMAR.parse(text))


class _CelReader:
    def __init__(self, text: str, types: Mapping[str, str], place_of: Callable[[int], ir.Place]):
        self.text, self.types, self.place_of = text, types, place_of

    def test(self, node: SyntaxTree) -> ir.ModelTest:
        match node.data:
            case "both":
                return ir.AllOf(tuple(map(self.test, node.children)))
            case "either":
                return ir.AnyOf(tuple(map(self.test, node.children)))
            case "negation":
                return ir.Negation(self.test(node.children[0]))
            case "choice":
                return ir.ModelChoice(*map(self.test, node.children))
        try:
            return self._atom(node)
        except NoEquivalent as reason:
            return ir.Unsupported(self.text[node.meta.start_pos : node.meta.end_pos], str(reason), self._place(node))

    def _atom(self, node: SyntaxTree) -> ir.ModelTest:
        match node.data, node.children:
            case "name", ["true" | "false" as value]:
                return ir.Always(value == "true")
            case "name", [name]:
                if self._typed(node).type != "bool":
                    raise NoEquivalent(f"`{name}` is neither true nor false")
                return ir.IsTrue(str(name))
            case "one_of", [item, values]:
                return self._one_of(self._typed(item), values)
            case "compared", [left, operator, right]:
                return self._comparison(self._typed(left), str(operator), self._typed(right))
            case "method", [address, "in_cidr", *args]:
                return self._in_network(address, args)
            case ("call", [name, *_]) | ("method", [_, name, *_]):
                raise NoEquivalent(f"the function `{name}` is not supported")
        raise NoEquivalent("this expression is not supported")

    def _comparison(self, left: _Typed, operator: str, right: _Typed) -> ir.ModelTest:
        kinds = {polar_type(left.type), polar_type(right.type)}
        if len(kinds) > 1:
            raise NoEquivalent(f"values of type {left.type} and {right.type} cannot be compared")
        if operator in _ORDERED and kinds != {INTEGER}:
            raise NoEquivalent(f"values of type {left.type} cannot be ordered")
        if "ipaddress" in (left.type, right.type) and left.type != right.type:
            raise NoEquivalent("an address can be compared only with addresses")
        return ir.ModelComparison(operator, left.operand, right.operand)

    def _one_of(self, item: _Typed, values: SyntaxTree) -> ir.ModelTest:
        if values.data == "list":
            constants = tuple(self._constant(each, item.type) for each in values.children)
            return ir.OneOf(item.operand, constants)
        name = str(values.children[0]) if values.data == "name" else ""
        listed = self.types.get(name, "")
        if polar_type(listed) not in (BOOLEAN, INTEGER, STRING) or not listed.startswith("list<"):
            raise NoEquivalent("`in` requires a literal list or a list parameter")
        if polar_type(listed) != polar_type(item.type):
            raise NoEquivalent(f"a value of type {item.type} cannot be in a {listed}")
        return ir.OneOf(item.operand, ir.GivenValue(name))

    def _in_network(self, on: SyntaxTree, args: list[SyntaxTree]) -> ir.ModelTest:
        if len(args) != 1:
            raise NoEquivalent("`in_cidr` requires an address and one network")
        address, network = self._typed(on), self._typed(args[0])
        if address.type != "ipaddress" or network.type != "string":
            raise NoEquivalent("`in_cidr` requires an address and a string")
        if isinstance(address.operand, ir.Sum) or isinstance(network.operand, ir.Sum):
            raise NoEquivalent("addition of addresses is not supported")
        first, last = _ends(network.operand)
        above = ir.ModelComparison(">=", address.operand, first)
        return ir.AllOf((above, ir.ModelComparison("<=", address.operand, last)))

    def _constant(self, node: SyntaxTree, type_name: str) -> ir.Constant:
        typed = self._typed(node)
        if not isinstance(typed.operand, ir.Constant) or polar_type(typed.type) != polar_type(type_name):
            raise NoEquivalent(f"the list must contain only constants of type {type_name}")
        return typed.operand

    # ---- operands ----------------------------------------------------------------------------------------------------

    def _typed(self, node: SyntaxTree) -> _Typed:
        match node.data, node.children:
            case "name", ["true" | "false" as value]:
                return _Typed(ir.Constant(value == "true"), "bool")
            case "name", [name]:
                return _Typed(ir.GivenValue(str(name)), self._type_of(str(name)))
            case "string", _:
                text = _unquoted(node)
                value_of("string", text)
                return _Typed(ir.Constant(text), "string")
            case "int", [number]:
                return _Typed(ir.Constant(_whole(number)), "uint" if number[-1] in "uU" else "int")
            case "float", [number]:
                return _Typed(ir.Constant(_without_fraction(number)), "double")
            case "negative", [inner]:
                operand, type_name = self._typed(inner)
                if isinstance(operand, ir.Constant) and type_name in ("int", "double"):
                    return _Typed(ir.Constant(-int(operand.value)), type_name)
                raise NoEquivalent("a sign is supported only before a signed number")
            case "sum", [first, *rest]:
                signs, others = rest[::2], map(self._typed, rest[1::2])
                return reduce(
                    lambda left, step: _sum(left, *step, self._place(node)), zip(signs, others), self._typed(first)
                )
            case "call", [name, made] if name in _WRITTEN:
                if made.data != "string":
                    raise NoEquivalent(f"`{name}` requires a string literal")
                return _Typed(ir.Constant(int(value_of(str(name), _unquoted(made)).id)), str(name))
            case ("call", [name, *_]) | ("method", [_, name, *_]):
                raise NoEquivalent(f"the function `{name}` is not supported")
            case "product", [_, operator, *_]:
                raise NoEquivalent(f"`{operator}` is not supported")
            case "part", _:
                raise NoEquivalent("member access and indexing are not supported")
        raise NoEquivalent("this expression is not supported")

    def _type_of(self, name: str) -> str:
        if name not in self.types:
            raise NoEquivalent(f"`{name}` is not a parameter of the condition")
        type_name = self.types[name]
        if polar_type(type_name) is None or type_name.startswith("list<"):
            raise NoEquivalent(f"a value of type {type_name} is not supported")
        return type_name

    def _place(self, node: SyntaxTree) -> ir.Place:
        return self.place_of(node.meta.start_pos)


def _ends(network: ir.ModelOperand) -> list[ir.ModelOperand]:
    """Return the first and last address of a network."""
    if isinstance(network, ir.GivenValue):
        return [ir.NetworkEnd(network.parameter, is_last) for is_last in (False, True)]
    try:
        return [ir.Constant(number) for number in network_bounds(described(network))]
    except ValueError as reason:
        raise NoEquivalent(str(reason)) from None


def _sum(left: _Typed, sign: str, right: _Typed, place: ir.Place) -> _Typed:
    minus = sign == "-"
    type_name = _type_of_sum(left.type, right.type, minus)
    if isinstance(left.operand, ir.Constant) and isinstance(right.operand, ir.Constant) and type_name is not None:
        first, second = int(left.operand.value), int(right.operand.value)
        number = first - second if minus else first + second
        if not is_number_of(type_name, number):  # an overflow, which is an error in CEL that satisfies no test
            raise NoEquivalent(f"{number} is out of range for type {type_name}")
        return _Typed(ir.Constant(number), type_name)
    if type_name is None or type_name not in _ADDED:
        raise NoEquivalent(f"`{sign}` of values of type {left.type} and {right.type} is not supported")
    return _Typed(ir.Sum(left.operand, right.operand, minus, place, type_name), type_name)


def _type_of_sum(left: str, right: str, minus: bool) -> str | None:
    """Return the type of `left + right` or `left - right`; None if CEL has no such operation."""
    if left == right:
        of_times = "duration" if minus else None
        return of_times if left == "timestamp" else left if left in _CONSTANTS else None
    if {left, right} == {"timestamp", "duration"} and not (minus and left == "duration"):
        return "timestamp"
    return None


def _whole(text: str) -> int:
    digits = text.rstrip("uU")
    number = int(digits, 16) if digits.startswith("0x") else whole_number(digits, 2**63 - 1)
    if number is None or number >= 2**63:
        raise NoEquivalent("numbers beyond 64 bits are not supported")
    return number


def _without_fraction(text: str) -> int:
    number = float(text)
    if not number.is_integer() or abs(number) >= 2**53:
        raise NoEquivalent("fractions are not supported")
    return int(number)
