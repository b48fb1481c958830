"""A typed client of the HTTP API, synchronous and asynchronous.

    from authz_project.client import AuthzClient, check, explain

    ann, plan = ("User", "ann"), ("Document", "plan")
    with AuthzClient("http://127.0.0.1:8080", key) as authz:
        authz(check(ann, "read", plan))["allowed"]
        authz(explain(ann, "read", plan, as_of=17))["obstacles"]

Each function describes a request, which both clients send. Answers are decoded JSON; `client_types` has their types.
If the policy does not have a word of a request, the clients log the service's warning, or pass it to `on_warning`.
Needs `pip install "authz-project[client]"`, and no Django.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast

import httpx

from authz_project import client_types as types

T = TypeVar("T")

EntityRef = tuple[str, str]  # a type and an id: ("User", "ann")
TIMEOUT = 10.0  # seconds
_OFFSET, _WARNING = "OsoOffset", "X-Authz-Warning"

log = logging.getLogger("authz.client")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and the type `T` of its answer."""

    method: Literal["GET", "POST"]
    path: str
    body: object = None
    query: Mapping[str, Any] = field(default_factory=dict)
    wait: float = 0.0  # seconds that the service may wait before it answers


class RequestRefused(Exception):
    """The service refused or failed to answer a request, or could not be reached (`status` is None)."""

    def __init__(self, message: str, status: int | None = None, retry_after: int | None = None):
        super().__init__(message if status is None else f"{status}: {message}")
        self.message, self.status, self.retry_after = message, status, retry_after


# ---- clients --------------------------------------------------------------------------------------------------------


class _Client:
    """What both clients share: after a change, they read nothing older than the change."""

    def __init__(self, url: str, key: str, timeout: float = TIMEOUT, on_warning: Callable[[str], object] = log.warning):
        key = key.strip()  # files often end with a line break
        if not (key and key.isascii() and key.isprintable() and " " not in key):  # the library's error would show it
            raise ValueError("the API key is empty, or has characters that no key has")
        self._timeout, self._on_warning = timeout, on_warning
        self._headers = {"Authorization": f"Bearer {key}", "User-Agent": "authz-project"}
        self._url = url.rstrip("/")
        self._seen = 0

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        seen = {_OFFSET: str(self._seen)} if self._seen else {}
        query = {name: value for name, value in call.query.items() if value is not None}
        options: dict[str, Any] = {"params": query, "headers": seen, "timeout": self._timeout + call.wait}
        if call.method == "POST":
            options["json"] = call.body
        return {"method": call.method, "url": f"{self._url}{call.path}", **options}

    def _answer(self, call: Call[T], response: httpx.Response) -> T:
        try:
            body = response.json()
        except ValueError:
            body = {}
        if not response.is_success:
            message = body.get("message") if isinstance(body, dict) else None
            retry_after = response.headers.get("Retry-After", "")
            seconds = int(retry_after) if retry_after.isdecimal() else None
            raise RequestRefused(str(message or response.reason_phrase), response.status_code, seconds)
        if warning := response.headers.get(_WARNING):
            self._on_warning(warning)
        if call.method == "POST" and call.path in _CHANGES:
            self._seen = max(self._seen, int(response.headers.get(_OFFSET, "0")))
        return cast(T, body)


class AuthzClient(_Client):
    """Sends requests. Threads may share it."""

    def __init__(self, url: str, key: str, timeout: float = TIMEOUT, on_warning: Callable[[str], object] = log.warning):
        super().__init__(url, key, timeout, on_warning)
        self._http = httpx.Client(headers=self._headers)

    def __enter__(self) -> AuthzClient:
        return self

    def __exit__(self, *failure: object) -> None:
        self._http.close()

    def __call__(self, call: Call[T]) -> T:
        try:
            response = self._http.request(**self._request(call))
        except httpx.HTTPError as reason:
            raise RequestRefused(f"no answer from {self._url}: {reason!r}") from None
        return self._answer(call, response)


class AsyncAuthzClient(_Client):
    """The same for asyncio: `await authz(check(…))`."""

    def __init__(self, url: str, key: str, timeout: float = TIMEOUT, on_warning: Callable[[str], object] = log.warning):
        super().__init__(url, key, timeout, on_warning)
        self._http = httpx.AsyncClient(headers=self._headers)

    async def __aenter__(self) -> AsyncAuthzClient:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._http.aclose()

    async def __call__(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(**self._request(call))
        except httpx.HTTPError as reason:
            raise RequestRefused(f"no answer from {self._url}: {reason!r}") from None
        return self._answer(call, response)


# ---- checks and lists -----------------------------------------------------------------------------------------------


class QuestionOptions(TypedDict, total=False):
    """What a question may be given besides: an earlier moment, another policy version, and context facts."""

    as_of: int | str
    policy_version: int
    context_facts: Sequence[types.FactJson]


def _about(actor: EntityRef, resource: EntityRef) -> dict[str, Any]:
    (actor_type, actor_id), (resource_type, resource_id) = actor, resource
    there = {"resource_type": resource_type, "resource_id": resource_id}
    return {"actor_type": actor_type, "actor_id": actor_id, **there}


def _value(reference: EntityRef) -> types.ValueJson:
    return {"type": reference[0], "id": reference[1]}


def check(
    actor: EntityRef, action: str, resource: EntityRef, **given: Unpack[QuestionOptions]
) -> Call[types.DecisionJson]:
    return Call("POST", "/api/authorize", {**_about(actor, resource), "action": action, **given})


def check_each(
    checks: Sequence[tuple[EntityRef, str, EntityRef]], **given: Unpack[QuestionOptions]
) -> Call[types.DecisionsJson]:
    bodies = [{"actor": _value(who), "action": action, "resource": _value(what)} for who, action, what in checks]
    return Call("POST", "/api/authorize_each", {"checks": bodies, **given})


def actions(actor: EntityRef, resource: EntityRef, **given: Unpack[QuestionOptions]) -> Call[types.ActionsJson]:
    return Call("POST", "/api/actions", {**_about(actor, resource), **given})


def resources(
    actor: EntityRef, action: str, resource_type: str, page_token: str | None = None, **given: Unpack[QuestionOptions]
) -> Call[types.ListingJson]:
    """List ids in pages of 10,000. To continue, repeat it with the `next_page_token`, until that is null or absent."""
    about = {"actor_type": actor[0], "actor_id": actor[1], "action": action, "resource_type": resource_type}
    page = {"page_size": 10_000, "page_token": page_token}
    return Call("POST", "/api/list", {**about, **page, **given})


def who(
    actor_type: str, action: str, resource: EntityRef, **given: Unpack[QuestionOptions]
) -> Call[types.SolutionsJson]:
    """List the actors who may do it, as `actor` of each result; null stands for every actor."""
    constraints = {
        "actor": {"type": actor_type, "ids": None},
        "action": {"type": "String", "ids": [action]},
        "resource": {"type": resource[0], "ids": [resource[1]]},
    }
    names = ["actor", "action", "resource"]
    return Call("POST", "/api/evaluate_query", {"predicate": ["allow", names], "constraints": constraints, **given})


def explain(
    actor: EntityRef, action: str, resource: EntityRef, would_allow: bool = False, **given: Unpack[QuestionOptions]
) -> Call[types.ExplainedCheckJson]:
    """Explain a check; with `would_allow`, also search for up to 4 seconds for what would allow it."""
    ways = {"would_allow": True} if would_allow else {}
    return Call("POST", "/api/explain", {**_about(actor, resource), "action": action, **ways, **given})


def evaluations(body: Mapping[str, object]) -> Call[types.EvaluatedManyJson]:
    """Send a request of AuthZEN's Access Evaluations API."""
    return Call("POST", "/access/v1/evaluations", body)


# ---- facts, history and policies ----------------------------------------------------------------------------------

_CHANGES = ("/api/batch", "/api/policy")


def change_facts(
    inserts: Sequence[types.NewFactJson] = (), deletes: Sequence[types.FactPatternJson] = ()
) -> Call[types.ChangeMadeJson]:
    """Delete, then insert facts, all or none."""
    return Call("POST", "/api/batch", [{"deletes": [*deletes]}, {"inserts": [*inserts]}])


def _filters(predicate: str | None, args: Sequence[EntityRef]) -> dict[str, Any]:
    names = {f"args.{place}.{name}": text for place, arg in enumerate(args) for name, text in zip(("type", "id"), arg)}
    return {"predicate": predicate, **names}


def facts(
    predicate: str | None = None, args: Sequence[EntityRef] = (), as_of: int | str | None = None
) -> Call[list[types.StoredFactJson]]:
    """List stored facts whose first arguments are these."""
    return Call("GET", "/api/facts", query={**_filters(predicate, args), "as_of": as_of})


def history(
    predicate: str | None = None, args: Sequence[EntityRef] = (), page_token: str | None = None
) -> Call[types.HistoryJson]:
    """List the revisions that changed such facts, newest first."""
    return Call("GET", "/api/history", query={**_filters(predicate, args), "page_token": page_token})


def review(
    start: int | str | None = None, end: int | str | None = None, at: int | str | None = None, *, actor: str = "",
    action: str = "", resource_type: str = "", page_token: str | None = None,
) -> Call[types.AccessReviewJson]:  # fmt: skip
    """List who gained and lost access from `start` to `end`, or who had it `at` a moment; each by revision or time.

    To continue, repeat it with the `next_page_token`, until that is null. `actor` is `User`, or `User:ann`.
    """
    moments = {"from": start, "to": end, "at": at}
    wanted = {"actor": actor, "action": action, "resource_type": resource_type, "page_token": page_token}
    return Call("GET", "/api/review_access", query={**moments, **wanted}, wait=10)


def changes(
    after: int | str = 0, limit: int = 1_000, wait: int = 0, predicates: Sequence[str] = ()
) -> Call[types.ChangesJson]:
    """Read the change feed. To continue, repeat it with `after` set to `next`."""
    query = {"after": after, "limit": limit, "wait": wait, "predicate": [*predicates]}
    return Call("GET", "/api/changes", query=query, wait=wait)


def policy(version: int | None = None) -> Call[types.ActivePolicyJson]:
    return Call("GET", "/api/policy", query={"id": version})


def metadata(version: int | None = None) -> Call[types.MetadataJson]:
    return Call("GET", "/api/policy_metadata", query={"version": version})


def publish(src: str, filename: str = "", note: str = "") -> Call[types.MessageJson]:
    return Call("POST", "/api/policy", {"src": src, "filename": filename, "note": note})


def preview(src: str, filename: str = "") -> Call[types.PolicyPreviewJson]:
    """Compare decisions by a policy with those by the active one, without publishing it; up to 4 seconds."""
    return Call("POST", "/api/preview_policy", {"src": src, "filename": filename}, wait=15)
