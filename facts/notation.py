"""Facts and patterns as people write them: `has_role(User:ann, "admin", Repo:_)`.

An argument is `Type:id`, `Type:"any id"` or `Type{"any id"}`; a quoted or bare word is a String, digits are
an Integer, `true` and `false` are Booleans; `Type:_` is any value of the type and `_` is anything.
"""

import re
from typing import NoReturn

import orjson

from facts import wire
from facts.wire import Argument, Fact, Pattern
from policy.errors import MalformedRequest
from policy.values import BOOLEAN, INTEGER, STRING, Value

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\s(){}:,\"]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_BARE = re.compile(r"[^\s(){},\"]+")
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def fact_from_text(text: str) -> Fact:
    predicate, args = _parse(text)
    if any(arg.id is None for arg in args):
        raise MalformedRequest("", "a fact has no wildcards: write every argument as `Type:id`")
    return wire.fact_from_json(_as_json(predicate, args), "")


def pattern_from_text(text: str) -> Pattern:
    predicate, args = _parse(text)
    return wire.pattern_from_json(_as_json(predicate, args), "")


def value_from_text(text: str) -> Value:
    """An actor or a resource, `User:ann`: what the interface would take as one."""
    match pattern_from_text(f"value({text})").args if text else ():
        case (Argument(str() as type_name, str() as written),) if type_name != STRING:
            return Value(type_name, wire.id_from_json(type_name, written, f"the id of `{type_name}`"))
    raise MalformedRequest("", f"`{text}` is not a value; write it as `User:alice`")


def action_from_text(text: str) -> str:
    if not text:
        raise MalformedRequest("", "the action is empty; name one, such as `read`")
    return text


def _as_json(predicate: str, args: list[Argument]) -> dict:
    return {"predicate": predicate, "args": [{"type": arg.type, "id": arg.id} for arg in args]}


def _parse(text: str) -> tuple[str, list[Argument]]:
    predicate, at = _take(_NAME, text, 0, "a predicate")
    at = _expect("(", text, at)
    args = []
    while True:
        argument, at = _argument(text, at)
        args.append(argument)
        if _at(text, at) != ",":
            break
        at = _expect(",", text, at)
    at = _expect(")", text, at)
    if _at(text, at) not in ("", ";"):
        _refuse(text, at, "nothing more")
    return predicate, args


def _argument(text: str, at: int) -> tuple[Argument, int]:
    if _at(text, at) == '"':
        content, at = _quoted(text, at)
        return Argument(STRING, content), at
    name, at = _take(_NAME, text, at, "an argument")
    following = text[at : at + 1]
    if following == "{":
        content, at = _quoted(text, at + 1)
        return Argument(name, content), _expect("}", text, at)
    if following == ":":
        return _typed(name, text, at + 1)
    return _bare(name), at


def _typed(type_name: str, text: str, at: int) -> tuple[Argument, int]:
    if _at(text, at) == '"':
        content, at = _quoted(text, at)
        return Argument(type_name, content), at
    content, at = _take(_BARE, text, at, "an id")
    return Argument(type_name, None if content == "_" else content), at


def _bare(word: str) -> Argument:
    if word == "_":
        return Argument()
    if word in ("true", "false"):
        return Argument(BOOLEAN, word)
    return Argument(INTEGER if _NUMBER.fullmatch(word) else STRING, word)


def _quoted(text: str, at: int) -> tuple[str, int]:
    found, after = _take(_QUOTED, text, at, "a quoted id")
    try:
        return orjson.loads(found), after
    except orjson.JSONDecodeError:
        _refuse(text, at, "a quoted id with JSON's escapes")


def _take(token: re.Pattern[str], text: str, at: int, wanted: str) -> tuple[str, int]:
    found = token.match(text, _after_space(text, at))
    if found is None:
        _refuse(text, at, wanted)
    return found[0], found.end()


def _expect(char: str, text: str, at: int) -> int:
    if _at(text, at) != char:
        _refuse(text, at, f"`{char}`")
    return _after_space(text, at) + 1


def _at(text: str, at: int) -> str:
    start = _after_space(text, at)
    return text[start : start + 1]


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _refuse(text: str, at: int, wanted: str) -> NoReturn:
    rest = text[at:].strip()
    place = f"before `{rest[:20]}`" if rest else "at the end"
    raise MalformedRequest("", f'expected {wanted} {place}; a fact looks like `has_role(User:ann, "admin", Repo:acme)`')
