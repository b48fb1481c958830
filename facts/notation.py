"""Facts, patterns and values as people write them: `has_role(User:ann, "admin", Repo:_)`.

Without a type, a quoted or bare word is a String, digits are an Integer, `true` and `false` are Booleans; `Type:_` is
any value of the type and `_` is anything.
"""

import re

from facts import wire
from facts.wire import Argument, Fact, FactPattern
from policy.errors import MalformedRequest
from policy.fact_text import NotFactText, WrittenArgument, WrittenFact, parsed
from policy.values import BOOLEAN, INTEGER, STRING, Value

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def fact_from_text(text: str) -> Fact:
    written = _parsed(text)
    if any(arg.id is None for arg in written.args):
        raise MalformedRequest("", "a fact has no wildcards: write every argument as `Type:id`")
    return wire.fact_from_json(_as_json(written), "")


def pattern_from_text(text: str) -> FactPattern:
    return wire.pattern_from_json(_as_json(_parsed(text)), "")


def value_from_text(text: str) -> Value:
    """Return an actor or a resource, `User:ann`: what the interface would take as one."""
    match pattern_from_text(f"value({text})").args if text else ():
        case (Argument(str() as type_name, str() as written),) if type_name != STRING:
            return Value(type_name, wire.id_from_json(type_name, written, f"the id of `{type_name}`"))
    raise MalformedRequest("", f"`{text}` is not a value; write it as `User:alice`")


def action_from_text(text: str) -> str:
    if not text:
        raise MalformedRequest("", "the action is empty; name one, such as `read`")
    return text


def _parsed(text: str) -> WrittenFact:
    try:
        written = parsed(text)
        if written.rest and not written.rest.startswith(";"):
            raise NotFactText(f"expected nothing more before `{written.rest[:20]}`")
    except NotFactText as reason:
        example = 'a fact looks like `has_role(User:ann, "admin", Repo:acme)`'
        raise MalformedRequest("", f"{reason}; {example}") from None
    return written


def _as_json(written: WrittenFact) -> dict[str, object]:
    return {
        "predicate": written.predicate,
        "args": [{"type": arg.type or _type_of(arg), "id": arg.id} for arg in written.args],
    }


def _type_of(arg: WrittenArgument) -> str | None:
    """Return the type of an argument that is written without one."""
    if arg.id is None:
        return None
    if arg.is_quoted:
        return STRING
    if arg.id in ("true", "false"):
        return BOOLEAN
    return INTEGER if _NUMBER.fullmatch(arg.id) else STRING
