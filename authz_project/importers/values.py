"""Convert parameter values from JSON to Polar: times and durations become seconds, IPv4 addresses numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from ipaddress import IPv4Address, IPv4Network

from authz_project.importers.model import (
    AllOf,
    AnyOf,
    Constant,
    ContextValues,
    GivenValue,
    InNetwork,
    IsTrue,
    ModelCondition,
    ModelOperand,
    ModelTest,
    Negation,
    Sum,
)
from authz_project.importers.model import ModelComparison as Compared
from authz_project.importers.model import OneOf as AmongThese
from facts.wire import MAX_ID_BYTES
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- addresses ----------------------------------------------------------------------------------------------------
# Addresses of the internet's fourth version as numbers; those of the sixth do not fit into 64 bits.


def address_number(text: str) -> int:
    """Return the number of an address; raise ValueError if it is none of the fourth version."""
    return int(IPv4Address(text))


def network_bounds(text: str) -> tuple[int, int]:
    """Return the first and the last address of a network such as `10.0.0.0/8`; raise ValueError as above."""
    if not re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text):
        raise ValueError(f"{text!r} is not a network such as 10.0.0.0/8")
    network = IPv4Network(text, strict=False)
    return int(network.network_address), int(network.broadcast_address)


# ---- values -------------------------------------------------------------------------------------------------------
# Values of parameters, from JSON to Polar: times and durations are seconds, addresses numbers.

FIRST, LAST = "first", "last"  # of the addresses of a network
_TYPES = {
    "int": INTEGER, "uint": INTEGER, "double": INTEGER, "timestamp": INTEGER, "duration": INTEGER,
    "ipaddress": INTEGER, "string": STRING, "bool": BOOLEAN,
}  # fmt: skip
_EMPTY = {True: Value(STRING, "empty"), False: Value(BOOLEAN, "false")}  # by whether it is a list of bools
_LONGEST_TEXT = 200  # of a duration
_LONGEST_DURATION = 9_223_372_036  # seconds: more does not fit into 64 bits of nanoseconds
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 20
_FIRST_TIME, _LAST_TIME = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_BOUNDS = {
    "uint": (0, 2**63 - 1), "double": (-(2**53), 2**53), "duration": (-_LONGEST_DURATION, _LONGEST_DURATION),
    "timestamp": (_FIRST_TIME, _LAST_TIME),
}  # fmt: skip
_LIST = re.compile(r"list<(\w+)>")
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s|us|µs|ns)")
_LENGTHS = {"h": "3600", "m": "60", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "ns": "1e-9"}
_UNITS = {unit: Decimal(length) for unit, length in _LENGTHS.items()}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


class NoValue(ValueError):
    """A value that Polar has no equal for: why."""


def polar_type(type_name: str) -> str | None:
    """Return the type of a parameter's values here; None if there is none."""
    listed = _LIST.fullmatch(type_name)
    return _TYPES.get(listed[1] if listed else type_name)


def values_of(type_name: str, raw: object) -> list[Value]:
    """Return the Polar values for a JSON value: one for each element of a list.

    An empty list gets one value of another type than its elements have, so that it differs from a missing list.
    """
    listed = _LIST.fullmatch(type_name)
    if not listed:
        return [value_of(type_name, raw)]
    if not isinstance(raw, list):
        raise NoValue(f"{raw!r} is not a list")
    return [value_of(listed[1], each) for each in raw] or [empty_list(_TYPES.get(listed[1], STRING))]


def element_type(type_name: str) -> str | None:
    """Return the type here of a list's elements; None if it is no list, or they have none."""
    listed = _LIST.fullmatch(type_name)
    return _TYPES.get(listed[1]) if listed else None


def empty_list(of: str) -> Value:
    """Return what stands for a list without elements, by their type here."""
    return _EMPTY[of == BOOLEAN]


def value_of(type_name: str, raw: object) -> Value:
    kind = _TYPES.get(type_name)
    if kind is None:
        raise NoValue(f"values of type {type_name} have no equal here")
    if kind == BOOLEAN:
        if isinstance(raw, bool) or raw in ("true", "false"):
            return Value(BOOLEAN, str(raw).lower())
        raise NoValue(f"{raw!r} is not true or false")
    if kind == STRING:
        if not isinstance(raw, str):
            raise NoValue(f"{raw!r} is not a text")
        if not 0 < len(raw.encode(errors="replace")) <= MAX_ID_BYTES or "\0" in raw or raw == "*":
            raise NoValue(f"a text here has 1 to {MAX_ID_BYTES} bytes, no NUL, and is not `*`")
        return Value(STRING, raw)
    number = _number(type_name, raw)
    if not is_number_of(type_name, number):
        raise NoValue(f"{raw!r} is not among the values of type {type_name} that have an equal here")
    return Value(INTEGER, str(number))


def is_number_of(type_name: str, number: int) -> bool:
    """Say whether it is a number of the type, of those that have an equal here."""
    low, high = _BOUNDS.get(type_name, (-(2**63), 2**63 - 1))
    return low <= number <= high


def _number(type_name: str, raw: object) -> int:
    try:
        if type_name == "timestamp":
            return seconds_of_time(str(raw))
        if type_name == "duration":
            return seconds_of_duration(str(raw))
        if type_name == "ipaddress":
            return address_number(str(raw))
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise NoValue(f"{raw!r} is not a number")
        if type_name != "double" and isinstance(raw, str) and not _INTEGER.fullmatch(raw):
            raise NoValue(f"{raw!r} is not a whole number")
        if isinstance(raw, str) and not re.fullmatch(r"[-+.0-9eE]+", raw):
            raise NoValue(f"{raw!r} is not a number")
        number = Decimal(str(raw))
        if not number.is_finite() or number.adjusted() >= _MOST_DIGITS:
            raise NoValue(f"{raw!r} is too large a number")
        if number != number.to_integral_value():
            raise NoValue(f"{raw!r} is not a whole number")
        return int(number)
    except (InvalidOperation, OverflowError):
        raise NoValue(f"{raw!r} is not a number") from None
    except ValueError as reason:
        raise NoValue(str(reason)) from None


def seconds_of_time(text: str) -> int:
    """Return the seconds since 1970 of an RFC 3339 time; raise NoValue if it is none, or not of whole seconds."""
    found = _TIME.fullmatch(text)
    if not found:
        raise NoValue(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")
    day, clock, fraction, zone = found.groups()
    if fraction and fraction.strip(".0"):
        raise NoValue(f"{text!r} has parts of a second")
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    if not _FIRST_TIME <= seconds <= _LAST_TIME:
        raise NoValue(f"{text!r} is not within the years 1 to 9999")
    return seconds


def seconds_of_duration(text: str) -> int:
    """Return the seconds of a duration such as `1h30m`; raise NoValue if it is none, or not of whole seconds."""
    body, sign = (text[1:], -1) if text[:1] == "-" else (text.removeprefix("+"), 1)
    parts = _DURATION.findall(body)
    if "".join(number + unit for number, unit in parts) != body or not body:
        if body == "0":
            return 0
        raise NoValue(f"{text!r} is not a duration such as 1h30m")
    if len(body) > _LONGEST_TEXT:
        raise NoValue("the duration is too long a text")
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in parts), Decimal(0))
    if seconds != seconds.to_integral_value():
        raise NoValue(f"{text!r} has parts of a second")
    return sign * int(seconds)


# ---- what follows from several values --------------------------------------------------------------------------------


def described(operand: ModelOperand) -> str:
    """Write an operand as the name of a parameter that has its value: `granted + lifetime`."""
    match operand:
        case GivenValue(name):
            return name
        case Constant(value):
            return str(value)
        case Sum(left, right, minus):
            second = f"({described(right)})" if isinstance(right, Sum) else described(right)
            return f"{described(left)} {'-' if minus else '+'} {second}"


def asked_values(condition: ModelCondition) -> dict[str, str]:
    """Return what a condition asks for, by name, with the type here: parameters, sums of them, ends of networks."""
    types = {each.name: polar_type(each.type) or STRING for each in condition.parameters}
    others = unasked(condition) if condition.needs_every_value else []
    return {name: types.get(name, INTEGER) for name in (*_asked(condition.test), *others)}


def unasked(condition: ModelCondition) -> list[str]:
    """Return the parameters that the translated test does not use."""
    asked = {*_asked(condition.test), *(each.parameter for each in networks(condition.test))}
    asked |= {name for total in sums(condition.test) for name in parameters_of(total)}
    return [each.name for each in condition.parameters if each.name not in asked]


def _asked(test: ModelTest) -> Iterator[str]:
    match test:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _asked(part)
        case Negation(inner):
            yield from _asked(inner)
        case IsTrue(name):
            yield name
        case Compared(_, left, right):
            yield from (described(each) for each in (left, right) if not isinstance(each, Constant))
        case AmongThese(item, values):
            yield from (described(each) for each in (item, values) if isinstance(each, GivenValue | Sum))
        case InNetwork(address, network):
            if isinstance(address, GivenValue):
                yield address.parameter
            if isinstance(network, GivenValue):
                yield from (f"{network.parameter} {end}" for end in (FIRST, LAST))


def worked_out(condition: ModelCondition, values: ContextValues) -> dict[str, list[Value]]:
    """Return the values that a tuple or a request gives to a condition, by name; NoValue if one has no equal here."""
    asked = asked_values(condition)
    return {name: each for name, each in _all_worked_out(condition, values).items() if name in asked}


def _all_worked_out(condition: ModelCondition, values: ContextValues) -> dict[str, list[Value]]:
    types = {each.name: each.type for each in condition.parameters}
    found: dict[str, list[Value]] = {}
    for name, raw in values:
        if name in types:
            try:
                found[name] = values_of(types[name], raw)
            except NoValue as reason:
                raise NoValue(f"parameter {name}: {reason}") from None
    for total in sums(condition.test):
        if (number := _total(total, found)) is not None:
            found[described(total)] = [Value(INTEGER, str(number))]
    for network in networks(condition.test):
        if network.parameter in found:
            try:
                first, last = network_bounds(found[network.parameter][0].id)
            except ValueError as reason:
                raise NoValue(f"parameter {network.parameter}: {reason}") from None
            found[f"{network.parameter} {FIRST}"] = [Value(INTEGER, str(first))]
            found[f"{network.parameter} {LAST}"] = [Value(INTEGER, str(last))]
    return found


def _total(operand: ModelOperand, found: dict[str, list[Value]]) -> int | None:
    match operand:
        case GivenValue(name):
            return int(found[name][0].id) if name in found else None
        case Constant(value):
            return int(value)
        case Sum(left, right, minus, type=type_name):
            first, second = _total(left, found), _total(right, found)
            if first is None or second is None:
                return None
            number = first - second if minus else first + second
            if not is_number_of(type_name, number):
                raise NoValue(f"{described(operand)} is out of what values of type {type_name} may be")
            return number


def sums(test: ModelTest) -> list[Sum]:
    """Return the outermost sums of a test."""
    match test:
        case AllOf(parts) | AnyOf(parts):
            return [each for part in parts for each in sums(part)]
        case Negation(inner):
            return sums(inner)
        case Compared(_, left, right):
            return [each for each in (left, right) if isinstance(each, Sum)]
        case AmongThese(item, _):
            return [item] if isinstance(item, Sum) else []
    return []


def networks(test: ModelTest) -> list[GivenValue]:
    """Return the networks of a test that are parameters."""
    match test:
        case AllOf(parts) | AnyOf(parts):
            return [each for part in parts for each in networks(part)]
        case Negation(inner):
            return networks(inner)
        case InNetwork(_, GivenValue() as network):
            return [network]
    return []


def parameters_of(operand: ModelOperand) -> list[str]:
    match operand:
        case GivenValue(name):
            return [name]
        case Sum(left, right):
            return [*parameters_of(left), *parameters_of(right)]
    return []
