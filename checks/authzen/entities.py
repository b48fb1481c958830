"""What requests are made of: subjects, actions and resources, each with properties, and a context.

{"subject": {"type": "user", "id": "ann", "properties": {"role": "admin"}}, "action": {"name": "read"}, "resource": …}

Unknown members are ignored, as the specification asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rest_framework import serializers

from checks.asking.question import Asked
from facts.wire import id_from_json, name_from_json
from policy.errors import MalformedRequest
from policy.json_schema import Schema, many, nullable, ref, taken
from policy.serializers import DecodedField, JsonType
from policy.values import STRING

Members = Mapping[str, object]
NONE: Members = {}

EXECUTE_ALL, DENY_ON_FIRST_DENY, PERMIT_ON_FIRST_PERMIT = SEMANTICS = (
    "execute_all",
    "deny_on_first_deny",
    "permit_on_first_permit",
)
MAX_EVALUATIONS = 10_000  # of one request
_OBJECT: Schema = {"type": "object"}


class Part(NamedTuple):
    """A subject, an action or a resource. One that is searched for has a type, but neither an id nor properties."""

    asked: Asked
    properties: Members = NONE


ANY_ACTION = Part(Asked(STRING))


class Options(NamedTuple):
    semantic: str = EXECUTE_ALL
    explain: bool = False


class PageAsked(NamedTuple):
    """The part of the results that is wanted: so many, or what a token continues."""

    limit: int | None = None
    token: str | None = None


# ---- out of JSON ---------------------------------------------------------------------------------------------------


def entity_from_json(raw: object, path: str) -> Part:
    """Read a subject or a resource."""
    if not isinstance(raw, dict):
        raise _no_object(raw, path)
    type_name = name_from_json(raw.get("type"), f"{path}.type")
    asked = Asked(type_name, (id_from_json(type_name, raw.get("id"), f"{path}.id"),))
    return Part(asked, _members(raw, path)) if "properties" in raw else Part(asked)


def searched_from_json(raw: object, path: str) -> Part:
    """Read what is searched for: it has a type; an id is ignored, and so are properties."""
    return Part(Asked(name_from_json(_object(raw, path).get("type"), f"{path}.type")))


def action_from_json(raw: object, path: str) -> Part:
    if not isinstance(raw, dict):
        raise _no_object(raw, path)
    asked = Asked(STRING, (id_from_json(STRING, raw.get("name"), f"{path}.name"),))
    return Part(asked, _members(raw, path)) if "properties" in raw else Part(asked)


def context_from_json(raw: object, path: str) -> Members:
    return _object(raw, path)


def options_from_json(raw: object, path: str) -> Options:
    found = _object(raw, path)
    semantic, explain = found.get("evaluations_semantic", EXECUTE_ALL), found.get("explain", False)
    if semantic not in SEMANTICS:
        raise MalformedRequest(f"{path}.evaluations_semantic", f"must be one of {', '.join(SEMANTICS)}")
    if not isinstance(explain, bool):
        raise MalformedRequest(f"{path}.explain", "must be true or false")
    return Options(str(semantic), explain)


def evaluations_from_json(raw: object, path: str) -> list[object]:
    """Return the evaluations as sent: one that is invalid is not refused here, but answered in its place."""
    if not isinstance(raw, list):
        raise MalformedRequest(path, "must be an array")
    if len(raw) > MAX_EVALUATIONS:
        raise MalformedRequest(path, f"must have at most {MAX_EVALUATIONS} elements")
    return raw


def page_from_json(raw: object, path: str) -> PageAsked:
    found = _object(raw, path)
    limit, token = found.get("limit"), found.get("token")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise MalformedRequest(f"{path}.limit", "must be a whole number, and not negative")
    if token is not None and not isinstance(token, str):
        raise MalformedRequest(f"{path}.token", "must be a string")
    return PageAsked(limit, token or None)


def _object(raw: object, path: str) -> dict[str, object]:
    if not isinstance(raw, dict):
        raise _no_object(raw, path)
    return raw


def _no_object(raw: object, path: str) -> MalformedRequest:
    return MalformedRequest(path, "is missing" if raw is None else "must be an object")


def _members(found: dict[str, object], path: str) -> Members:
    raw = found.get("properties")
    return NONE if raw is None else _object(raw, f"{path}.properties")


# ---- how bodies are described --------------------------------------------------------------------------------------

SHAPES: dict[str, Schema] = {
    "Entity": taken(
        "A subject or a resource, with what is known of it.",
        {"type": ref("Name"), "id": ref("Id")},
        {"properties": nullable(_OBJECT)},
    ),
    "Searched": taken("What is searched for: any of a type.", {"type": ref("Name")}),
    "NamedAction": taken(
        "An action, with what is known of it.", {"name": ref("Id")}, {"properties": nullable(_OBJECT)}
    ),
    "PartOfResults": taken(
        "A part of the results.",
        {},
        {"limit": nullable({"type": "integer", "minimum": 0}), "token": nullable({"type": "string"})},
    ),
    "EvaluationOptions": taken(
        "How many evaluations are made, and whether each is explained.",
        {},
        {"evaluations_semantic": {"enum": list(SEMANTICS)}, "explain": {"type": "boolean"}},
    ),
}

ENTITY = JsonType(entity_from_json, ref("Entity"))
SEARCHED = JsonType(searched_from_json, ref("Searched"))
ACTION = JsonType(action_from_json, ref("NamedAction"))
CONTEXT = JsonType(context_from_json, _OBJECT)
OPTIONS = JsonType(options_from_json, ref("EvaluationOptions"))
EVALUATIONS = JsonType(evaluations_from_json, many({}, maxItems=MAX_EVALUATIONS))
PAGE = JsonType(page_from_json, ref("PartOfResults"))


class ContextField(DecodedField):
    """The member `context`, which is the name of something else in the framework's serializers."""

    path = "context"

    def __init__(self) -> None:
        super().__init__(CONTEXT, optional=True, absent=NONE)

    def get_value(self, body):
        return body.get(self.path)

    @property
    def members(self) -> dict[str, Schema]:
        return {self.path: self.schema}


class Parts(serializers.Serializer):
    """What a question is made of."""

    subject = DecodedField(ENTITY)
    action: DecodedField | None = DecodedField(ACTION)
    resource = DecodedField(ENTITY)
    around = ContextField()


def _options() -> DecodedField:
    return DecodedField(OPTIONS, optional=True, absent=Options())


class Evaluation(Parts):
    """May the subject do the action on the resource?"""

    options = _options()


class Evaluations(serializers.Serializer):
    """Many evaluations. What one leaves out, it has from the members beside them."""

    evaluations = DecodedField(EVALUATIONS, optional=True)
    options = _options()


class Search(Parts):
    """One of the parts is searched for, and the others are given."""

    page = DecodedField(PAGE, optional=True, help_text="Without it, all results are answered.")


class SubjectSearch(Search):
    """Who may do the action on the resource?"""

    subject = DecodedField(SEARCHED)


class ResourceSearch(Search):
    """On which resources may the subject do the action?"""

    resource = DecodedField(SEARCHED)


class ActionSearch(Search):
    """What may the subject do on the resource?"""

    action = None  # by which the framework leaves it out
