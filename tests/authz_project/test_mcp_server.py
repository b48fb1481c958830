"""The Model Context Protocol server, asked by the library's client over standard input and output."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import psutil
import pytest
import requests
from django.core.management import CommandError, call_command
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult

from authz_project.documents import names
from tests.authz_project.test_start import manage
from tests.checks.conftest import POLICY, fact
from tests.service import ROOT

pytestmark = pytest.mark.one_database

END = "2099-01-01T00:00:00Z"
COMMAND = "from authz_project.command_line import main; main()"
READING = {
    "check", "explain", "what_would_allow", "list_resources", "list_actions", "who", "preview_policy",
}  # fmt: skip


@pytest.fixture
def environment(service):
    client = service.fresh_client()
    assert client.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    inserts = [fact("has_role", "User:ann", "reader", "Repo:a"), fact("has_role", "User:bob", "writer", "Repo:a")]
    assert client.post("/batch", [{"inserts": inserts}]).status_code == 200
    return client


def talk(client, conversation: Callable[[Client], Awaitable[Any]], *options: str, key: str | None = None) -> Any:
    """Start `authz mcp`, hold a conversation with it, and return its result."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", COMMAND, "mcp", "--url", client.origin, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "AUTHZ_KEY": key or client.key,
             "DJANGO_SETTINGS_MODULE": "authz_project.settings"},
    )  # fmt: skip

    async def run() -> Any:
        async with Client(stdio_client(parameters)) as session:
            return await conversation(session)

    return anyio.run(run)


def text_of(result: CallToolResult) -> str:
    return "".join(part.text for part in result.content)


def test_agents_ask_and_read(environment):
    async def conversation(session: Client) -> None:
        tools = (await session.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations.read_only_hint and tool.description for tool in tools)

        async def asked(tool: str, **arguments: object) -> Any:
            result = await session.call_tool(tool, arguments)
            assert not result.is_error, text_of(result)
            return result.structured_content

        ann = {"actor": "User:ann", "resource": "Repo:a"}
        assert await asked("check", **ann, action="read") == {"allowed": True}
        assert await asked("check", **ann, action="write") == {"allowed": False}
        root = ["is_root(User:cat)"]
        assert (await asked("check", actor="User:cat", action="read", resource="Repo:b", context_facts=root))["allowed"]
        assert not (await asked("check", **ann, action="read", as_of=1))["allowed"]
        raed = {"warning": 'unknown action "raed" (did you mean "read"?)'}
        assert await asked("check", **ann, action="raed") == {"allowed": False} | raed
        assert (await asked("who", action="raed", resource="Repo:a", actor_type="User")).items() >= raed.items()
        assert (await asked("explain", **ann, action="read"))["proof"]["kind"] == "rule"
        assert (await asked("explain", **ann, action="write"))["obstacles"]
        ways = (await asked("what_would_allow", **ann, action="write"))["changes"]
        assert {"insert": [fact("has_role", "User:ann", "writer", "Repo:a")], "delete": []} in ways
        assert await asked("list_resources", actor="User:ann", action="read", resource_type="Repo") == {
            "results": ["a"], "more": False,
        }  # fmt: skip
        assert await asked("list_actions", **ann) == {"results": ["read"]}
        found = await asked("who", action="read", resource="Repo:a", actor_type="User")
        assert found == {"results": ["ann", "bob"], "more": False}
        draft = POLICY.replace('"write" if "writer";', '"write" if "reader";')
        preview = await asked("preview_policy", policy=draft)
        assert preview["differences"] == [{"check": 'allow(User:ann, "write", Repo:a)', "allowed": True}]

        resources = {str(each.uri) for each in (await session.list_resources()).resources}
        assert resources == {"authz://policy", *(f"authz://docs/{name}" for name in names())}
        (policy,) = (await session.read_resource("authz://policy")).contents
        (page,) = (await session.read_resource("authz://docs/language")).contents
        assert policy.text == POLICY and page.text.startswith("# ")

    talk(environment, conversation)


def test_errors_say_what_is_wrong(environment):
    async def conversation(session: Client) -> list[str]:
        calls = (
            ("check", {"actor": "ann", "action": "read", "resource": "Repo:a"}),
            ("check", {"actor": "User:ann", "action": "read", "resource": "Repo:a", "context_facts": ["p("]}),
            ("preview_policy", {"policy": "actor"}),
            ("change_facts", {"inserts": []}),
        )
        results = [await session.call_tool(name, arguments) for name, arguments in calls]
        assert all(result.is_error for result in results)
        return [*map(text_of, results)]

    actor, context, policy, unknown = talk(environment, conversation)
    assert "write it as `User:alice`" in actor
    assert "write a fact as `has_role(User:ann" in context
    assert "400: policy:1:6: unexpected end of the policy" in policy
    assert unknown == "Unknown tool: change_facts"


def test_a_refused_key_is_told(environment):
    async def conversation(session: Client) -> str:
        arguments = {"actor": "User:ann", "action": "read", "resource": "Repo:a"}
        with pytest.raises(MCPError):
            await session.read_resource("authz://policy")
        return text_of(await session.call_tool("check", arguments))

    assert "401: " in talk(environment, conversation, key="e_no")


def test_writes_are_offered_only_where_they_are_allowed(environment):
    async def conversation(session: Client) -> None:
        assert {tool.name for tool in (await session.list_tools()).tools} == {
            *READING,
            "change_facts",
            "publish_policy",
        }
        inserted = ['has_role(User:cat, "reader", Repo:b)']
        arguments = {
            "inserts": inserted,
            "deletes": ["has_role(User:ann, _, Repo:_)"],
            "expires_at": "2099-01-01T00:00:00Z",
        }
        result = await session.call_tool("change_facts", arguments)
        assert not result.is_error, text_of(result)
        check = {"action": "read", "resource": "Repo:b"}
        asked = [await session.call_tool("check", {**check, "actor": name}) for name in ("User:cat", "User:ann")]
        assert [each.structured_content["allowed"] for each in asked] == [True, False]
        result = await session.call_tool("publish_policy", {"policy": POLICY + "# again\n", "note": "a comment"})
        assert text_of(result).count("version 2"), text_of(result)

    talk(environment, conversation, "--allow-writes")
    facts = environment.get("/facts", params={"args.0.id": "cat"}).json()
    assert [each["expires_at"] for each in facts] == [END]


def test_a_key_that_only_reads_changes_nothing(environment, service, tmp_path):
    variables = psutil.Process(service.process.pid).environ()
    slug, url = environment.key.split("_")[1], variables["DATABASE_URL"]
    options = ("--environment", slug, "--scope", "read")
    key = manage(tmp_path, url, "api_keys", "create", *options, SECRET_KEY=variables["SECRET_KEY"]).strip()

    async def conversation(session: Client) -> None:
        for tool, arguments in (
            ("change_facts", {"deletes": ["has_role(User:ann, _, Repo:_)"]}),
            ("publish_policy", {"policy": POLICY + "# again\n", "note": "a comment"}),
            ("preview_policy", {"policy": POLICY}),
        ):
            result = await session.call_tool(tool, arguments)
            assert result.is_error and "403: " in text_of(result), (tool, text_of(result))

    talk(environment, conversation, "--allow-writes", key=key)
    assert environment.get("/facts", params={"args.0.id": "ann"}).json()


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "options", "told"), [
    ("", (), "AUTHZ_KEY is not set"), ("e_x\ne_y", (), "AUTHZ_KEY: the API key is empty, or has characters"),
    ("e_x", ("--http", "8765", "--allow-writes"), "--allow-writes is not supported"),
])  # fmt: skip
def test_what_cannot_be_served_is_told(monkeypatch, key, options, told):
    monkeypatch.setenv("AUTHZ_KEY", key)
    with pytest.raises(CommandError, match=told):
        call_command("mcp", *options)


def test_http_is_served_to_this_machine_by_its_own_names(environment):
    """A page of a browser that resolves its own name to this machine is refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    variables = {
        "PYTHONPATH": str(ROOT),
        "AUTHZ_KEY": environment.key,
        "DJANGO_SETTINGS_MODULE": "authz_project.settings",
    }
    command = [sys.executable, "-c", COMMAND, "mcp", "--url", environment.origin, "--http", str(port)]
    process = subprocess.Popen(command, env=os.environ | variables)

    async def tools() -> set[str]:
        async with Client(f"http://127.0.0.1:{port}/mcp") as session:
            return {tool.name for tool in (await session.list_tools()).tools}

    try:
        url = f"http://127.0.0.1:{port}/mcp"
        while process.poll() is None:
            try:
                assert requests.post(url, headers={"Host": "evil.example"}, json={}, timeout=60).status_code == 421
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        assert anyio.run(tools) == READING
    finally:
        process.terminate()
        process.wait(30)
