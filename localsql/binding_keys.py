"""Keys of data bindings: `has_relation(Repo:_, parent, Org:_)` -> a signature and its constants."""

import json
import re
from dataclasses import dataclass

from facts.accept import Unaccepted, UnknownName, UnknownNames, unaccepted_of
from facts.models import MAX_ARGUMENTS
from facts.wire import id_from_json
from localsql.errors import BindingRejected
from policy.errors import MalformedRequest
from policy.language.parser import NAME
from policy.rules.program import Program, Signature
from policy.rules.types import PLACE
from policy.values import ABSTRACT, STRING, NotFactText, WrittenArgument, parsed

_NAME = re.compile(NAME)
_PLAIN_ID = re.compile(r"(?!_$)[\w.@/-]+")  # needs no quotes


@dataclass(frozen=True, slots=True)
class BindingKey:
    """A signature, and for each argument its constant, or None if it is a column of the query."""

    signature: Signature
    constants: tuple[str | None, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """The arguments that are columns of the query; empty if the key has constants only."""
        return tuple(index for index, constant in enumerate(self.constants) if constant is None)

    def __str__(self) -> str:
        """Return the text of the key, from which `key_from_text` makes the same key."""
        shown = (f"{t}:{'_' if c is None else _shown(c)}" for t, c in zip(self.signature.types, self.constants))
        return f"{self.signature.predicate}({', '.join(shown)})"


def _shown(constant: str) -> str:
    return constant if _PLAIN_ID.fullmatch(constant) else json.dumps(constant, ensure_ascii=False)


def key_from_text(text: str) -> BindingKey:
    try:
        predicate, args, rest = parsed(text)
    except NotFactText as reason:
        raise BindingRejected(text, f"must be a fact pattern, such as `is_public(Repo:_)`: {reason}") from None
    if rest:
        raise BindingRejected(text, "unexpected text after the arguments")
    if len(args) > MAX_ARGUMENTS:
        raise BindingRejected(text, f"a fact has at most {MAX_ARGUMENTS} arguments")
    _check_name(text, predicate)
    signature = Signature(predicate, tuple(_type_of(text, arg) for arg in args))
    return BindingKey(signature, tuple(_constant(text, arg) for arg in args))


def _type_of(text: str, arg: WrittenArgument) -> str:
    """Return the argument's type; a constant without a type is a String, whatever it looks like."""
    if arg.type is None and arg.id is None:
        raise BindingRejected(text, "a variable needs a type, such as `Repo:_`")
    if arg.type in ABSTRACT:
        raise BindingRejected(text, f"`{arg.type}` is not a type of values; use a declared type")
    type_name = arg.type or STRING
    _check_name(text, type_name)
    return type_name


def _check_name(text: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BindingRejected(text, f"`{name}` is not a valid name in a policy")


def _constant(text: str, arg: WrittenArgument) -> str | None:
    if arg.id is None:
        return None
    try:
        written = id_from_json(arg.type or STRING, arg.id, f"`{arg.id}`")
    except MalformedRequest as reason:
        raise BindingRejected(text, reason.message) from None
    if written != arg.id:
        raise BindingRejected(text, f"`{arg.id}` must be written as {written}")
    return written


def unused(program: Program, key: BindingKey) -> Unaccepted | UnknownName | None:
    """Return why the policy doesn't use facts with this key: their types, or a role or relation it doesn't have."""
    signature = key.signature
    if not program.accepts(signature.predicate, signature.types):
        return unaccepted_of(program, signature)
    names = UnknownNames(program)
    name = key.constants[PLACE] if names.concern(signature) else None
    return names.named(signature, name) if name is not None and names.has_unknown(signature, {name}) else None
