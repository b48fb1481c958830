"""The parts of AuthZEN requests: entities, properties, evaluations and pages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson
from rest_framework import serializers

from checks.asking.paging import LARGEST, PageRequest, continued
from checks.asking.question import Asked
from facts.wire import Fact, id_from_json, name_from_json
from policy.core.pagination import digest_of
from policy.endpoint import DecodedField, JsonType, Schema, decoded, many, nullable, ref, taken
from policy.errors import MalformedRequest
from policy.rules.program import Program
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- entities -----------------------------------------------------------------------------------------------------
# Requests consist of subjects, actions and resources, each with properties, and a context.
#
# {"subject": {"type": "user", "id": "ann", "properties": {"role": "admin"}}, "action": {"name": "read"}, "resource": …}
#
# Unknown members are ignored, as the specification requires.

Members = Mapping[str, object]
NONE: Members = {}

EXECUTE_ALL, DENY_ON_FIRST_DENY, PERMIT_ON_FIRST_PERMIT = SEMANTICS = (
    "execute_all",
    "deny_on_first_deny",
    "permit_on_first_permit",
)
MAX_EVALUATIONS = 10_000  # per request
_OBJECT: Schema = {"type": "object"}


class RequestPart(NamedTuple):
    """A subject, an action or a resource. The target of a search has a type, but neither an id nor properties."""

    asked: Asked
    properties: Members = NONE


ANY_ACTION = RequestPart(Asked(STRING))


class Options(NamedTuple):
    semantic: str = EXECUTE_ALL
    explain: bool = False


class PageAsked(NamedTuple):
    """The requested page of the results: a size, or the token of a page to continue."""

    limit: int | None = None
    token: str | None = None


# ---- decoding ------------------------------------------------------------------------------------------------------


def entity_from_json(raw: object, path: str) -> RequestPart:
    """Read a subject or a resource."""
    if not isinstance(raw, dict):
        raise _no_object(raw, path)
    type_name = name_from_json(raw.get("type"), f"{path}.type")
    asked = Asked(type_name, (id_from_json(type_name, raw.get("id"), f"{path}.id"),))
    return RequestPart(asked, _members(raw, path)) if "properties" in raw else RequestPart(asked)


def searched_from_json(raw: object, path: str) -> RequestPart:
    """Read the target of a search: it has a type; an id and properties are ignored."""
    return RequestPart(Asked(name_from_json(_object(raw, path).get("type"), f"{path}.type")))


def action_from_json(raw: object, path: str) -> RequestPart:
    if not isinstance(raw, dict):
        raise _no_object(raw, path)
    asked = Asked(STRING, (id_from_json(STRING, raw.get("name"), f"{path}.name"),))
    return RequestPart(asked, _members(raw, path)) if "properties" in raw else RequestPart(asked)


def options_from_json(raw: object, path: str) -> Options:
    found = _object(raw, path)
    semantic, explain = found.get("evaluations_semantic", EXECUTE_ALL), found.get("explain", False)
    if semantic not in SEMANTICS:
        raise MalformedRequest(f"{path}.evaluations_semantic", f"must be one of {', '.join(SEMANTICS)}")
    if not isinstance(explain, bool):
        raise MalformedRequest(f"{path}.explain", "must be true or false")
    return Options(str(semantic), explain)


def evaluations_from_json(raw: object, path: str) -> list[object]:
    """Return the evaluations as sent: an invalid one is not rejected here, but gets an error as its result."""
    if not isinstance(raw, list):
        raise MalformedRequest(path, "must be an array")
    if len(raw) > MAX_EVALUATIONS:
        raise MalformedRequest(path, f"must have at most {MAX_EVALUATIONS} elements")
    return raw


def page_from_json(raw: object, path: str) -> PageAsked:
    found = _object(raw, path)
    limit, token = found.get("limit"), found.get("token")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise MalformedRequest(f"{path}.limit", "must be a non-negative integer")
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


# ---- schemas -------------------------------------------------------------------------------------------------------

SHAPES: dict[str, Schema] = {
    "Entity": taken(
        "A subject or a resource, with its properties.",
        {"type": ref("Name"), "id": ref("Id")},
        {"properties": nullable(_OBJECT)},
    ),
    "Searched": taken("The subjects or resources to list: all of a type.", {"type": ref("Name")}),
    "NamedAction": taken("An action, with its properties.", {"name": ref("Id")}, {"properties": nullable(_OBJECT)}),
    "PartOfResults": taken(
        "The page of results to return.",
        {},
        {"limit": nullable({"type": "integer", "minimum": 0}), "token": nullable({"type": "string"})},
    ),
    "EvaluationOptions": taken(
        "Which evaluations to run, and whether to explain them.",
        {},
        {"evaluations_semantic": {"enum": list(SEMANTICS)}, "explain": {"type": "boolean"}},
    ),
}

ENTITY = JsonType(entity_from_json, ref("Entity"))
SEARCHED = JsonType(searched_from_json, ref("Searched"))
ACTION = JsonType(action_from_json, ref("NamedAction"))
CONTEXT = JsonType(_object, _OBJECT)
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


class QuestionParts(serializers.Serializer):
    """What a question is made of."""

    subject = DecodedField(ENTITY)
    action: DecodedField | None = DecodedField(ACTION)
    resource = DecodedField(ENTITY)
    around = ContextField()


def _options() -> DecodedField:
    return DecodedField(OPTIONS, optional=True, absent=Options())


class Evaluation(QuestionParts):
    """A check: may the subject perform the action on the resource?"""

    options = _options()


class Evaluations(serializers.Serializer):
    """Several evaluations. Members next to `evaluations` are the defaults of each."""

    evaluations = DecodedField(EVALUATIONS, optional=True)
    options = _options()


class Search(QuestionParts):
    """A search for one part of an evaluation, given the others."""

    page = DecodedField(PAGE, optional=True, help_text="Optional. Without it, all results are returned.")


class SubjectSearch(Search):
    """Lists the subjects that may perform the action on the resource."""

    subject = DecodedField(SEARCHED)


class ResourceSearch(Search):
    """Lists the resources on which the subject may perform the action."""

    resource = DecodedField(SEARCHED)


class ActionSearch(Search):
    """Lists the actions that the subject may perform on the resource."""

    action = None  # tells the framework to omit it


# ---- Properties as context facts, whose predicates are the properties' names --------------------------------------
# resource {"type": "record", "id": "r1", "properties": {"status": "archived"}}    status(record{"r1"}, "archived")
# subject  {"type": "user", "id": "bob", "properties": {"groups": ["a", "b"]}}     groups(user{"bob"}, "a"), …
# resource {"type": "record", "id": "r1", "properties": {"is_public": true}}       is_public(record{"r1"}), and
#                                                                                  is_public(record{"r1"}, true)
# action   {"name": "delete", "properties": {"soft": true}}                        soft("delete"), and
#                                                                                  soft("delete", true)
# context  {"ip": "10.0.0.1"}                                                      context("ip", "10.0.0.1")
#
# Facts that the policy doesn't use are ignored. A value that no fact can have, such as a fraction or an object, is an
# error if the policy uses that property: if it were ignored, a `not` could hold for lack of the fact, and grant access.

OF_CONTEXT = "context"  # the predicate of facts from the context


class RequestProperties(NamedTuple):
    """The parts of a request with their properties. The target of a search has none."""

    subject: RequestPart
    action: RequestPart
    resource: RequestPart
    context: Members

    @property
    def has_properties(self) -> bool:
        """Return whether there are properties or a context, which most requests do not have."""
        subject, action, resource, context = self
        return bool(subject.properties or action.properties or resource.properties or context)


def facts_of(known: RequestProperties, program: Program) -> tuple[Fact, ...]:
    """Return the distinct facts that the program uses."""
    if not known.has_properties:
        return ()
    facts = dict.fromkeys(_facts(known, program))
    return tuple([fact for fact in facts if program.accepts(fact.predicate, fact.signature.types)])


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
    """Return whether the program accepts facts of this name with a value of the type, alone or before one other."""
    return any(type_name in pattern[0] for arity in (1, 2) for pattern in program.accepted.get((name, arity), ()))


def _values(raw: object, path: str) -> Iterator[Value]:
    """Yield the value; for a list, each of its elements."""
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
    raise MalformedRequest(path, f"must be {wanted}, because the policy uses it")


# ---- The questions of a request: one evaluation; many, some of which may be invalid; or a search ------------------

INHERITED = ("subject", "action", "resource", "context")
Evaluated = RequestProperties | MalformedRequest  # a valid evaluation, or its error


def known_of(body: Mapping) -> RequestProperties:
    """Return the parts of a decoded body. A body without an action searches for actions, and so is about any."""
    return RequestProperties(body["subject"], body.get("action", ANY_ACTION), body["resource"], body["around"])


def evaluated(defaults: Mapping[str, object], raw: Sequence[object]) -> list[Evaluated]:
    """Read many evaluations. A member that is missing or null is taken from the defaults, as a whole."""
    return [_evaluated(defaults, each, f"evaluations[{index}]") for index, each in enumerate(raw)]


def _evaluated(defaults: Mapping[str, object], raw: object, path: str) -> Evaluated:
    if not isinstance(raw, dict):
        return MalformedRequest(path, "must be an object")
    try:
        given = {name: raw.get(name) for name in INHERITED}
        whole = {name: defaults.get(name) if part is None else part for name, part in given.items()}
        return known_of(decoded(QuestionParts, whole))
    except MalformedRequest as fault:
        return MalformedRequest(f"{path}.{fault.path}", fault.reason)


# ---- Pages of a search: size and token ----------------------------------------------------------------------------
# All pages are as of the moment at which the first one was answered, as long as its history is kept
# (`checks/asking/paging.py`).

_REFUSED = "is not a valid page token for this search; start again without `token`"
_CHANGED = "must be the limit that the search began with, or be left out"


def search_of(environment_id: int, path: str, body: dict[str, object]) -> str:
    """Return what identifies a search in tokens."""
    asked = {name: value for name, value in body.items() if name != "page"}
    try:
        return digest_of("search", environment_id, path, asked)
    except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
        raise MalformedRequest("", "the request body is nested too deeply") from None


def search_page_of(asked: PageAsked | None, of: str) -> PageRequest | None:
    """Return the requested page; None for all results."""
    if asked is None or (asked.token is None and asked.limit is None):
        return None
    limit = None if asked.limit is None else min(asked.limit, LARGEST)
    if asked.token is None:
        return PageRequest(LARGEST if limit is None else limit)
    wanted = continued(asked.token, of)
    if wanted is None:
        raise MalformedRequest("page.token", _REFUSED)
    if limit not in (None, wanted.size):
        raise MalformedRequest("page.limit", _CHANGED)
    return wanted
