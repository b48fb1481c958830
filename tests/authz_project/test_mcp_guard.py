"""Tool calls of MCP servers of others are asked about before they run, for the user and for the agent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any
from uuid import UUID

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult

from authz_project.client import AsyncAuthzClient
from authz_project.mcp_guard import DENIED, MAPPING, MappingError, ToolGuard, checked, resolved
from tests.checks.conftest import fact

pytestmark = pytest.mark.one_database

POLICY = """
actor User {}
actor Agent {}
resource Document {
  permissions = ["read", "write"];
  roles = ["reader", "writer"];
  "read" if "reader";
  "write" if "writer";
}
resource tool { permissions = ["tools/call"]; roles = ["caller"]; "tools/call" if "caller"; }
has_permission(_: User, "read", document: Document) if is_public(document) and not is_blocked(document);
has_permission(_: Agent, "read", document: Document) if is_public(document) and not is_blocked(document);
"""
READ = {"action": {"name": "read"}, "resource": {"type": "Document", "id": "$params.arguments.document"}}
WRITE = {"action": {"name": "write"}, "resource": {"type": "Document", "id": "$params.arguments.target"}}
BOT = {"sub": "ann", "client_id": "bot"}


@pytest.fixture
def environment(service):
    client = service.fresh_client()
    assert client.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    roles = [("User:ann", "reader", "plan"), ("Agent:bot", "reader", "plan"), ("User:ann", "writer", "plan"),
             ("User:ann", "reader", "diary"), ("Agent:bot", "reader", "secret")]  # fmt: skip
    inserts = [fact("has_role", who, role, f"Document:{name}") for who, role, name in roles]
    inserts += [fact("is_public", "Document:7"), fact("is_blocked", "Document:7")]
    assert client.post("/batch", [{"inserts": inserts}]).status_code == 200
    return client


class Made:
    """A server with guarded tools, and what ran."""

    def __init__(self, authz: AsyncAuthzClient, claims: Callable[[], dict] | None = lambda: BOT, **options: Any):
        self.ran: list[Any] = []
        self.guard = guard = ToolGuard(authz, "User", "Agent", **({"claims": claims} if claims else {}))

        @guard.tool(READ, description="Read a document.")
        async def read(document: str) -> str:
            self.ran.append(document)
            return f"text of {document}"

        @guard.tool(READ)
        def number(document: int) -> str:
            self.ran.append(document)
            return "text"

        @guard.tool(READ, WRITE)
        async def copy(document: str, target: str) -> str:
            self.ran.append((document, target))
            return "copied"

        @guard.tool()
        async def weather(city: str = "Rome") -> str:
            self.ran.append(city)
            return "sunny"

        self.server = guard.server("documents", log_level="CRITICAL", **options)

        @self.server.tool()
        async def unguarded() -> str:
            self.ran.append("unguarded")
            return "ran"


async def outcome(session: Client, tool: str, **arguments: object) -> object:
    """The tool's text, or the code of the error."""
    try:
        found: CallToolResult = await session.call_tool(tool, arguments)
    except MCPError as reason:
        return reason.code
    return "error" if found.is_error else found.content[0].text


def talk(environment, conversation: Callable[[Made, Client], Awaitable[Any]], *, url: str = "", **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncAuthzClient(url or environment.origin, environment.key, timeout=30) as authz:
            made = Made(authz, **options)
            async with Client(made.server) as session:
                return await conversation(made, session)

    return anyio.run(run)


def test_a_tool_runs_if_user_and_agent_may(environment):
    async def conversation(made: Made, session: Client) -> None:
        assert await outcome(session, "read", document="plan") == "text of plan"
        assert await outcome(session, "read", document="diary") == DENIED, "the agent may not"
        assert await outcome(session, "read", document="secret") == DENIED, "the user may not"
        assert await outcome(session, "copy", document="plan", target="plan") == DENIED, "the agent may not write"
        assert await outcome(session, "weather") == DENIED
        assert await outcome(session, "unguarded") == DENIED
        assert made.ran == ["plan"]
        inserts = [fact("has_role", who, "caller", "tool:weather") for who in ("User:ann", "Agent:bot")]
        inserts += [fact("has_role", "Agent:bot", "writer", "Document:plan") | {"expires_at": "2099-01-01T00:00:00Z"}]
        assert environment.post("/batch", [{"inserts": inserts}]).status_code == 200
        assert await outcome(session, "weather") == "sunny"
        assert await outcome(session, "copy", document="plan", target="plan") == "copied"

    talk(environment, conversation)


def test_the_question_is_about_the_argument_that_the_tool_gets(environment):
    """`" 7"` would be another document than the blocked 7, which the tool would get."""

    async def conversation(made: Made, session: Client) -> None:
        for written in ("7", " 7", "+7", "07", "7.0", 7):
            assert await outcome(session, "number", document=written) in (DENIED, "error"), written
        assert made.ran == []
        inserts = [fact("is_public", "Document:8")]
        assert environment.post("/batch", [{"inserts": inserts}]).status_code == 200
        assert await outcome(session, "number", document=" 8") == "text"
        assert made.ran == [8]

    talk(environment, conversation)


def test_another_tool_of_the_same_name_does_not_run(environment):
    """The library keeps the first of two tools of one name: one that was given beside the guard, or in its place."""
    ran = []

    def read(document: str) -> str:
        ran.append(document)
        return "text"

    async def conversation(made: Made, session: Client) -> None:
        assert await outcome(session, "read", document="plan") == DENIED
        assert await outcome(session, "number", document=7) == DENIED
        made.server.remove_tool("number")
        made.server.add_tool(read, name="number")
        assert await outcome(session, "number", document="plan") == DENIED
        assert ran == made.ran == []

    talk(environment, conversation, tools=[Tool.from_function(read)])


def test_a_server_that_the_guard_did_not_create_runs_nothing(environment):
    ran = []

    async def conversation(made: Made, session: Client) -> None:
        with pytest.raises(ValueError, match="has one server"):
            made.guard.server("another")
        async with Client(MCPServer("another", extensions=[another], log_level="CRITICAL")) as session:
            with pytest.raises(MCPError, match="not created by the guard"):
                await session.call_tool("read", {"document": "plan"})
        assert ran == []

    another = ToolGuard(AsyncAuthzClient(environment.origin, environment.key), "User", claims=lambda: BOT)
    another.tool(READ, name="read")(lambda document: ran.append(document))
    talk(environment, conversation)


def test_the_mapping_is_advertised(environment):
    async def conversation(made: Made, session: Client) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools["copy"].meta[MAPPING] == [READ, WRITE] and tools["read"].description == "Read a document."

    talk(environment, conversation)


@pytest.mark.parametrize(("claims", "code"), [
    ({}, INVALID_PARAMS), ({"sub": "ann"}, INVALID_PARAMS), ({"client_id": "bot"}, INVALID_PARAMS),
    ({"sub": "", "client_id": "bot"}, DENIED), ({"sub": ["ann"], "client_id": "bot"}, DENIED),
    ({"sub": "eve", "client_id": "bot"}, DENIED), ({"sub": "ann", "client_id": "eve"}, DENIED),
])  # fmt: skip
def test_nobody_is_let_through_without_an_identity(environment, claims, code):
    async def conversation(made: Made, session: Client) -> None:
        assert await outcome(session, "read", document="plan") == code
        assert made.ran == []

    talk(environment, conversation, claims=lambda: claims)


def test_nothing_runs_if_the_service_cannot_be_asked(environment):
    async def conversation(made: Made, session: Client) -> None:
        assert await outcome(session, "read", document="plan") == INTERNAL_ERROR
        assert made.ran == []

    talk(environment, conversation, url="http://127.0.0.1:9")
    environment.key = "e_no"
    talk(environment, conversation)


@pytest.mark.parametrize("answer", [
    {}, {"evaluations": []}, {"evaluations": [{"decision": True}]}, {"evaluations": [{"decision": 1}] * 2},
    {"evaluations": [{}] * 2}, None,
])  # fmt: skip
def test_only_a_whole_answer_allows(answer):
    async def answers(call: object) -> object:
        return answer

    async def run() -> None:
        made = Made(answers)
        async with Client(made.server) as session:
            assert await outcome(session, "read", document="plan") in (DENIED, INTERNAL_ERROR)
        assert made.ran == []

    anyio.run(run)


# ---- over HTTP -----------------------------------------------------------------------------------------------------


class Verifier:
    """Takes a token for the name of its user."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="bot", scopes=[], subject=token) if token != "none" else None


def test_each_caller_has_the_identity_of_its_token(environment):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"

    async def as_user(name: str) -> object:
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {name}"})
        async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as session:
            return [await outcome(session, "read", document="plan") for _ in range(3)]

    async def run() -> dict[str, object]:
        found: dict[str, object] = {}

        async def ask(name: str) -> None:
            found[name] = await as_user(name)

        async with anyio.create_task_group() as group:
            for name in ("ann", "eve", "bob"):
                group.start_soon(ask, name)
        return found

    auth = AuthSettings(
        issuer_url="https://auth.example.com", resource_server_url=f"{url}/mcp", validate_token_resource=False
    )
    made = Made(
        AsyncAuthzClient(environment.origin, environment.key, timeout=30), None, auth=auth, token_verifier=Verifier()
    )
    server = uvicorn.Server(uvicorn.Config(made.server.streamable_http_app(), port=port, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        assert anyio.run(run) == {"ann": ["text of plan"] * 3, "eve": [DENIED] * 3, "bob": [DENIED] * 3}
    finally:
        server.should_exit = True
        thread.join(30)


# ---- mappings ------------------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


KNOWN = {
    "params": {"name": "t", "arguments": {"id": "x", "deep": {"er": 5}, "colour": Colour.RED}},
    "token": {"sub": "a"},
}


@pytest.mark.parametrize(("template", "value"), [
    ("text", "text"), (5, 5), (True, True), ("$$5", "$5"), ("$params.name", "t"), ("$params.arguments.deep.er", 5),
    ("$params.arguments.colour", "red"), ("$token.?client_id", None),
    ({"a": "$token.?b", "c": "$token.sub"}, {"c": "a"}),
    ({"a": ["$token.?b", "$token.sub", "b", ("$params.name",)]}, {"a": ["a", "b", ["t"]]}),
])  # fmt: skip
def test_expressions_are_paths(template, value):
    assert resolved(template, KNOWN) == value


@pytest.mark.parametrize("template", ["$token.role", "$params.arguments.id.more", "$params.arguments.?deep.none"])
def test_a_path_that_leads_nowhere_is_an_error(template):
    with pytest.raises(MappingError, match="failed: no"):
        resolved(template, KNOWN)


@pytest.mark.parametrize("mapping", [
    {}, {"action": {"name": "read"}}, READ | {"more": {}}, READ | {"action": "read"},
    READ | {"resource": {"type": "D"}},
    READ | {"subject": {"id": "$params.arguments.user"}}, READ | {"subject": {"type": "Admin"}},
    READ | {"action": {"name": "$params.name + 'x'"}}, READ | {"context": {"deep": {"er": "$x"}}},
    READ | {"context": {"deep": ["a", "$x"]}},
])  # fmt: skip
def test_a_mapping_that_cannot_be_read_is_refused_at_the_start(mapping):
    with pytest.raises(MappingError):
        checked(mapping)


@pytest.mark.parametrize("value", [None, True, 1.5, ["a"], {"a": 1}])
def test_an_id_has_one_spelling(value):
    guard = ToolGuard(None, "User")
    mapping = READ if value is not None else READ | {"resource": {"type": "Document", "id": "$params.arguments.?none"}}
    with pytest.raises(MappingError, match="must be a string or an integer"):
        guard._request({"name": "t", "arguments": {"document": value}}, BOT, [mapping])
    body = guard._request({"name": "t", "arguments": {"document": UUID(int=1)}}, BOT, [READ])
    assert body["evaluations"][0]["resource"]["id"] == "00000000-0000-0000-0000-000000000001"
