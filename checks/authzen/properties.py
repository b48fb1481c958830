"""Properties as context facts, whose predicates are the properties' names.

resource {"type": "record", "id": "r1", "properties": {"status": "archived"}}    status(record{"r1"}, "archived")
subject  {"type": "user", "id": "bob", "properties": {"groups": ["a", "b"]}}     groups(user{"bob"}, "a"), …
resource {"type": "record", "id": "r1", "properties": {"is_public": true}}       is_public(record{"r1"}), and
                                                                                 is_public(record{"r1"}, true)
action   {"name": "delete", "properties": {"soft": true}}                        soft("delete"), and
                                                                                 soft("delete", true)
context  {"ip": "10.0.0.1"}                                                      context("ip", "10.0.0.1")

Facts that the policy has no use for are ignored. A value that no fact can have, such as a fraction or an object, is
refused if the policy asks for that property: if it were ignored, a `not` could hold for lack of the fact, and grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from checks.authzen.entities import Members, Part
from checks.serializers import check_number
from facts.wire import Fact, id_from_json
from policy.errors import MalformedRequest
from policy.rules.program import Program
from policy.values import BOOLEAN, INTEGER, STRING, Value

OF_CONTEXT = "context"  # the predicate of what the context says


class RequestProperties(NamedTuple):
    """What a request says of its parts. A part that is searched for says nothing."""

    subject: Part
    action: Part
    resource: Part
    context: Members

    @property
    def has_properties(self) -> bool:
        """Say whether there are properties or a context, which most requests do not have."""
        subject, action, resource, context = self
        return bool(subject.properties or action.properties or resource.properties or context)


def facts_of(known: RequestProperties, program: Program) -> tuple[Fact, ...]:
    """Return the facts that the program has a use for, each once."""
    if not known.has_properties:
        return ()
    found = tuple(dict.fromkeys(fact for fact in _facts(known, program) if _is_of_use(fact, program)))
    check_number(len(found))
    return found


def _is_of_use(fact: Fact, program: Program) -> bool:
    return program.accepts(fact.predicate, fact.signature.types)


def _facts(known: RequestProperties, program: Program) -> Iterator[Fact]:
    for name, part in (("subject", known.subject), ("resource", known.resource), ("action", known.action)):
        if part.asked.ids is not None:
            about = Value(part.asked.type, part.asked.one)
            yield from _of(about, part.properties, f"{name}.properties", program)
    for name, raw in known.context.items():
        if _has_predicate(program, OF_CONTEXT, STRING):
            path = f"context.{name}"
            about = Value(STRING, id_from_json(STRING, name, path))
            yield from (Fact(OF_CONTEXT, (about, value)) for value in _values(raw, path))


def _of(about: Value, properties: Members, path: str, program: Program) -> Iterator[Fact]:
    for name, raw in properties.items():
        if not _has_predicate(program, name, about.type):
            continue
        if raw is True:
            yield Fact(name, (about,))
        yield from (Fact(name, (about, value)) for value in _values(raw, f"{path}.{name}"))


def _has_predicate(program: Program, name: str, type_name: str) -> bool:
    """Say whether the program accepts facts of this name with a value of the type, alone or before one other value."""
    return any(type_name in pattern[0] for arity in (1, 2) for pattern in program.accepted.get((name, arity), ()))


def _values(raw: object, path: str) -> Iterator[Value]:
    """Yield the value; of a list, one for each of its elements."""
    if isinstance(raw, list):
        for index, each in enumerate(raw):
            yield _value(each, f"{path}[{index}]")
    else:
        yield _value(raw, path)


def _value(raw: object, path: str) -> Value:
    if isinstance(raw, bool):
        return Value(BOOLEAN, "true" if raw else "false")
    if isinstance(raw, int):
        return Value(INTEGER, id_from_json(INTEGER, str(raw), path))
    if isinstance(raw, str):
        return Value(STRING, id_from_json(STRING, raw, path))
    wanted = "text, a whole number, true or false, or a list of these"
    raise MalformedRequest(path, f"must be {wanted}: the policy asks for it")
