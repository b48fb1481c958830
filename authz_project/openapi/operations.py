"""Every operation of the interface: what its endpoint says of it, with an example.

The examples stand in `examples.json`, by tag and in order. They tell one story: each answer follows from the requests
before it, and tests send them. An endpoint without an example is not described.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from authz_project.openapi.schemas import parameters_of, schema_of_body
from policy.endpoint import Doc, Endpoint, QueryParameter, Schema
from policy.scopes import Scope

TAGS = {  # name -> description
    "Policy": "The rules, in the Polar language. Publishing a policy is atomic, and stored facts are unchanged.",
    "Facts": "Roles, relations and attributes. Facts that are not used in policy are rejected.",
    "Checks": "Checks and lists, evaluated on committed data in one snapshot. An unknown action or type is not "
    "an error; access is denied.",
    "AuthZEN": "The OpenID Foundation's Authorization API 1.0. A property becomes a context fact whose predicate "
    "is the property's name; properties that are not used in policy are ignored. Requests are "
    "`application/json`.",
    "Local SQL": "Local SQL: the same checks as a SQL statement or condition for the tables that "
    "the data bindings name. Facts stored in this service are inlined as values.",
    "Deprecated": "Supported for existing clients. Each operation names its replacement.",
    "Service": "Liveness, readiness and test environments.",
}


@cache
def examples() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the examples of each tag, by method and path: `answer`, and where there are any, `query` and `body`."""
    read: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("examples.json").read_bytes())
    return read


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    endpoint: Endpoint
    example: Mapping[str, Any]

    @property
    def doc(self) -> Doc:
        return self.endpoint.docs[self.method]

    @property
    def body(self) -> Schema | None:
        """Return the schema of the body; None if there is none."""
        kind = self.doc.body or (self.endpoint.body if self.method == "POST" else None)
        return None if kind is None else schema_of_body(kind, self.endpoint.takes_moment)

    @property
    def parameters(self) -> Iterable[QueryParameter]:
        given = self.doc.parameters
        return given if isinstance(given, tuple) else parameters_of(given)

    @property
    def needs_key(self) -> bool:
        return self.endpoint.needs_key

    @property
    def scope(self) -> Scope | None:
        return self.endpoint.scope_of(self.method)

    @property
    def is_change(self) -> bool:
        return self.needs_key and self.scope in (Scope.FACTS, Scope.POLICY)

    @property
    def has_offset(self) -> bool:
        """Say whether the header `OsoOffset` gives the revision of the change or of the answer."""
        return self.is_change or self.method in self.endpoint.questions or self.doc.has_offset


@dataclass(frozen=True)
class OperationTag:
    name: str
    description: str
    operations: tuple[Operation, ...]


def tags_of(endpoints: Mapping[str, Endpoint]) -> tuple[OperationTag, ...]:
    """Return the operations of endpoints, which are given by their paths, in the order of the examples."""
    tags = []
    for name, description in TAGS.items():
        operations = []
        for key, example in examples()[name].items():
            method, path = key.split()
            operations.append(Operation(method, path, endpoints[path.removeprefix("/")], example))
        tags.append(OperationTag(name, description, tuple(operations)))
    return tuple(tags)


def operations_of(endpoints: Mapping[str, Endpoint]) -> tuple[Operation, ...]:
    return tuple(operation for tag in tags_of(endpoints) for operation in tag.operations)
