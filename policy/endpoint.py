"""What every endpoint shares: what it is asked, who is asking, and how it answers.

How a request arrives and how its answer leaves, an endpoint does not know: `authz_project/api.py` does.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AnySet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from django.core.handlers.wsgi import get_bytes_from_wsgi
from django.http import QueryDict

from policy.active import Caller, confirm
from policy.offsets import changing
from policy.replicas.reading import position_of
from policy.scopes import Scope

OFFSET = "OsoOffset"  # the header with the revision that a change made, or that an answer is of
VERBS = ("get", "post", "delete")
# In what is known of a request: whether there is a thread for it to wait on. Plain Django, which says nothing, has one.
MAY_WAIT = "authz.may_wait"
_UNREAD = object()


class Request:
    """What an endpoint is asked. Bodies and query strings are read when they are first looked at, if at all."""

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
        self.headers = headers  # and what else there is to know, as WSGI has it
        self.id = request_id
        self.started = started  # by `perf_counter`
        self.auth: Caller | None = None  # whoever has a key, once it is looked at
        self._receive = receive
        self._read = read
        self._body: bytes | None = None
        self._data: Any = _UNREAD
        self._query: Mapping[str, str] | None = None

    @property
    def body(self) -> bytes:
        """As it was sent."""
        if self._body is None:
            self._body = self._receive()
        return self._body

    @property
    def data(self) -> Any:
        """The body: JSON."""
        if self._data is _UNREAD:
            self._data = self._read(self.body)
        return self._data

    def query_list(self, name: str) -> list[str]:
        """All that is given under a name."""
        return cast(QueryDict, self.query_params).getlist(name)

    @property
    def query_params(self) -> Mapping[str, str]:
        """Of a name that is given twice, the last."""
        if self._query is None:
            self._query = cast(Mapping[str, str], QueryDict(get_bytes_from_wsgi(self.headers, "QUERY_STRING", "")))
        return self._query


def position_seen(request: Request) -> int | None:
    """How far the caller has seen its environment, by the header with which clients send back what they were told."""
    return position_of(request.headers.get("HTTP_OSOOFFSET", ""))


def is_published_client(request: Request) -> bool:
    """They say so in a header; the oldest only in their name."""
    headers = request.headers
    return "HTTP_X_OSOAPIVERSION" in headers or headers.get("HTTP_USER_AGENT", "").startswith("Oso Cloud")


@dataclass
class Response:
    """What is answered: JSON, written already if it is bytes; or a page, whose kind is among the headers."""

    data: object
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]


class Endpoint:
    """One path of the interface: a method for each verb, each of which decodes, calls one use case and answers.

    There is one of it for all requests, and nothing of a request is kept in it.
    """

    needs_key = True
    questions: ClassVar[AnySet[str]] = frozenset()  # the verbs with which it asks by `reading.read`
    # What a key must be good for, by the methods that are handled: every one of them, where a key is needed. None is
    # for any key.
    scopes: ClassVar[Mapping[str, Scope | None]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """By HTTP's names for them."""
        return {verb.upper(): getattr(self, verb) for verb in VERBS if hasattr(self, verb)}

    def scope_of(self, method: str) -> Scope | None:
        """The scope that a request by this method needs. What nobody handles is refused for that, whatever the key."""
        handled = "GET" if method == "HEAD" else method
        return self.scopes[handled] if handled in self.handlers else None

    def reason(self, request: Request, error: Exception) -> Exception:
        """Of a refusal, where a request raised the error."""
        return error

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        """The body of an answer that is not a success."""
        return body


def caller(request: Request) -> Caller:
    """Whose request it is, checked against the database now."""
    who = unconfirmed_caller(request)
    return who if who.confirmed else confirm(who)


def unconfirmed_caller(request: Request) -> Caller:
    """Whose request it seems to be: for statements that check the key (`key_check`), and no others."""
    assert request.auth is not None, "only who has a key comes so far"
    return request.auth


@contextmanager
def writing(request: Request) -> Iterator[Caller]:
    """A transaction in which the caller's key holds."""
    with changing():
        yield confirm(unconfirmed_caller(request))


def changed(message: str, offset: int) -> Response:
    """The answer to a change that is committed."""
    return Response({"message": message}, headers={OFFSET: str(offset)})
