"""Operations -> the OpenAPI document."""

from functools import cache
from typing import Any

from authz_project.openapi.operation import Operation, Parameter
from authz_project.openapi.operations import GROUPS
from authz_project.openapi.shapes import SHAPES
from facts.context_header import HEADER as UNUSED_FACTS
from facts.context_header import LONGEST
from policy.json_schema import Schema, ref

Part = dict[str, Any]  # JSON

REFUSALS = {
    400: "The request is malformed, or a question is too hard; the message says where and why.",
    401: "The key is missing, unknown, expired or revoked.",
    403: "The key lacks the scope that this needs; the message names it.",
    413: "A limit is passed; the message names it.",
    429: "The key has sent more requests than `RATE_LIMIT` allows. Try again after `Retry-After` seconds.",
    503: "The database cannot be reached, or is too busy. Try again.",
}
AT_THE_DOOR = (401, 403, 429)
_ABOUT = (
    "An authorization service: it stores facts and a policy, and answers who may do what. Requests carry "
    "`Authorization: Bearer <key>`; a key may be good for some of it only, by its scopes. Bodies are JSON. Members of "
    "a request that are not described are ignored; answers have those that are described, and no others."
)


@cache
def document() -> Part:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Authorization service", "version": "0", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": group.name, "description": group.description} for group in GROUPS],
        "paths": _paths(),
        "components": {
            "schemas": SHAPES,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "headers": _HEADERS,
        },
    }


def _paths() -> Part:
    paths: dict[str, Part] = {}
    for group in GROUPS:
        for operation in group.operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(group.name, operation)
    return paths


def _operation(tag: str, operation: Operation) -> Part:
    described: Part = {"tags": [tag], "operationId": _name(operation), "summary": operation.summary}
    if description := _description(operation):
        described["description"] = description
    if operation.parameters:
        described["parameters"] = [_parameter(each, operation.example.query) for each in operation.parameters]
    if operation.body is not None:
        described["requestBody"] = _request_body(operation)
    described["security"] = _security(operation)
    if operation.deprecated_for:
        described["deprecated"] = True
    return described | {"responses": _responses(operation)}


def _security(operation: Operation) -> list[Part]:
    if not operation.needs_key:
        return []
    return [{"key": [] if operation.scope is None else [str(operation.scope)]}]


def _request_body(operation: Operation) -> Part:
    content = {"schema": operation.body, "example": operation.example.body}
    return {"required": not operation.is_body_optional, "content": {"application/json": content}}


def _name(operation: Operation) -> str:
    words = operation.path.strip("/").replace(".", "_").split("/")
    return "_".join([operation.method.lower(), *words])


def _description(operation: Operation) -> str:
    instead = f"Use `{operation.deprecated_for}` instead." if operation.deprecated_for else ""
    return " ".join(filter(None, [operation.description, instead]))


def _parameter(parameter: Parameter, example: dict[str, str]) -> Part:
    described = {"name": parameter.name, "in": "query", "description": parameter.description}
    shown = {"example": example[parameter.name]} if parameter.name in example else {}
    return described | {"schema": parameter.schema} | shown


# ---- answers --------------------------------------------------------------------------------------------------


def statuses(operation: Operation) -> dict[int, str]:
    """Return everything but success that the operation may answer with."""
    expected = [401, 429, 503] if operation.needs_key else []
    if operation.needs_key and operation.scope is not None:
        expected.append(403)
    if operation.body is not None:
        expected += [400, 413]
    return dict(sorted(({status: REFUSALS[status] for status in expected} | operation.statuses).items()))


def _responses(operation: Operation) -> Part:
    success = _response(
        "Success.", operation.answer, operation.is_change or operation.is_dated, has_context=operation.has_context
    )
    if operation.example.answer:
        success["content"]["application/json"]["example"] = operation.example.answer
    responses = {"200": success}
    for status, description in statuses(operation).items():
        if status == 202:
            responses["202"] = _response(description, operation.answer, operation.is_change)
        else:
            responses[str(status)] = _response(description, _refusal(operation, status), retry=status in (429, 503))
    return responses


def _refusal(operation: Operation, status: int) -> Schema:
    """Return the body of an error: always `Message` where the key is refused; else an operation may have its own."""
    if status in operation.refused_bodies:
        return ref(operation.refused_bodies[status])
    if operation.refused_body == "Message" or status in AT_THE_DOOR:
        return ref("Message")
    return ref(operation.refused_body) if status == 400 else {"anyOf": [ref(operation.refused_body), ref("Message")]}


def _response(
    description: str, schema: Schema, is_dated: bool = False, retry: bool = False, has_context: bool = False
) -> Part:
    given = {"OsoOffset": is_dated, "Retry-After": retry, UNUSED_FACTS: has_context}
    names = ["X-Request-ID", *(name for name, is_given in given.items() if is_given)]
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}


_HEADERS = {
    "X-Request-ID": {
        "description": "The request's, or a new one. It is in the log.",
        "required": True,
        "schema": {"type": "string"},
    },
    "OsoOffset": {
        "description": "The revision: of a change, its own; of an answer, the one that is answered. It grows with "
        "each committed change of the environment.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    UNUSED_FACTS: {
        "description": "There, and only there, where context facts are not used in policy: which, and what may have "
        f"been meant. Printable ASCII, at most {LONGEST} characters.",
        "schema": {"type": "string", "maxLength": LONGEST},
    },
    "Retry-After": {"description": "Seconds.", "schema": {"type": "string", "pattern": "^[0-9]+$"}},
}
