"""What all endpoints share: the request, the caller, the response, and JSON schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AnySet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from django.conf import settings
from django.core.handlers.wsgi import get_bytes_from_wsgi
from django.db import Error
from django.http import QueryDict
from django.http.request import split_domain_port, validate_host
from rest_framework.exceptions import APIException

from policy.active import Caller, confirm
from policy.errors import AuthzError, KeyRefused
from policy.ground.journal import changing
from policy.replicas.reading import position_of
from policy.scopes import Scope

# ---- JSON schemas, written short ----------------------------------------------------------------------------------

Schema = dict[str, Any]  # JSON


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def many(items: Schema, description: str = "", **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits, **({"description": description} if description else {})}


def nullable(schema: Schema) -> Schema:
    """Return a schema that null meets too: `{"type": "string"}` -> `{"type": ["string", "null"]}`."""
    if schema.get("type") in ("string", "integer", "boolean") and not schema.keys() - {"type", "minimum"}:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def taken(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object in a request."""
    members = {"properties": required | (optional or {}), "required": list(required)}
    return {"type": "object", "description": description, **members}


def answered(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object in a response: it has no other members."""
    return taken(description, required, optional) | {"additionalProperties": False}


# ---- What the description of the interface says of an endpoint ----------------------------------------------------


@dataclass(frozen=True)
class QueryParameter:
    """A parameter of the query string."""

    name: str
    description: str
    schema: Schema = field(default_factory=text)


@dataclass(frozen=True)
class Doc:
    """What callers are told of one method of an endpoint, besides what follows from the endpoint's class.

    From this the OpenAPI document and the page at /api/docs are made (`authz_project/openapi`).
    """

    summary: str
    answer: Schema
    description: str = ""
    body: Any = None  # as `Endpoint.body`, which it replaces for this method
    is_body_optional: bool = False
    parameters: Any = ()  # each a `QueryParameter`; or the serializer of the query string
    statuses: Mapping[int, str] = field(default_factory=dict)  # besides those that follow from the rest
    has_offset: bool = False  # the response has the header `OsoOffset`, although it is no change and no question
    refused_body: str = "Message"  # the schema of errors
    refused_bodies: Mapping[int, str] = field(default_factory=dict)  # of statuses that have another one
    deprecated_for: str = ""  # what to use instead


# ---- The address at which callers reach the service ---------------------------------------------------------------

_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def public_url_of(headers: Mapping[str, Any]) -> str:
    """Return `PUBLIC_URL`; without it, the address that the request was sent to, as a trusted proxy gives it.

    A host name that ALLOWED_HOSTS does not allow is replaced by the server's own name.
    """
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    scheme, host = headers.get("wsgi.url_scheme", "http"), headers.get("HTTP_HOST", "")
    if settings.TRUST_PROXY:
        scheme = _last_forwarded(headers.get("HTTP_X_FORWARDED_PROTO", "")) or scheme
        host = _last_forwarded(headers.get("HTTP_X_FORWARDED_HOST", "")) or host
    if not _HOST.fullmatch(host) or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        host = f"{headers.get('SERVER_NAME', 'localhost')}:{headers.get('SERVER_PORT', '80')}"
    return f"{'https' if scheme == 'https' else 'http'}://{host}"


def _last_forwarded(text: str) -> str:
    """Return the last element of a forwarded header: the trusted proxy wrote it; those before it anybody may have."""
    return text.rpartition(",")[2].strip().lower()


# ---- What all endpoints share: the request, the caller and the response -------------------------------------------
# Endpoints know nothing of the web server: `authz_project/route.py` receives requests and sends responses.

OFFSET = "OsoOffset"  # the header with the revision that a change made, or that an answer is of
VERBS = ("get", "post", "delete")
# A key of `Request.headers`: whether the request has a thread on which it may wait. Plain Django does not set it, and
# has one.
MAY_WAIT = "authz.may_wait"
_UNREAD = object()


class Request:
    """A request. Its body and query string are read and parsed when they are first used."""

    def __init__(
        self,
        method: str,
        headers: dict[str, Any],
        receive: Callable[[], bytes],
        read: Callable[[bytes], Any],
        request_id: str,
        started: float,
    ):
        self.method = method
        self.headers = headers  # the WSGI environ: headers as HTTP_…, and the rest
        self.id = request_id
        self.started = started  # by `perf_counter`
        self.auth: Caller | None = None  # the caller, once the key has been looked up
        self._receive = receive
        self._read = read
        self._body: bytes | None = None
        self._data: Any = _UNREAD
        self._query: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """Return the body as it was sent."""
        if self._body is None:
            self._body = self._receive()
        return self._body

    @property
    def data(self) -> Any:
        """Return the body, parsed as JSON."""
        if self._data is _UNREAD:
            self._data = self._read(self.body)
        return self._data

    def query_list(self, name: str) -> list[str]:
        """Return all values of a query parameter."""
        return cast(QueryDict, self.query_params).getlist(name)

    @property
    def query_params(self) -> Mapping[str, str]:
        """Return the query parameters; for a name that is given twice, the last value."""
        if self._query is None:
            self._query = cast(Mapping[str, str], QueryDict(get_bytes_from_wsgi(self.headers, "QUERY_STRING", "")))
        return self._query


def position_seen(request: Request) -> int | None:
    """Return the revision that the caller has seen: clients send the `OsoOffset` of a response with later requests."""
    return position_of(request.headers.get("HTTP_OSOOFFSET", ""))


def is_published_client(request: Request) -> bool:
    """Say whether a published client sends the request: by its own header, or, of the oldest ones, by User-Agent."""
    headers = request.headers
    return "HTTP_X_OSOAPIVERSION" in headers or headers.get("HTTP_USER_AGENT", "").startswith("Oso Cloud")


@dataclass
class Response:
    """A response. `data` is to be encoded as JSON; bytes are JSON already, or a page, with its type in `headers`."""

    data: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]


class Endpoint:
    """One path of the interface. It has a method for each verb, which decodes the request, acts and responds.

    One instance serves all requests, so it must keep no state of a request.
    """

    needs_key = True
    questions: ClassVar[AnySet[str]] = frozenset()  # the verbs whose handlers read by `reading.read`
    docs: ClassVar[Mapping[str, Doc]] = {}  # by HTTP method
    # What decodes the body of a POST, and gives its schema: a serializer or a `JsonType`; or the schema alone.
    body: ClassVar[Any] = None
    takes_context: ClassVar[bool] = False  # facts for this request only
    takes_moment: ClassVar[bool] = False  # the members of `MomentQuery`, besides those of the body
    # The scope that a key must have, by HTTP method; None: any key will do. Where a key is needed, every method that is
    # handled must be listed.
    scopes: ClassVar[Mapping[str, Scope | None]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """Return the methods that handle requests, by HTTP method: `{"GET": self.get}`."""
        return {verb.upper(): getattr(self, verb) for verb in VERBS if hasattr(self, verb)}

    def scope_of(self, method: str) -> Scope | None:
        """Return the scope that a request by this method needs; None too for a method that is not handled at all."""
        handled = "GET" if method == "HEAD" else method
        return self.scopes[handled] if handled in self.handlers else None

    def reason(self, request: Request, error: Exception) -> Exception:
        """Return the error to report for an error that a request raised: a refused key comes before all else.

        A request may be refused before any statement has confirmed its key. So the key is confirmed then: who may not
        ask is told so, and not what else is wrong.
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
    """Return whose request it is, with the key checked against the database now."""
    who = unconfirmed_caller(request)
    return who if who.confirmed else confirm(who)


def unconfirmed_caller(request: Request) -> Caller:
    """Return whose request it seems to be: only for statements that check the key themselves (`key_check`)."""
    assert request.auth is not None, "only who has a key comes so far"
    return request.auth


@contextmanager
def writing(request: Request) -> Iterator[Caller]:
    """Open a writing transaction, check the caller's key within it, and yield the caller."""
    with changing():
        yield confirm(unconfirmed_caller(request))


def changed(message: str, offset: int) -> Response:
    """Return the response to a change that is committed."""
    return Response({"message": message}, headers={OFFSET: str(offset)})
