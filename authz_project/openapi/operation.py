"""What is said about one endpoint."""

from dataclasses import dataclass, field

from policy.json_schema import Schema
from policy.scopes import Scope


@dataclass(frozen=True)
class Parameter:
    """Of the query string."""

    name: str
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True)
class Example:
    """A request, and what the service answers when those before it were sent."""

    answer: object
    body: object = None
    query: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    answer: Schema
    example: Example
    description: str = ""
    body: Schema | None = None
    is_body_optional: bool = False
    parameters: tuple[Parameter, ...] = ()
    statuses: dict[int, str] = field(default_factory=dict)  # besides those that follow from the rest
    is_change: bool = False  # one that an `OsoOffset` is given for
    is_dated: bool = False  # an answer that says which revision it is of, likewise
    has_context: bool = False  # facts for this question only
    needs_key: bool = True
    scope: Scope | None = Scope.READ  # that the key needs; None is for any key
    refused_body: str = "Message"
    refused_bodies: dict[int, str] = field(default_factory=dict)  # of statuses that have another one
    deprecated_for: str = ""  # what to use instead


@dataclass(frozen=True)
class Group:
    name: str
    description: str
    operations: tuple[Operation, ...]
