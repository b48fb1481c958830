"""The keys of data bindings: `has_relation(Repo:_, parent, Org:_)` -> a signature and its constants."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localsql.errors import BindingRejected
from policy.rules.program import Signature
from policy.values import ABSTRACT, STRING, canonical_id

MOST_ARGUMENTS = 5

_HEAD = re.compile(r"\s*([A-Za-z_]\w*)\s*\(", re.ASCII)
_ARGUMENT = re.compile(
    r"""\s*(?:(?P<type>[A-Za-z_]\w*(?:::\w+)*)\s*:\s*)?   # Type:
        (?:"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<bare>[^\s,()":]+))   # an id, or _
        \s*(?P<end>[,)])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Key:
    """A signature, and for each argument its constant, or None where the query has a column for it."""

    signature: Signature
    constants: tuple[str | None, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """The arguments that the query's columns are for; the first one where there are only constants."""
        return tuple(index for index, constant in enumerate(self.constants) if constant is None)

    def __str__(self) -> str:
        shown = (f"{t}:{'_' if c is None else c}" for t, c in zip(self.signature.types, self.constants))
        return f"{self.signature.predicate}({', '.join(shown)})"


def key_from_text(text: str) -> Key:
    head = _HEAD.match(text)
    if not head:
        raise BindingRejected(text, "must be a predicate with arguments, as `is_public(Repo:_)`")
    arguments, end, following = [], head.end(), ","
    while following == ",":
        found = _ARGUMENT.match(text, end)
        if not found:
            raise BindingRejected(text, "an argument must be `Type:_`, `Type:id` or a String's text")
        arguments.append(_argument(text, found))
        end, following = found.end(), found["end"]
    if text[end:].strip():
        raise BindingRejected(text, "nothing may follow the arguments")
    if len(arguments) > MOST_ARGUMENTS:
        raise BindingRejected(text, f"a fact has at most {MOST_ARGUMENTS} arguments")
    types, constants = zip(*arguments)
    return Key(Signature(head[1], types), constants)


def _argument(text: str, found: re.Match[str]) -> tuple[str, str | None]:
    type_name, bare = found["type"], found["bare"]
    if bare == "_":
        if type_name is None:
            raise BindingRejected(text, "a variable needs its type, as `Repo:_`")
        _check_type(text, type_name)
        return type_name, None
    value = bare if bare is not None else re.sub(r"\\(.)", r"\1", found["quoted"])
    type_name = type_name or STRING
    _check_type(text, type_name)
    if not value:
        raise BindingRejected(text, "an id must not be empty")
    try:
        if canonical_id(type_name, value) != value:
            raise BindingRejected(text, f"`{value}` must be written as {canonical_id(type_name, value)}")
    except ValueError as reason:
        raise BindingRejected(text, f"`{value}`: {reason}") from None
    return type_name, value


def _check_type(text: str, type_name: str) -> None:
    if type_name in ABSTRACT:
        raise BindingRejected(text, f"`{type_name}` is not the type of any value, name a declared one")
