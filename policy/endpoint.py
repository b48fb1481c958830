"""What all endpoints share: the request and its decoding, the caller, the response, and JSON schemas."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AnySet
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple, cast

import orjson
from django.core.handlers.wsgi import get_bytes_from_wsgi
from django.db import Error
from django.http import QueryDict
from django.http.request import split_domain_port, validate_host
from rest_framework import serializers
from rest_framework.exceptions import APIException

from policy.active import Caller, Scope, confirm
from policy.core import spaces
from policy.core.config import settings
from policy.core.journal import changing
from policy.core.memory import demand, size_of_parsed
from policy.errors import AuthzError, KeyRefused, MalformedRequest
from policy.replicas.reading import position_of

# ---- Shorthands for JSON schemas ----------------------------------------------------------------------------------

Schema = dict[str, Any]  # JSON


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def many(items: Schema, description: str = "", **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits, **({"description": description} if description else {})}


def nullable(schema: Schema) -> Schema:
    """Make a schema nullable: `{"type": "string"}` -> `{"type": ["string", "null"]}`."""
    if schema.get("type") in ("string", "integer", "boolean") and not schema.keys() - {"type", "minimum"}:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def taken(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of a request object."""
    members = {"properties": required | (optional or {}), "required": list(required)}
    return {"type": "object", "description": description, **members}


def answered(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of a response object: it has no other members."""
    return taken(description, required, optional) | {"additionalProperties": False}


# ---- How the OpenAPI document describes an endpoint ---------------------------------------------------------------


@dataclass(frozen=True)
class QueryParameter:
    """A parameter of the query string."""

    name: str
    description: str
    schema: Schema = field(default_factory=text)


@dataclass(frozen=True)
class Doc:
    """The documentation of one method of an endpoint, besides what follows from the endpoint's class.

    The OpenAPI document and the page at /api/docs are generated from it (`authz_project/openapi`).
    """

    summary: str
    answer: Schema
    description: str = ""
    body: Any = None  # overrides `Endpoint.body` for this method
    is_body_optional: bool = False
    parameters: Any = ()  # each a `QueryParameter`; or the serializer of the query string
    statuses: Mapping[int, str] = field(default_factory=dict)  # besides those that follow from the rest
    has_offset: bool = False  # the response has the header `OsoOffset`, although it is neither a change nor a query
    refused_body: str = "Message"  # the schema of errors
    refused_bodies: Mapping[int, str] = field(default_factory=dict)  # for statuses that have another one
    deprecated_for: str = ""  # the replacement


# ---- Bodies and query strings -------------------------------------------------------------------------------------
# Serializers of bodies and query strings define both their decoding and the OpenAPI document. A serializer's docstring
# and its fields' help texts appear in the OpenAPI document, for callers.


class JsonType(NamedTuple):
    """A type of JSON values: `decode(raw, path)` converts the JSON at a path, `schema` describes the JSON."""

    decode: Callable[[Any, str], Any]
    schema: Schema


class DecodedField(serializers.Field):
    """A member of a body. An optional member that is missing or null gets the value `absent`.

    It skips the framework's processing of forms, which takes longer than answering a query.
    """

    def __init__(self, kind: JsonType, optional: bool = False, absent: object = None, help_text: str = ""):
        super().__init__(required=not optional, help_text=help_text)
        self.decode = kind.decode
        self.absent = absent
        self.schema = nullable(kind.schema) if optional else kind.schema

    def get_value(self, body):
        return body.get(self.field_name)

    def reader(self) -> Callable[[dict], Any]:
        """Return a function that reads the member from a body."""
        get, decode, path, absent = self.get_value, self.decode, self.path, self.absent
        if self.required:
            return lambda body: decode(get(body), path)

        def read(body: dict) -> Any:
            raw = get(body)
            return absent if raw is None else decode(raw, path)

        return read

    @cached_property
    def path(self) -> str:
        """Return the member's position in the request: names joined by dots."""
        names: list[str] = []
        field: serializers.BaseSerializer | serializers.Field | None = self
        while field is not None:
            names.insert(0, field.field_name or "")
            field = field.parent
        return ".".join(filter(None, names))

    @property
    def members(self) -> dict[str, Schema]:
        """Return the schemas of the body's members that the field reads, by name: subclasses may read several."""
        return {str(self.field_name): self.schema}


def decoded(kind: type[serializers.Serializer], raw: object, path: str = "") -> dict:
    """Return the decoded members of a body; `path` is the body's position in the request."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, f"{'' if path else 'the request body '}must be a JSON object")
    try:
        return {name: read(raw) for name, read in _readers(kind)}
    except MalformedRequest as fault:
        if not path:
            raise
        raise MalformedRequest(f"{path}.{fault.path}", fault.reason) from None


@cache
def _readers(kind: type[serializers.Serializer]) -> tuple[tuple[str, Callable[[dict], Any]], ...]:
    """Return one function for each of the serializer's fields, which reads it from a body.

    All requests share the fields: creating them takes longer than using them, and they keep no state of a request.
    """
    return tuple((name, _reader(field)) for name, field in kind().fields.items())


def _reader(field: serializers.Field) -> Callable[[dict], Any]:
    if isinstance(field, DecodedField):
        return field.reader()
    return lambda body: field.run_validation(field.get_value(body))


# ---- The service's public URL -------------------------------------------------------------------------------------

FORWARDED = "forwarded"  # as `PUBLIC_URL`
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def public_url_of(headers: Mapping[str, Any]) -> str:
    """Return `PUBLIC_URL`; without it, the URL that the request was sent to; or the one that a trusted proxy reports.

    A host name that ALLOWED_HOSTS does not allow is replaced by the server's own name.
    """
    if settings.PUBLIC_URL not in ("", FORWARDED):
        return str(settings.PUBLIC_URL)
    scheme, host = headers.get("wsgi.url_scheme", "http"), headers.get("HTTP_HOST", "")
    if settings.PUBLIC_URL == FORWARDED:
        scheme = _last_forwarded(headers.get("HTTP_X_FORWARDED_PROTO", "")) or scheme
        host = _last_forwarded(headers.get("HTTP_X_FORWARDED_HOST", "")) or host
    if not _HOST.fullmatch(host) or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        host = f"{headers.get('SERVER_NAME', 'localhost')}:{headers.get('SERVER_PORT', '80')}"
    return f"{'https' if scheme == 'https' else 'http'}://{host}"


def _last_forwarded(text: str) -> str:
    """Return the last element of a forwarded header: the trusted proxy added it; clients may have sent the others."""
    return text.rpartition(",")[2].strip().lower()


# ---- What all endpoints share: the request, the caller and the response -------------------------------------------
# Endpoints are independent of the web server: `authz_project/route.py` receives requests and sends responses.

OFFSET = "OsoOffset"  # the header with the revision of a change or of an answer
VERBS = ("get", "post", "delete")
# A key of `Request.headers`: a `LongPoll`, or None if the request must not wait. Plain Django does not set it.
LONG_POLL = "authz.long_poll"
_UNREAD = object()
DEEPEST = 200  # maximum nesting of a body
_WRITABLE = 254  # levels that orjson can write; it reads 1,024
_SMALL = 1 << 16  # bytes; there is always enough memory to parse a body up to this size
_LARGE = 1 << 20  # bytes; the nesting of larger bodies, mostly changes, is not checked


class Request:
    """A request. Its body and query string are read and parsed on first use."""

    def __init__(
        self, method: str, headers: dict[str, Any], receive: Callable[[], bytes], request_id: str, started: float
    ):
        self.method = method
        self.headers = headers  # the WSGI environ: headers as HTTP_…, and more
        self.id = request_id
        self.started = started  # by `perf_counter`
        self.auth: Caller | None = None  # the caller, once the key has been looked up
        self.respond_later: Callable[[Request, Callable[[], Response]], None] | None = None  # see `RESPONDS_LATER`
        self.answer_again: Callable[[], object] | None = None  # likewise
        self._receive = receive
        self._body: bytes | None = None
        self._data: Any = _UNREAD
        self._query: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """Return the body as sent."""
        if self._body is None:
            self._body = self._receive()
        return self._body

    @property
    def data(self) -> Any:
        """Return the body, parsed as JSON; an empty body is an empty object."""
        if self._data is _UNREAD:
            body = self.body
            self._data = parsed(body) if body else {}
        return self._data

    def begin(self) -> None:
        """Forget what was decoded: an attempt may have changed it. The body is kept."""
        self.auth, self._data = None, _UNREAD

    @property
    def is_of_published_client(self) -> bool:
        """Return whether a published client sent it: by its own header or, for the oldest ones, by User-Agent."""
        headers = self.headers
        return "HTTP_X_OSOAPIVERSION" in headers or headers.get("HTTP_USER_AGENT", "").startswith("Oso Cloud")

    def query_list(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return cast(QueryDict, self.query_params).getlist(name)

    @property
    def query_params(self) -> Mapping[str, str]:
        """Return the query parameters; for a repeated name, the last value."""
        if self._query is None:
            self._query = cast(Mapping[str, str], QueryDict(get_bytes_from_wsgi(self.headers, "QUERY_STRING", "")))
        return self._query


def parsed(text: bytes) -> Any:
    """Return the parsed body, which must be JSON whatever its content type; None if it is only whitespace."""
    if len(text) > _SMALL:
        demand(size_of_parsed(text))
    try:
        body = orjson.loads(text) if text.strip() else None
    except SystemError:  # orjson ran out of memory, and reports it in this way
        raise MemoryError from None
    except orjson.JSONDecodeError as error:
        if "memory" in error.msg:  # not about the text: the parser could not allocate its memory
            raise MemoryError from None
        raise MalformedRequest("", f"the request body is not valid JSON: {error}") from None
    if len(text) <= _LARGE and text.count(b"[") + text.count(b"{") > DEEPEST and _is_too_deep(body):
        raise MalformedRequest("", f"the request body is nested deeper than {DEEPEST} levels")
    return body


def _is_too_deep(body: object) -> bool:
    """Return whether orjson cannot write the body inside this many more lists, which is faster than walking it."""
    for _ in range(_WRITABLE - DEEPEST):
        body = [body]
    try:
        orjson.dumps(body)
    except orjson.JSONEncodeError:
        return True
    return False


def position_seen(request: Request) -> int | None:
    """Return the revision that the caller has seen: clients send a response's `OsoOffset` with later requests."""
    return position_of(request.headers.get("HTTP_OSOOFFSET", ""))


@dataclass
class Response:
    """A response. `data` is encoded as JSON; bytes are sent as they are: JSON, or a page with its type in `headers`."""

    data: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]
# Returned by a handler if a thread will call `respond_later` of the request, or has called it, with the request and
# with what makes the response. Servers that can send a response from any thread set it; under plain Django it is None.
# Or it calls `answer_again`, which answers the request from its start, and not later.
RESPONDS_LATER = Response(None)


@dataclass(eq=False)
class LongPoll:
    """What a server knows of a request that waits, without a thread, until there are changes for it."""

    enter: Callable[[LongPoll, dict[str, Any]], bool]  # takes this and the request's headers
    since: float = field(default_factory=time.monotonic)  # when the request arrived
    until: float = math.inf
    environment_id: int = 0
    space: str = ""
    offset: int = 0  # the latest revision that its answer has
    keys: str = ""  # the digest of the keys that it knows; empty if it does not wait for others
    after: Any = None  # from where its next answer goes on

    @property
    def waited(self) -> float:
        return time.monotonic() - self.since

    def wait(
        self, request: Request, environment_id: int, offset: int, seconds: float, after: Any = None, keys: str = ""
    ) -> bool:
        """Have the request answered again, from its start, once there is news, or `seconds` after it arrived.

        Return False if it must not wait: then it is to be answered now. Otherwise, return `RESPONDS_LATER`.
        """
        self.environment_id, self.space, self.offset = environment_id, spaces.current(), offset
        self.until, self.keys, self.after = self.since + seconds, keys, after
        return self.enter(self, request.headers)


class Endpoint:
    """One path of the interface. It has a method for each verb, which decodes the request, acts and responds.

    One instance serves all requests, so it must keep no state of a request.
    """

    needs_key = True
    questions: ClassVar[AnySet[str]] = frozenset()  # verbs whose handlers read with `reading.read`
    docs: ClassVar[Mapping[str, Doc]] = {}  # by HTTP method
    # Decodes the body of a POST, and gives its schema: a serializer or a `JsonType`; or only a schema.
    body: ClassVar[Any] = None
    takes_context: ClassVar[bool] = False  # facts for this request only
    takes_moment: ClassVar[bool] = False  # the members of `MomentQuery`, besides those of the body
    # The scope that a key must have, by HTTP method; None: any key. If a key is needed, every handled method must be
    # listed.
    scopes: ClassVar[Mapping[str, Scope | None]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by HTTP method: `{"GET": self.get}`."""
        return {verb.upper(): getattr(self, verb) for verb in VERBS if hasattr(self, verb)}

    def scope_of(self, method: str) -> Scope | None:
        """Return the scope that this method needs; None also for a method that is not handled at all."""
        handled = "GET" if method == "HEAD" else method
        return self.scopes[handled] if handled in self.handlers else None

    def reason(self, request: Request, error: Exception) -> Exception:
        """Return the error to report for an error that a request raised: a refused key takes precedence.

        A request may be rejected before any statement has confirmed its key. The key is therefore confirmed here, so
        that an unauthorized caller learns only that.
        """
        is_mistake = isinstance(error, AuthzError | APIException) and not isinstance(error, KeyRefused)
        if is_mistake and request.auth is not None:
            try:
                caller(request)
            except (KeyRefused, Error) as worse:
                return worse
        return error

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        """Return the body of an error response. Endpoints may override it."""
        return body


def caller(request: Request) -> Caller:
    """Return the request's caller, with the key checked against the database now."""
    who = unconfirmed_caller(request)
    return who if who.confirmed else confirm(who)


def unconfirmed_caller(request: Request) -> Caller:
    """Return the request's caller, unconfirmed: only for statements that check the key themselves (`key_check`)."""
    assert request.auth is not None, "only who has a key comes so far"
    return request.auth


@contextmanager
def writing(request: Request) -> Iterator[Caller]:
    """Open a writing transaction, check the caller's key within it, and yield the caller.

    The key is checked again at the end: it may have been revoked while the change waited for its turn.
    """
    with changing():
        who = confirm(unconfirmed_caller(request))
        yield who
        confirm(who)


def changed(message: str, offset: int) -> Response:
    """Return the response to a committed change."""
    return Response({"message": message}, headers={OFFSET: str(offset)})
