"""A caveat's condition -> the tests that a policy can say. What it cannot, stays as `Unsayable`, with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from authz_project.importers.model import (
    AllOf,
    Always,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    Given,
    InNetwork,
    IsTrue,
    Negation,
    OneOf,
    Operand,
    Parameter,
    Test,
    Unsayable,
)
from authz_project.importers.model import (
    Sum as SumOf,
)
from authz_project.importers.spicedb.cel_text import written
from authz_project.importers.spicedb.syntax import (
    Called,
    Caveat,
    Cel,
    Identifier,
    ListWritten,
    Literal,
    Operation,
)

_ORDERED = {"int", "uint", "timestamp", "duration"}
_EQUAL = _ORDERED | {"string", "bool"}
_NUMBERS = {"int", "uint"}
_SIGNS = ("==", "!=", "<", "<=", ">", ">=")
_NO_TYPE = {
    "double": "there are no fractions here",
    "bytes": "there are no bytes here",
    "any": "a value has one type here",
    "map": "there are no maps here",
    "list": "a list is only asked whether something is in it",
    "ipaddress": "an address is only asked whether it is in a network",
}
_NO_CALL = {
    "startsWith": "texts are compared as a whole",
    "endsWith": "texts are compared as a whole",
    "contains": "texts are compared as a whole",
    "matches": "texts are compared as a whole",
    "size": "nothing is counted here",
    "all": "lists are not gone through here",
    "exists": "lists are not gone through here",
    "exists_one": "lists are not gone through here",
    "isSubtreeOf": "there are no maps here",
}
_MOST = 2**63
_START = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"([+-]?)((?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+)")
_SECONDS = {
    "h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6), "ns": Fraction(1, 10**9),
}  # fmt: skip


class _CannotSay(Exception):
    def __init__(self, cel: Cel, reason: str):
        super().__init__(reason)
        self.cel, self.reason = cel, reason


def condition_of(caveat: Caveat) -> Condition:
    types = {parameter.name: str(parameter.type) for parameter in caveat.parameters}
    parameters = tuple(Parameter(each.name, str(each.type), each.place) for each in caveat.parameters)
    test = _Conditions(types).test(caveat.condition)
    return Condition(caveat.name, parameters, test, caveat.text, caveat.comment, caveat.place)


class _Conditions:
    def __init__(self, types: Mapping[str, str]):
        self.types = types

    def test(self, cel: Cel) -> Test:
        """The parts that can be said are, also beside others that cannot."""
        match cel:
            case Operation("&&", sides):
                return AllOf(self._parts("&&", sides))
            case Operation("||", sides):
                return AnyOf(self._parts("||", sides))
            case Operation("!", (side,)):
                return Negation(self.test(side))
            case Operation("?", (chosen, yes, no)):
                test = self.test(chosen)
                return AnyOf((AllOf((test, self.test(yes))), AllOf((Negation(test), self.test(no)))))
        try:
            return self._single(cel)
        except _CannotSay as why:
            return Unsayable(written(why.cel), why.reason, why.cel.place)

    def _parts(self, sign: str, sides: tuple[Cel, ...]) -> tuple[Test, ...]:
        """`a && b && c` is one list of three."""
        left, right = sides
        if isinstance(left, Operation) and left.sign == sign:
            return (*self._parts(sign, left.sides), self.test(right))
        return self.test(left), self.test(right)

    def _single(self, cel: Cel) -> Test:
        match cel:
            case Literal(bool(value)):
                return Always(value)
            case Identifier(name) if self.types.get(name) == "bool":
                return IsTrue(name, cel.place)
            case Operation("in", (item, ListWritten(elements))):
                return OneOf(self._equal(item), tuple(map(self._constant, elements)), cel.place)
            case Operation("in", (item, Identifier(name))) if self.types.get(name, "").startswith("list<"):
                self._same_type(cel, item, self.types[name][5:-1])
                return OneOf(self._equal(item), Given(name, cel.place), cel.place)
            case Operation(sign, (left, right)) if sign in _SIGNS:
                return self._comparison(cel, sign, left, right)
            case Called("in_cidr", (network,), base) if base is not None:
                return InNetwork(self._address(base), self._network(network), cel.place)
        raise self._refusal(cel)

    # ---- comparisons ------------------------------------------------------------------------------------------------

    def _comparison(self, cel: Cel, sign: str, left: Cel, right: Cel) -> Test:
        kind = self._kind(left)
        self._same_type(cel, right, kind)
        if kind == "bool" and isinstance(left, Identifier) and isinstance(right, Literal):
            test = IsTrue(left.name, cel.place)
            return test if right.value is (sign == "==") else Negation(test)
        if kind not in (_EQUAL if sign in ("==", "!=") else _ORDERED):
            raise _CannotSay(cel, _NO_TYPE.get(kind.partition("<")[0], f"no {kind} is less or more than another here"))
        return Comparison(sign, self._operand(left), self._operand(right), cel.place)

    def _same_type(self, cel: Cel, side: Cel, kind: str) -> None:
        other = self._kind(side)
        if other != kind and not {other, kind} <= _NUMBERS:
            reasons = (_NO_TYPE.get(each.partition("<")[0]) for each in (kind, other))
            raise _CannotSay(cel, next(filter(None, reasons), f"it compares {kind} with {other}"))

    def _equal(self, cel: Cel) -> Operand:
        kind = self._kind(cel)
        if kind not in _EQUAL:
            raise _CannotSay(cel, _NO_TYPE.get(kind.partition("<")[0], "it is no value here"))
        return self._operand(cel)

    def _constant(self, cel: Cel) -> Constant:
        found = self._equal(cel)
        if isinstance(found, Constant):
            return found
        raise _CannotSay(cel, "a list holds values that are written out")

    def _address(self, cel: Cel) -> Given | Constant:
        match cel:
            case Identifier(name) if self.types.get(name) == "ipaddress":
                return Given(name, cel.place)
            case Called("ipaddress", (Literal(str(text)),), None):
                return Constant(text, cel.place)
        raise self._refusal(cel)

    def _network(self, cel: Cel) -> Given | Constant:
        found = self._operand(cel)
        if self._kind(cel) == "string" and not isinstance(found, SumOf):
            return found
        raise self._refusal(cel)

    # ---- what is compared -------------------------------------------------------------------------------------------

    def _kind(self, cel: Cel) -> str:
        """The type of what is compared."""
        match cel:
            case Identifier(name) if name in self.types:
                return self.types[name]
            case Literal(bool()):
                return "bool"
            case Literal(int()):
                return "int"
            case Literal(str()):
                return "string"
            case Literal(float()):
                return "double"
            case Literal(bytes()):
                return "bytes"
            case Called("timestamp" | "duration" | "ipaddress" as name, (Literal(str()),), None):
                return name
            case Operation("+" | "-" as sign, (left, right)):
                return self._kind_of_sum(cel, sign, self._kind(left), self._kind(right))
        raise self._refusal(cel)

    def _kind_of_sum(self, cel: Cel, sign: str, left: str, right: str) -> str:
        if {left, right} <= _NUMBERS:
            return "int"
        if right == "duration" and left in ("timestamp", "duration"):
            return left
        if (left, sign, right) == ("duration", "+", "timestamp"):
            return "timestamp"
        if (left, sign, right) == ("timestamp", "-", "timestamp"):
            return "duration"
        raise _CannotSay(cel, f"{left} and {right} have no sum here")

    def _operand(self, cel: Cel) -> Operand:
        match cel:
            case Identifier(name):
                return Given(name, cel.place)
            case Literal(int(value)) if -_MOST <= value < _MOST:
                return Constant(value, cel.place)
            case Literal(str(value)):
                return Constant(value, cel.place)
            case Called("timestamp", (Literal(str(text)),), None):
                return Constant(self._whole(cel, _seconds_of_time(text)), cel.place)
            case Called("duration", (Literal(str(text)),), None):
                return Constant(self._whole(cel, _seconds_of_duration(text)), cel.place)
            case Operation("+" | "-" as sign, (left, right)):
                return SumOf(self._operand(left), self._operand(right), sign == "-", cel.place)
        raise self._refusal(cel)

    def _whole(self, cel: Cel, seconds: Fraction | None) -> int:
        if seconds is None:
            raise _CannotSay(cel, "it is no time")
        if seconds.denominator != 1:
            raise _CannotSay(cel, "times are whole seconds here")
        return int(seconds)

    def _refusal(self, cel: Cel) -> _CannotSay:
        match cel:
            case Identifier(name) if name in self.types:
                return _CannotSay(cel, _NO_TYPE.get(self.types[name].partition("<")[0], "it is no condition"))
            case Identifier():
                return _CannotSay(cel, "the caveat has no such parameter")
            case Called(function, _, _):
                return _CannotSay(cel, _NO_CALL.get(function, f"there is no `{function}` here"))
            case Literal(int()):
                return _CannotSay(cel, "whole numbers have 64 bits here")
            case Literal(float()):
                return _CannotSay(cel, "there are no fractions here")
            case Operation("*" | "/" | "%" | "-", _):
                return _CannotSay(cel, "this is not calculated here")
            case Operation("in" | "[]", _):
                return _CannotSay(cel, "there are no maps here")
        return _CannotSay(cel, "there are no maps here")


def _seconds_of_time(text: str) -> Fraction | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return Fraction((time - _START) // timedelta(microseconds=1), 10**6) if time.tzinfo else None


def _seconds_of_duration(text: str) -> Fraction | None:
    """`1h30m`, `90s`, `-5m`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return Fraction(0) if text == "0" else None
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)", found[2])
    seconds = sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    return -seconds if found[1] == "-" else seconds
