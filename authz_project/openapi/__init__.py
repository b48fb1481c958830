"""The OpenAPI document and the page at /api/docs, generated from the endpoints' descriptions (`docs`).

`schemas` has the JSON schemas of requests and responses, `examples.json` an example of each operation.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from authz_project.environments import facts_text
from authz_project.openapi.schemas import SHAPES, parameters_of, schema_of_body, shape_text
from facts.accept import HEADER as UNUSED_FACTS
from facts.accept import LONGEST, WARNING
from policy.active import Scope
from policy.endpoint import Doc, Endpoint, QueryParameter, Request, Response, Schema, ref
from policy.templatetags.sentences import CODE, MARK, with_code

# ---- operations of the API: the endpoint's description, with an example -------------------------------------------
# The examples are in `examples.json`, by tag and in order. They form one sequence: each response follows from the
# requests before it, as tests verify by sending them. An endpoint without an example is not documented.

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
    """Return the examples of each tag, by method and path: `answer`, and optionally `query` and `body`."""
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
        """Return the schema of the request body; None if there is none."""
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
        """Return whether the response header `OsoOffset` gives the revision of the change or of the result."""
        return self.is_change or self.method in self.endpoint.questions or self.doc.has_offset


@dataclass(frozen=True)
class OperationTag:
    name: str
    description: str
    operations: tuple[Operation, ...]


def tags_of(endpoints: Mapping[str, Endpoint]) -> tuple[OperationTag, ...]:
    """Return the operations of endpoints, a mapping by path, in the order of the examples."""
    tags = []
    for name, description in TAGS.items():
        operations = []
        for key, example in examples()[name].items():
            method, path = key.split()
            operations.append(Operation(method, path, endpoints[path.removeprefix("/")], example))
        tags.append(OperationTag(name, description, tuple(operations)))
    return tuple(tags)


# ---- operations -> OpenAPI document -------------------------------------------------------------------------------

JSONObject = dict[str, Any]

REFUSALS = {
    400: "The request is malformed, or the query is too complex. `message` says where and why.",
    401: "The API key is missing, unknown, expired or revoked.",
    403: "The API key lacks the scope that `message` names.",
    413: "A limit is exceeded; `message` names it.",
    429: "The API key has exceeded `RATE_LIMIT`. Try again after `Retry-After` seconds.",
    503: "The database is unreachable or overloaded. Try again.",
}
AT_THE_DOOR = (401, 403, 429)
_TITLE = "Authorization service"
_ABOUT = (
    "Stores facts and a policy, and decides who is allowed to do what. Requests carry `Authorization: Bearer "
    "<key>`; the scopes of a key limit what it can do. Bodies are JSON. Unknown members of a request are ignored; "
    "responses have exactly the members described here."
)


def document_of(endpoints: Mapping[str, Endpoint]) -> JSONObject:
    """Return the OpenAPI document of endpoints, a mapping by path."""
    tags = tags_of(endpoints)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": "0", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": tag.name, "description": tag.description} for tag in tags],
        "paths": _paths(tags),
        "components": {
            "schemas": SHAPES,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "headers": _HEADERS,
        },
    }


def _paths(tags: tuple[OperationTag, ...]) -> JSONObject:
    paths: dict[str, JSONObject] = {}
    for tag in tags:
        for operation in tag.operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(tag.name, operation)
    return paths


def _operation(tag: str, operation: Operation) -> JSONObject:
    described: JSONObject = {"tags": [tag], "operationId": _name(operation), "summary": operation.doc.summary}
    if description := _description(operation):
        described["description"] = description
    if parameters := operation.parameters:
        example = operation.example.get("query", {})
        described["parameters"] = [_parameter(parameter, example) for parameter in parameters]
    if operation.body is not None:
        described["requestBody"] = _request_body(operation)
    described["security"] = _security(operation)
    if operation.doc.deprecated_for:
        described["deprecated"] = True
    return described | {"responses": _responses(operation)}


def _security(operation: Operation) -> list[JSONObject]:
    if not operation.needs_key:
        return []
    return [{"key": [] if operation.scope is None else [str(operation.scope)]}]


def _request_body(operation: Operation) -> JSONObject:
    content = {"schema": operation.body, "example": operation.example["body"]}
    return {"required": not operation.doc.is_body_optional, "content": {"application/json": content}}


def _name(operation: Operation) -> str:
    words = operation.path.strip("/").replace(".", "_").split("/")
    return "_".join([operation.method.lower(), *words])


def _description(operation: Operation) -> str:
    instead = f"Use `{operation.doc.deprecated_for}` instead." if operation.doc.deprecated_for else ""
    return " ".join(filter(None, [operation.doc.description, instead]))


def _parameter(parameter: QueryParameter, example: dict[str, str]) -> JSONObject:
    described = {"name": parameter.name, "in": "query", "description": parameter.description}
    shown = {"example": example[parameter.name]} if parameter.name in example else {}
    return described | {"schema": parameter.schema} | shown


# ---- responses ------------------------------------------------------------------------------------------------


def statuses(operation: Operation) -> dict[int, str]:
    """Return all error statuses of the operation, with descriptions."""
    expected = [401, 429, 503] if operation.needs_key else []
    if operation.needs_key and operation.scope is not None:
        expected.append(403)
    if operation.body is not None:
        expected += [400, 413]
    return dict(sorted(({status: REFUSALS[status] for status in expected} | {**operation.doc.statuses}).items()))


def _responses(operation: Operation) -> JSONObject:
    answer, has_context = operation.doc.answer, operation.endpoint.takes_context
    stores = operation.method == "POST" and answer in (ref("ChangeMade"), ref("StoredFact"))
    success = _response("Success.", answer, operation.has_offset, has_context=has_context, warns=has_context or stores)
    if operation.example["answer"]:
        success["content"]["application/json"]["example"] = operation.example["answer"]
    responses = {"200": success}
    for status, description in statuses(operation).items():
        if status == 202:
            responses["202"] = _response(description, answer, operation.is_change)
        else:
            responses[str(status)] = _response(description, _refusal(operation, status), retry=status in (429, 503))
    return responses


def _refusal(operation: Operation, status: int) -> Schema:
    """Return the schema of an error: `Message` if the key is refused; else, operations may have their own."""
    doc = operation.doc
    if status in doc.refused_bodies:
        return ref(doc.refused_bodies[status])
    if doc.refused_body == "Message" or status in AT_THE_DOOR:
        return ref("Message")
    return ref(doc.refused_body) if status == 400 else {"anyOf": [ref(doc.refused_body), ref("Message")]}


def _response(
    description: str,
    schema: Schema,
    has_offset: bool = False,
    retry: bool = False,
    has_context: bool = False,
    warns: bool = False,
) -> JSONObject:
    given = {"OsoOffset": has_offset, "Retry-After": retry, UNUSED_FACTS: has_context, WARNING: warns}
    names = ["X-Request-ID", *(name for name, is_given in given.items() if is_given)]
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}


_HEADERS = {
    "X-Request-ID": {
        "description": "The `X-Request-ID` of the request, or a generated one. It is in the log.",
        "required": True,
        "schema": {"type": "string"},
    },
    "OsoOffset": {
        "description": "The revision number: the new revision of a change, or the revision a response is based "
        "on. It grows with each committed change of the environment.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
    UNUSED_FACTS: {
        "description": "Only present if context facts are not used in policy. Names them, with suggestions, in "
        f"printable ASCII of at most {LONGEST:,} characters.",
        "schema": {"type": "string", "maxLength": LONGEST},
    },
    WARNING: {
        "description": "Only present if the policy does not have a type, action, role or relation of the request. "
        f"Names it, with a suggestion, in printable ASCII of at most {LONGEST:,} characters.",
        "schema": {"type": "string", "maxLength": LONGEST},
    },
    "Retry-After": {"description": "Seconds.", "schema": {"type": "string", "pattern": "^[0-9]+$"}},
}


# ---- views --------------------------------------------------------------------------------------------------------
# The document for programs, and the page for people. Neither requires a key or loads external resources. Both are
# rendered from the table of all endpoints at the first request.

_NAME, _LINK = re.compile(rf"\b({'|'.join(SHAPES)})\b"), r'<a href="#shape-\1">\1</a>'


class Described(Endpoint):
    needs_key = False

    def __init__(self, endpoints: Mapping[str, Endpoint]):
        self._endpoints = endpoints


class OpenAPIDocument(Described):
    docs: ClassVar = {
        "GET": Doc(
            "Get the OpenAPI document", {"type": "object"}, "In OpenAPI 3.1 format. See `/api/docs` for the reference."
        )
    }

    @cached_property
    def _document(self) -> JSONObject:
        return document_of(self._endpoints)

    def get(self, request: Request) -> Response:
        return Response(self._document)


class OpenAPIPage(Described):
    @cached_property
    def _contents(self) -> dict[str, object]:
        return _contents(tags_of(self._endpoints))

    def get(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        shown = self._contents | {"nonce": nonce, "facts": facts_text()}
        page = render_to_string("authz_project/openapi/page.html", shown)
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}
        return Response(page.encode(), headers=headers)


def _contents(tags: tuple[OperationTag, ...]) -> dict[str, object]:
    return {
        "title": _TITLE,
        "about": with_code(_ABOUT),
        "tags": [
            {"name": tag.name, "description": with_code(tag.description), "operations": [*map(_shown, tag.operations)]}
            for tag in tags
        ],
        "shapes": [
            {"name": name, "text": _linked(shape_text(schema)), "description": with_code(schema.get("description", ""))}
            for name, schema in SHAPES.items()
        ],
    }


def _shown(operation: Operation) -> dict[str, object]:
    example = operation.example
    return {
        "operation": operation,
        "anchor": f"{operation.method}-{operation.path.strip('/').replace('/', '-')}".lower(),
        "summary": operation.doc.summary,
        "description": with_code(operation.doc.description),
        "parameters": [(each.name, with_code(each.description)) for each in operation.parameters],
        "takes": _shape(operation.body) if operation.body is not None else "",
        "answers": _shape(operation.doc.answer),
        "statuses": {200: "Success.", **statuses(operation)},
        "query": "&".join(f"{name}={text}" for name, text in example.get("query", {}).items()),
        "sent": _json(example["body"]) if "body" in example else "",
        "answered": _json(example["answer"]) if example["answer"] else "",
    }


def _shape(schema: Schema) -> SafeString:
    """Return the text of a schema, with a mere reference expanded."""
    name = str(schema.get("$ref", "")).rsplit("/", 1)[-1]
    return _linked(shape_text(SHAPES.get(name, schema)))


def _linked(text: str) -> SafeString:
    """Turn names of schemas into links, and mark up remarks."""
    lines = (escape(line).partition("  // ") for line in text.split("\n"))
    return mark_safe("\n".join(_NAME.sub(_LINK, line) + _remark(remark) for line, _, remark in lines))  # noqa: S308  escaped


def _remark(text: str) -> str:
    return f"  <i>{CODE.sub(MARK, text)}</i>" if text else ""


def _json(example: object) -> str:
    """Format JSON with indentation, but short values on one line."""
    return _laid_out(example, 0)


def _laid_out(part: object, depth: int) -> str:
    line = json.dumps(part, ensure_ascii=False)
    if len(line) + 2 * depth <= 76 or not isinstance(part, dict | list):
        return line
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(part, dict):
        members = [f"{inner}{json.dumps(name)}: {_laid_out(member, depth + 1)}" for name, member in part.items()]
        return "{\n" + ",\n".join(members) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + _laid_out(item, depth + 1) for item in part) + f"\n{outer}]"
