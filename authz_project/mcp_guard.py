"""Authorization of tool calls, for MCP servers: ask a service before each call.

    guard = ToolGuard(AsyncAuthzClient(url, key), subject_type="User", agent_type="Agent")

    @guard.tool({"action": {"name": "read"}, "resource": {"type": "Document", "id": "$params.arguments.document"}})
    async def read_document(document: str) -> str: ...

    server = guard.server("documents")

The mapping is that of COAZ, AuthZEN's profile for MCP: strings that begin with `$` are taken from the call (`params`)
or from the access token (`token`), all others are literal. The tool runs if the user is allowed and, with `agent_type`,
the agent too. After any error, it does not run. Needs `pip install "authz-project[mcp]"`, and no Django.
"""

import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any
from uuid import UUID

import anyio.to_thread
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, ToolBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams

from authz_project.client import AsyncAuthzClient, evaluations

log = logging.getLogger("authz.mcp_guard")

DENIED = -32001  # as the profile wants
MAPPING = "x-authzen-mapping"
DEFAULT = {"action": {"name": "tools/call"}, "resource": {"type": "tool", "id": "$params.name"}}
Claims = Mapping[str, Any]
_EXPRESSION = re.compile(r"\$\$.*|\$(?:params|token)(?:\.\??\w+)+", re.DOTALL)
_PARTS = {"subject", "action", "resource", "context"}
_REQUIRED = ("action", "resource")


class MappingError(ValueError):
    """A mapping cannot be read, or not be applied to a call."""


def token_claims() -> Claims:
    """Return the claims of the access token that the server has verified; empty without one, as on standard input."""
    token = get_access_token()
    if token is None:
        return {}
    given = {"client_id": token.client_id, "sub": token.subject}
    return {**(token.claims or {}), **{name: value for name, value in given.items() if value is not None}}


class ToolGuard(Extension):
    """Asks before each call of its tools, and denies calls of all others. Its tools get validated arguments."""

    identifier = "authz-project/tool-guard"

    def __init__(
        self,
        authz: AsyncAuthzClient,
        subject_type: str = "identity",
        agent_type: str | None = None,
        claims: Callable[[], Claims] = token_claims,
    ):
        self._authz, self._claims = authz, claims
        self._subject_type, self._agent_type = subject_type, agent_type
        self._tools: dict[str, ToolBinding] = {}
        self._server: MCPServer | None = None

    def tool(self, *mappings: Mapping[str, Any], **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function as a tool. All mappings must be allowed; the default asks to call the tool by its name.

        Options are those of `MCPServer.tool`.
        """
        templates = [checked(each) for each in mappings or (DEFAULT,)]

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            name = options.get("name") or function.__name__
            guarded = self._guarded(function, name, templates)
            meta = {MAPPING: templates, **(options.get("meta") or {})}
            others = {option: value for option, value in options.items() if option != "meta"}
            self._tools[name] = ToolBinding(guarded, meta, others)
            return function

        return register

    def tools(self) -> Sequence[ToolBinding]:
        return [*self._tools.values()]

    def server(self, name: str, **options: Any) -> MCPServer:
        """Return a server with the guarded tools. Options are those of `MCPServer`."""
        if self._server is not None:
            raise ValueError("a guard has one server")
        self._server = MCPServer(name, extensions=[self, *options.pop("extensions", ())], **options)
        return self._server

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Deny tools that were not registered here, which would run without being asked about."""
        if self._server is None:
            raise MCPError(DENIED, "Access denied: the server was not created by the guard's method `server`")
        if not await self._is_guarded(self._server, params.name):
            raise MCPError(DENIED, f"Access denied: tool {params.name!r} is not guarded")
        return await call_next(ctx)

    async def _is_guarded(self, server: MCPServer, name: str) -> bool:
        """Return whether the server has the guarded tool under this name, not another one, which shadows it."""
        own = self._tools.get(name)
        found = {each.name: each.meta or {} for each in await server.list_tools()} if own else {}
        return own is not None and found.get(name, {}).get(MAPPING) == (own.meta or {})[MAPPING]

    def _guarded(
        self, function: Callable[..., Any], name: str, templates: Iterable[Mapping[str, Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """Return the function behind the question, which is about the arguments that it gets: the validated ones."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        async def guarded(*args: Any, **given: Any) -> Any:
            bound = signature.bind(*args, **given)
            bound.apply_defaults()
            await self.check(name, bound.arguments, templates)
            if inspect.iscoroutinefunction(function):
                return await function(*args, **given)
            return await anyio.to_thread.run_sync(functools.partial(function, *args, **given))

        return guarded

    async def check(self, name: str, arguments: Mapping[str, Any], templates: Iterable[Mapping[str, Any]]) -> None:
        """Raise an `MCPError` unless all is allowed, to the user and to the agent."""
        try:
            body = self._request({"name": name, "arguments": arguments}, self._claims(), templates)
        except MappingError as reason:
            raise MCPError(INVALID_PARAMS, f"COAZ mapping error: {reason}") from None
        try:
            answer = await self._authz(evaluations(body))
            decisions = [each["decision"] for each in answer["evaluations"]]
        except Exception as reason:
            log.warning("tool %r was not called, because the authorization service did not answer: %s", name, reason)
            raise MCPError(INTERNAL_ERROR, "Authorization service unavailable") from None
        if len(decisions) != len(body["evaluations"]) or not all(each is True for each in decisions):
            raise MCPError(DENIED, f"Access denied: {name}")

    def _request(self, params: Claims, token: Claims, templates: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the body of a request with an evaluation of each mapping: for the user, and again for the agent."""
        known = {"params": params, "token": token}
        subject = {"type": self._subject_type, "id": resolved("$token.sub", known)}
        asked = []
        for template in templates:
            parts = {part: resolved(template[part], known) for part in _PARTS & template.keys()}
            parts["subject"] = {**parts.get("subject", {}), **subject}
            parts["context"] = {**parts.get("context", {}), **resolved({"agent": "$token.?client_id"}, known)}
            parts["resource"]["id"] = id_text(parts["resource"].get("id"))
            asked.append(parts)
        if self._agent_type is not None:
            agent = {"type": self._agent_type, "id": resolved("$token.client_id", known)}
            asked += [{**each, "subject": agent} for each in asked]
        return {"evaluations": asked}


# ---- mappings -------------------------------------------------------------------------------------------------------
# {"action": {"name": "read"}, "resource": {"type": "Document", "id": "$params.arguments.document"}}
#
# The profile allows any expression of CEL after the `$`. Here, it is a path: `$token.sub`, `$token.?client_id`, which
# may be missing, or `$params.arguments.document`; `$$5` is the text `$5`. Other expressions are refused at the start.


def checked(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mapping; raise a `MappingError` if it is malformed, or sets the subject's identity."""
    if mapping.keys() - _PARTS or any(not isinstance(part, Mapping) for part in mapping.values()):
        raise MappingError("must be an object of subject, action, resource and context")
    if any(part not in mapping for part in _REQUIRED) or {"type", "id"} - mapping["resource"].keys():
        raise MappingError("must have an action, and a resource with a type and an id")
    if {"type", "id"} & mapping.get("subject", {}).keys():
        raise MappingError("must not set the subject's type or id, which are those of the token")
    _check_paths(mapping)
    return mapping


def _check_paths(template: Any) -> None:
    if isinstance(template, Mapping):
        for inner in template.values():
            _check_paths(inner)
    elif isinstance(template, list | tuple):
        for inner in template:
            _check_paths(inner)
    elif isinstance(template, str) and template.startswith("$") and not _EXPRESSION.fullmatch(template):
        raise MappingError(f"expression {template!r} is not a path, such as $params.arguments.id")


def resolved(template: Any, known: Mapping[str, Any]) -> Any:
    """Return the template with expressions replaced by their values; optional ones that are missing are left out."""
    if isinstance(template, Mapping):
        found = {name: resolved(inner, known) for name, inner in template.items()}
        return {name: value for name, value in found.items() if value is not None}
    if isinstance(template, list | tuple):
        return [value for value in (resolved(inner, known) for inner in template) if value is not None]
    if not isinstance(template, str) or not template.startswith("$"):
        return template
    if template.startswith("$$"):
        return template[1:]
    value: Any = known
    for name in template[1:].split("."):
        if not isinstance(value, Mapping) or value.get(name.removeprefix("?")) is None:
            if name.startswith("?"):
                return None
            raise MappingError(f"expression {template!r} failed: no {name.removeprefix('?')!r}")
        value = value[name.removeprefix("?")]
    return value.value if isinstance(value, Enum) else value


def id_text(value: object) -> str:
    """Return a resource's id. Only values with one spelling have one."""
    if isinstance(value, str | UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise MappingError(f"a resource's id must be a string or an integer, not {type(value).__name__}")
