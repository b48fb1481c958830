"""The Model Context Protocol server: tools and resources for AI agents, which ask a service over its HTTP API.

It holds an API key and sends requests like any other client, so the key's scopes limit what agents can do.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, ParamSpec

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from authz_project import client, documents
from authz_project import client_types as types
from authz_project.client import AsyncAuthzClient, Call, EntityRef, RequestRefused
from facts.wire import END, fact_from_text, fact_to_json, pattern_from_text, value_from_text
from policy.errors import AuthzError

MOST_IDS = 200  # of a list
_ABOUT = (
    "An authorization service. It decides from a policy, in the Polar language, and stored facts. Actors and resources "
    'are written `User:ann`, facts `has_role(User:ann, "reader", Document:plan)`. Read the resource `authz://policy` '
    "for types, roles and permissions, and `authz://docs/language` for the language."
)

P = ParamSpec("P")
_warnings: ContextVar[list[str]] = ContextVar("warnings")  # about unknown words in the request of the current tool


def told(tool: Callable[P, Awaitable[dict[str, Any]]]) -> Callable[P, Awaitable[dict[str, Any]]]:
    """Return the tool with warnings, and with errors that the caller can correct; the library hides all others."""

    @functools.wraps(tool)
    async def telling(*args: P.args, **given: P.kwargs) -> dict[str, Any]:
        _warnings.set([])
        try:
            found = await tool(*args, **given)
        except RequestRefused as reason:
            raise ToolError(str(reason)) from None
        except AuthzError as reason:
            raise ToolError(reason.message) from None
        warnings = _warnings.get()
        return {**found, "warning": "; ".join(warnings)} if warnings else found

    return telling


def mcp_server(url: str, key: str, allow_writes: bool = False) -> MCPServer:
    authz = AsyncAuthzClient(url, key, on_warning=lambda warning: _warnings.get([]).append(warning))
    server = MCPServer("authz", instructions=_ABOUT, log_level="WARNING")
    for tool in ReadTools(authz).tools:
        server.add_tool(told(tool), annotations=ToolAnnotations(read_only_hint=True))
    for tool in WriteTools(authz).tools if allow_writes else ():
        server.add_tool(told(tool), annotations=ToolAnnotations(destructive_hint=True))

    @server.resource("authz://policy", title="Active policy", mime_type="text/plain")
    async def active_policy() -> str:
        found = (await authz(client.policy()))["policy"]
        return found["src"] if found else ""

    for name in (each.name for each in documents.documents()):
        read = functools.partial(_document, name)
        title = documents.document(name).title
        server.resource(f"authz://docs/{name}", name=name, title=title, mime_type="text/markdown")(read)
    return server


def _document(name: str) -> str:
    return documents.document(name).text


def _reference(text: str) -> EntityRef:
    value = value_from_text(text)
    return value.type, value.id


def _fact(text: str) -> types.FactJson:
    found: Any = fact_to_json(fact_from_text(text))
    return found


def _pattern(text: str) -> types.FactPatternJson:
    pattern = pattern_from_text(text)
    parts = ({"type": arg.type, "id": arg.id} for arg in pattern.args)
    args: Any = [{name: part for name, part in each.items() if part is not None} or None for each in parts]
    return {"predicate": pattern.predicate, "args": args}


def _given(context_facts: Sequence[str], as_of: int | str | None) -> client.QuestionOptions:
    given: client.QuestionOptions = {}
    if context_facts:
        given["context_facts"] = [_fact(text) for text in context_facts]
    if as_of is not None:
        given["as_of"] = as_of
    return given


class AgentTools:
    """Tools, whose docstrings are sent to agents."""

    def __init__(self, authz: AsyncAuthzClient):
        self._authz = authz

    async def _answer(self, call: Call[Any]) -> dict[str, Any]:
        return {**await self._authz(call)}


class ReadTools(AgentTools):
    """Tools that change nothing."""

    def __init__(self, authz: AsyncAuthzClient):
        super().__init__(authz)
        self.tools: tuple[Callable[..., Awaitable[Any]], ...] = (
            self.check, self.explain, self.what_would_allow, self.list_resources, self.list_actions, self.who,
            self.preview_policy,
        )  # fmt: skip

    async def check(
        self, actor: str, action: str, resource: str, context_facts: Sequence[str] = (), as_of: int | str | None = None
    ) -> dict[str, Any]:
        """Return whether an actor may perform an action on a resource. Unknown names are denied.

        Context facts count as stored, for this check only. `as_of` is an earlier revision number or RFC 3339 time.
        """
        given = _given(context_facts, as_of)
        return await self._answer(client.check(_reference(actor), action, _reference(resource), **given))

    async def explain(
        self, actor: str, action: str, resource: str, context_facts: Sequence[str] = (), as_of: int | str | None = None
    ) -> dict[str, Any]:
        """Explain a check: the proof if it is allowed, or for each rule what is missing if it is denied."""
        given = _given(context_facts, as_of)
        return await self._answer(client.explain(_reference(actor), action, _reference(resource), **given))

    async def what_would_allow(self, actor: str, action: str, resource: str) -> dict[str, Any]:
        """Find the smallest changes of facts that would allow a check that is denied now. Changes nothing."""
        found = await self._authz(client.explain(_reference(actor), action, _reference(resource), would_allow=True))
        return {"allowed": found["allowed"], **(found.get("would_allow") or {})}

    async def list_resources(
        self, actor: str, action: str, resource_type: str, as_of: int | str | None = None
    ) -> dict[str, Any]:
        """List the ids of resources of a type on which an actor may perform an action. `*` means every id."""
        found = await self._authz(client.resources(_reference(actor), action, resource_type, **_given((), as_of)))
        return _cut(found["results"], bool(found.get("next_page_token")))

    async def list_actions(self, actor: str, resource: str, as_of: int | str | None = None) -> dict[str, Any]:
        """List the actions that an actor may perform on a resource. `*` means every action."""
        call = client.actions(_reference(actor), _reference(resource), **_given((), as_of))
        return await self._answer(call)

    async def who(self, action: str, resource: str, actor_type: str, as_of: int | str | None = None) -> dict[str, Any]:
        """List the ids of actors of a type who may perform an action on a resource. `*` means every id."""
        found = await self._authz(client.who(actor_type, action, _reference(resource), **_given((), as_of)))
        return _cut(["*" if each["actor"] is None else each["actor"] for each in found["results"]])

    async def preview_policy(self, policy: str) -> dict[str, Any]:
        """Compare decisions by a policy with those by the active one, and run its tests. Nothing is published.

        Needs a key with the scope `policy`.
        """
        return await self._answer(client.preview(policy))


def _cut(ids: list[str], has_next_page: bool = False) -> dict[str, Any]:
    return {"results": ids[:MOST_IDS], "more": has_next_page or len(ids) > MOST_IDS}


class WriteTools(AgentTools):
    """Tools that change facts and the policy, only offered with `--allow-writes`."""

    def __init__(self, authz: AsyncAuthzClient):
        super().__init__(authz)
        self.tools = (self.change_facts, self.publish_policy)

    async def change_facts(
        self, inserts: Sequence[str] = (), deletes: Sequence[str] = (), expires_at: str | None = None
    ) -> dict[str, Any]:
        """Delete, then insert facts, all or none. In deletes, `_` matches anything, `User:_` any user.

        Inserted facts expire at `expires_at`, an RFC 3339 time.
        """
        end = {} if expires_at is None else {END: expires_at}
        facts: Any = [{**_fact(text), **end} for text in inserts]
        return await self._answer(client.change_facts(facts, [_pattern(text) for text in deletes]))

    async def publish_policy(self, policy: str, note: str) -> dict[str, Any]:
        """Test and publish a policy. Preview it first. The note says what changes and why."""
        return await self._answer(client.publish(policy, note=note))
