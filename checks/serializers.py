"""Decode the request bodies of checks and lists, and describe them by JSON schemas."""

from functools import cached_property, partial
from typing import Any

from rest_framework import serializers

from checks.asking.question import MAX_CALLS, MAX_VARIABLES, SMALLEST, Asked, Check, NamedCall
from checks.explain.cases import ANY
from facts import wire
from facts.accept import HEADER
from facts.views import LASTING_FACTS, NAME, VALUES
from facts.wire import lasting_from_json
from policy.endpoint import DecodedField, JsonType, Schema, decoded, many, nullable, ref, taken
from policy.errors import MalformedRequest
from policy.moments import AsOf, as_of_from_text
from policy.values import LAST_REVISION, PRIMITIVES, STRING

MAX_CHECKS = 10_000  # per request
MOMENT = ("as_of", "policy_version")  # members of a body
LAST_VERSION = 2**31 - 1  # the largest version number that databases can store

# The schemas that `ref` names, besides those for bodies about facts.
SHAPES: dict[str, Schema] = {
    "Call": {
        "type": "array",
        "description": "A predicate and the names of its variables.",
        "prefixItems": [ref("Name"), many(ref("Name"), maxItems=MAX_VARIABLES)],
        "minItems": 2,
        "maxItems": 2,
        "items": False,
    },
    "Check": taken(
        "A check: may the actor perform the action on the resource?",
        {"actor": ref("Value"), "action": ref("Id"), "resource": ref("Value")},
    ),
    "Constraint": taken(
        "The type of a variable and its possible ids; null allows any id.",
        {"type": ref("Name")},
        {"ids": nullable(many(ref("Id")))},
    ),
}

# ---- members -------------------------------------------------------------------------------------------------------


def reference_from_json(raw: tuple[object, object], path: str) -> Asked:
    """Read one value from two members of the body, `<name>_type` and `<name>_id`."""
    type_name = wire.name_from_json(raw[0], f"{path}_type")
    return Asked(type_name, (wire.id_from_json(type_name, raw[1], f"{path}_id"),))


def any_reference_from_json(raw: tuple[object, object], path: str) -> Asked:
    if raw[1] != "*":
        return reference_from_json(raw, path)
    type_name = wire.name_from_json(raw[0], f"{path}_type")
    return any_value(type_name, f"{path}_type")


def action_from_json(raw: object, path: str) -> Asked:
    return Asked(STRING, (wire.id_from_json(STRING, raw, path),))


def any_action_from_json(raw: object, path: str) -> Asked:
    return any_value(STRING, path) if raw == "*" else action_from_json(raw, path)


def any_value(type_name: str, path: str) -> Asked:
    """Return a value that no fact and no rule mentions: what holds for it holds for every such value."""
    if type_name in PRIMITIVES and type_name != STRING:
        raise MalformedRequest(path, f"access for every {type_name} cannot be checked; give an id")
    return Asked(type_name, (ANY,))


def asked_from_json(raw: object, path: str) -> Asked:
    """Read one value from a JSON object."""
    return Asked.of(wire.value_from_json(raw, path))


def checks_from_json(raw: object, path: str) -> list[Check]:
    """Read a list of checks, each with an actor, an action and a resource."""
    checks = wire.list_from_json(raw, path)
    if len(checks) > MAX_CHECKS:
        raise MalformedRequest(path, f"must have at most {MAX_CHECKS} elements")
    return [_plain_check(check) or _check_from_json(check, f"{path}[{index}]") for index, check in enumerate(checks)]


def _plain_check(raw: Any) -> Check | None:
    """Read a check on the fast path; return None if it needs a closer look (see `wire.plain_fact`)."""
    try:
        actor, action, resource = raw["actor"], raw["action"], raw["resource"]
        actor_type, resource_type = actor["type"], resource["type"]
        ids = (actor["id"], action, resource["id"])
        if not (
            wire.is_plain_type(actor_type) and wire.is_plain_type(resource_type) and wire.is_plain("".join(ids), ids)
        ):
            return None
    except (KeyError, TypeError):
        return None
    return Asked(actor_type, ids[:1]), Asked(STRING, ids[1:2]), Asked(resource_type, ids[2:])


def _check_from_json(raw: object, path: str) -> Check:
    if not isinstance(raw, dict):
        raise MalformedRequest(path, 'must be an object with "actor", "action" and "resource"')
    actor = asked_from_json(raw.get("actor"), f"{path}.actor")
    action = action_from_json(raw.get("action"), f"{path}.action")
    return actor, action, asked_from_json(raw.get("resource"), f"{path}.resource")


def flag_from_json(raw: object, path: str) -> bool:
    if not isinstance(raw, bool):
        raise MalformedRequest(path, "must be true or false")
    return raw


def size_from_json(raw: object, path: str) -> int:
    """Read the size of a page."""
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise MalformedRequest(path, f"must be an integer of at least {SMALLEST:,}")
    if raw < SMALLEST:
        raise MalformedRequest(path, f"must be at least {SMALLEST:,}")
    return raw


def as_of_from_json(raw: object, path: str) -> AsOf:
    """Read a revision's number, or a time."""
    if isinstance(raw, str):
        return as_of_from_text(raw, path)
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= LAST_REVISION:
        raise MalformedRequest(path, "must be a revision number or a time such as 2026-11-03T14:02:11Z")
    return raw


def version_from_json(raw: object, path: str) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 < raw <= LAST_VERSION:
        raise MalformedRequest(path, "must be a policy version number")
    return raw


def any_json(raw: object, path: str) -> object:
    """Return the value unchecked; it is decided later whether the page size or the page token counts."""
    return raw


def call_from_json(raw: object, path: str) -> NamedCall:
    if not isinstance(raw, list) or len(raw) != 2:
        raise MalformedRequest(path, "must be an array of two elements, a predicate and its variables")
    predicate, variables = raw
    if not isinstance(variables, list):
        raise MalformedRequest(f"{path}[1]", "must be an array of variables")
    if len(variables) > MAX_VARIABLES:
        raise MalformedRequest(f"{path}[1]", f"must have at most {MAX_VARIABLES} elements")
    names = [wire.new_name_from_json(name, f"{path}[1][{index}]") for index, name in enumerate(variables)]
    return wire.name_from_json(predicate, f"{path}[0]"), tuple(names)


def calls_from_json(raw: object, path: str) -> tuple[NamedCall, ...]:
    if not isinstance(raw, list):
        raise MalformedRequest(path, "must be an array of calls")
    if len(raw) > MAX_CALLS:
        raise MalformedRequest(path, f"must have at most {MAX_CALLS} elements")
    return tuple([call_from_json(call, f"{path}[{index}]") for index, call in enumerate(raw)])


def constraints_from_json(raw: object, path: str) -> dict[str, object]:
    """Return the object as sent. Constraints of variables in the query are decoded later, all others are ignored."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, "must be an object from variables to types and ids")
    return raw


_ID = ref("Id")
_ID_OR_STAR: Schema = {"anyOf": [_ID, {"const": "*"}]}

REFERENCE = JsonType(reference_from_json, _ID)
ANY_REFERENCE = JsonType(any_reference_from_json, _ID_OR_STAR)
ACTION = JsonType(action_from_json, _ID)
ANY_ACTION = JsonType(any_action_from_json, _ID_OR_STAR)
CONTEXT_FACTS = JsonType(lasting_from_json, LASTING_FACTS.schema)
FACT_PATTERN = JsonType(
    wire.asked_pattern_from_json,
    {"allOf": [ref("FactPattern"), {"properties": {"args": {"items": {"properties": {"id": nullable(ref("Id"))}}}}}]},
)
CALL = JsonType(call_from_json, ref("Call"))
CALLS = JsonType(calls_from_json, many(ref("Call"), maxItems=MAX_CALLS))
CONSTRAINTS = JsonType(constraints_from_json, {"type": "object", "additionalProperties": ref("Constraint")})
CHECKS = JsonType(checks_from_json, many(ref("Check"), maxItems=MAX_CHECKS))
TEXT = JsonType(partial(wire.id_from_json, STRING), ref("Id"))
FLAG = JsonType(flag_from_json, {"type": "boolean"})
PAGE_SIZE = JsonType(any_json, {"type": "integer", "minimum": SMALLEST})
PAGE_TOKEN = JsonType(any_json, {"type": "string"})
AS_OF = JsonType(
    as_of_from_json, {"oneOf": [{"type": "integer", "minimum": 0, "maximum": LAST_REVISION}, {"type": "string"}]}
)
VERSION = JsonType(version_from_json, {"type": "integer", "minimum": 1, "maximum": LAST_VERSION})


class ReferenceField(DecodedField):
    """Read from two members, `<name>_type` and `<name>_id`; the schema is that of the id."""

    def __init__(self, kind: JsonType = REFERENCE):
        super().__init__(kind)

    def get_value(self, body):
        type_name, id_name = self._names
        return body.get(type_name), body.get(id_name)

    @cached_property
    def _names(self) -> tuple[str, str]:
        return f"{self.field_name}_type", f"{self.field_name}_id"

    @property
    def members(self) -> dict[str, Schema]:
        return dict(zip(self._names, (NAME.schema, self.schema)))


def context_field() -> DecodedField:
    return DecodedField(
        CONTEXT_FACTS,
        optional=True,
        absent=(),
        help_text="Treated as stored facts for this request only. Facts that are not used in policy are ignored; "
        f"`{HEADER}` names them.",
    )


# ---- bodies --------------------------------------------------------------------------------------------------------


class AuthorizeQuery(serializers.Serializer):
    """A check: may the actor perform the action on the resource?"""

    actor = ReferenceField()
    action = DecodedField(ACTION)
    resource = ReferenceField()
    context_facts = context_field()


class ActionsQuery(serializers.Serializer):
    """Lists the actions that the actor may perform on the resource."""

    actor = ReferenceField()
    resource = ReferenceField()
    context_facts = context_field()


class ListQuery(serializers.Serializer):
    """Lists the resources of a type on which the actor may perform the action."""

    actor = ReferenceField()
    action = DecodedField(ACTION)
    resource_type = DecodedField(NAME)
    context_facts = context_field()
    page_token = DecodedField(PAGE_TOKEN, optional=True, help_text="The `next_page_token` of the previous page.")
    page_size = DecodedField(
        PAGE_SIZE,
        optional=True,
        help_text="Required for the first page, ignored for the following pages. Optional for clients that send "
        f"`X-OsoApiVersion` (default: {SMALLEST}).",
    )


class AuthorizeResourcesQuery(serializers.Serializer):
    """Filters the resources on which the actor may perform the action."""

    actor = ReferenceField()
    action = DecodedField(ACTION)
    resources = DecodedField(VALUES)
    context_facts = context_field()


class AuthorizeEachQuery(serializers.Serializer):
    """A list of checks."""

    checks = DecodedField(CHECKS)
    context_facts = context_field()


class EvaluateQuery(serializers.Serializer):
    """A query whose calls must all hold. A variable has the same value wherever it occurs."""

    predicate = DecodedField(CALL)
    constraints = DecodedField(
        CONSTRAINTS, help_text="The constraint of every variable. Constraints of other names are ignored."
    )
    calls = DecodedField(CALLS, optional=True, absent=())
    context_facts = context_field()


class ExplainQuery(serializers.Serializer):
    """The check to explain. `*` explains a `*` in a result: it stands for any value."""

    actor = ReferenceField(ANY_REFERENCE)
    action = DecodedField(ANY_ACTION)
    resource = ReferenceField(ANY_REFERENCE)
    context_facts = context_field()
    would_allow = DecodedField(
        FLAG,
        optional=True,
        absent=False,
        help_text="If access is denied, also search for the smallest changes of facts that would allow it, for up to "
        "4 seconds. Needs `authz-project[analysis]`. Not supported with `as_of` and `policy_version`.",
    )


class MomentQuery(serializers.Serializer):
    """An earlier revision or another policy version to use."""

    as_of = DecodedField(
        AS_OF,
        optional=True,
        help_text="A revision number, or an RFC 3339 time, which selects the last revision committed by then. "
        "Facts and policy are those of that revision.",
    )
    policy_version = DecodedField(VERSION, optional=True, help_text="Use this policy version, with or without `as_of`.")


class FactQuery(serializers.Serializer):
    fact = DecodedField(FACT_PATTERN)
    context_facts = context_field()


class Expectation(serializers.Serializer):
    request_id = DecodedField(NAME)
    expected = DecodedField(FLAG)


class AgentEvent(serializers.Serializer):
    """An event in a session of an agent. All other members, such as `tool_name` or `message`, are stored as sent."""

    agent_id = DecodedField(TEXT)
    session_id = DecodedField(TEXT)
    users = DecodedField(VALUES, optional=True, absent=(), help_text="The users on whose behalf the agent acts.")


def actions_queries_from_json(raw: object, path: str) -> list[dict]:
    if not isinstance(raw, list):
        raise MalformedRequest(path, "the request body must be an array of queries")
    return [decoded(ActionsQuery, body, f"{path}[{index}]") for index, body in enumerate(raw)]


ACTIONS_QUERIES = JsonType(actions_queries_from_json, many({"allOf": [ref("ActionsQuery"), ref("Moment")]}))
