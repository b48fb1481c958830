"""The typed client: each of its functions against a server, both ways, and its types against the description."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from authz_project import client
from authz_project.client import AsyncAuthzClient, AuthzClient, Call, RequestRefused
from authz_project.openapi.schemas import SHAPES
from tests.checks.conftest import POLICY, fact, value
from tests.client_types import text
from tests.contract import assert_fits, document
from tests.service import ROOT

pytestmark = pytest.mark.one_database

ANN, BOB, A, B = ("User", "ann"), ("User", "bob"), ("Repo", "a"), ("Repo", "b")
READER = fact("has_role", "User:ann", "reader", "Repo:a")
WRITER = fact("has_role", "User:ann", "writer", "Repo:a")
OF_ANN = {"predicate": "has_role", "args": [value("User:ann"), None, {"type": "Repo"}]}
EVALUATION = {"subject": value("User:ann"), "action": {"name": "read"}, "resource": value("Repo:a")}


@pytest.fixture
def environment(service):
    made = service.fresh_client()
    with AuthzClient(made.origin + "/", made.key, timeout=60) as authz:
        authz(client.publish(POLICY, "main.polar"))
        authz(client.change_facts([READER, fact("has_role", "User:bob", "writer", "Repo:b")]))
    return made


def conversation() -> list[tuple[Call[Any], Any]]:
    """Each function of the client, with its answer, or what is looked at of it."""
    draft = POLICY.replace('"write" if "writer";', '"write" if "reader";')
    ending = fact("has_role", "User:cat", "reader", "Repo:a") | {"expires_at": "2099-01-01T00:00:00Z"}
    return [
        (client.check(ANN, "read", A), {"allowed": True}),
        (client.check(ANN, "read", A, as_of=1), {"allowed": False}),
        (client.check(ANN, "write", A, context_facts=[WRITER]), {"allowed": True}),
        (client.check_each([(ANN, "read", A), (ANN, "read", B)]), {"results": [True, False]}),
        (client.actions(BOB, B), {"results": ["read", "write"]}),
        (client.resources(BOB, "read", "Repo"), {"results": ["b"], "next_page_token": None}),
        (client.who("User", "read", A), {"results": [{"actor": "ann", "action": "read", "resource": "a"}]}),
        (client.explain(ANN, "read", A), lambda found: found["proof"]["because"]),
        (client.explain(ANN, "write", A, would_allow=True), lambda found: found["would_allow"]["changes"]),
        (client.explain(ANN, "read", A, as_of=1, policy_version=1), lambda found: found["obstacles"]),
        (client.evaluations({"evaluations": [EVALUATION]}), {"evaluations": [{"decision": True}]}),
        (client.facts("has_role", [ANN]), [READER]),
        (client.facts(as_of=1), []),
        (client.history(args=[ANN]), lambda found: found["results"][0]["inserted"] == [READER]),
        (client.changes(after=1, predicates=["has_role"]), lambda found: len(found["changes"][0]["inserted"]) == 2),
        (client.review(1), lambda found: [each["state"] for each in found["results"]] == ["gained"] * 3),
        (client.review(at=2, actor="User:bob", action="write"), lambda found: len(found["results"]) == 1),
        (client.policy(), {"policy": {"src": POLICY, "filename": "main.polar"}}),
        (client.metadata(1), lambda found: found["metadata"]["resources"]["Repo"]["roles"] == ["reader", "writer"]),
        (client.preview(draft), lambda found: found["differ"] == 1),
        (client.change_facts([ending], [OF_ANN]), {"message": "Batch applied"}),
        (client.check(ANN, "read", A), {"allowed": False}),
        (client.check(("User", "cat"), "read", A), {"allowed": True}),
        (client.publish(draft, note="more"), lambda found: "version 2" in found["message"]),
    ]  # fmt: skip


def hold(call: Call[Any], wanted: Any, answer: Any) -> None:
    assert wanted(answer) if callable(wanted) else answer == wanted, (call, answer)
    described = document()["paths"][call.path][call.method.lower()]
    assert_fits(described["responses"]["200"]["content"]["application/json"]["schema"], answer)


def test_every_function_asks_a_server(environment):
    with AuthzClient(environment.origin, environment.key, timeout=60) as authz:
        for call, wanted in conversation():
            hold(call, wanted, authz(call))


def test_every_function_asks_a_server_asynchronously(environment):
    async def run() -> None:
        async with AsyncAuthzClient(environment.origin, environment.key, timeout=60) as authz:
            for call, wanted in conversation():
                hold(call, wanted, await authz(call))

    asyncio.run(run())


def test_every_function_is_tried():
    public = {name for name, each in vars(client).items() if callable(each) and not name.startswith("_")}
    functions = {name for name in public if getattr(getattr(client, name), "__module__", "") == client.__name__}
    tried = {name for name in functions if f"client.{name}(" in Path(__file__).read_text()}
    assert functions - tried == {"AsyncAuthzClient", "AuthzClient", "Call", "QuestionOptions", "RequestRefused"}


@pytest.mark.parametrize(("call", "status", "message"), [
    (client.check(("User", ""), "read", A), 400, "actor_id: must not be empty"),
    (client.policy(9), 404, "version 9"),
    (client.changes(after=9, wait=99), 400, "wait: must be"),
    (client.publish("actor"), 400, "unexpected end"),
])  # fmt: skip
def test_a_refusal_is_an_exception(environment, call, status, message):
    with AuthzClient(environment.origin, environment.key, timeout=60) as authz, pytest.raises(RequestRefused) as caught:
        authz(call)
    assert caught.value.status == status and message in caught.value.message


def test_unknown_words_are_told(environment, caplog):
    warnings: list[str] = []
    with AuthzClient(environment.origin, environment.key, on_warning=warnings.append) as authz:
        assert not authz(client.check(ANN, "raed", A))["allowed"]
        assert authz(client.check(ANN, "read", A))["allowed"]
    assert warnings == ['unknown action "raed" (did you mean "read"?)'] and not caplog.messages
    with AuthzClient(environment.origin, environment.key) as authz:
        authz(client.resources(ANN, "read", "Rep"))
    assert caplog.messages == ['unknown type "Rep" (did you mean "Repo"?)']


def test_a_key_is_in_no_message(environment):
    key = f"e_{'x' * 40}"
    for url, status in ((environment.origin, 401), ("http://127.0.0.1:9", None)):
        with AuthzClient(url, key) as authz, pytest.raises(RequestRefused) as caught:
            authz(client.check(ANN, "read", A))
        assert caught.value.status == status and key not in str(caught.value)


@pytest.mark.parametrize("kind", [AuthzClient, AsyncAuthzClient])
@pytest.mark.parametrize("wrong", ["{}\nx", "{} x", "\0{}", "é{}", "…{}"])
def test_a_key_that_no_header_can_have_is_refused_without_being_told(kind, wrong):
    secret = "x" * 40
    with pytest.raises(ValueError, match="the API key is empty, or has characters") as caught:
        kind("http://127.0.0.1:9", wrong.format(secret))
    assert secret not in str(caught.value)
    with pytest.raises(ValueError, match="the API key is empty"):
        kind("http://127.0.0.1:9", " \n")


def test_a_line_break_after_the_key_does_not_matter(environment):
    with AuthzClient(environment.origin, f"{environment.key}\n", timeout=60) as authz:
        assert authz(client.check(ANN, "read", A))["allowed"]


class Overloaded(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<html>"
        self.send_response(503)
        self.send_header("Retry-After", "7")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *parts):
        pass


def test_what_a_proxy_says_is_a_refusal():
    server = HTTPServer(("127.0.0.1", 0), Overloaded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with AuthzClient(f"http://127.0.0.1:{server.server_port}", "key") as authz, pytest.raises(RequestRefused) as caught:
        authz(client.policy())
    server.shutdown()
    assert (caught.value.status, caught.value.retry_after) == (503, 7)


def test_what_follows_a_change_reads_it():
    """By the header `OsoOffset`, which a replica waits for or passes on."""
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("OsoOffset"))
        return httpx.Response(200, json={}, headers={"OsoOffset": {"/api/batch": "7"}.get(request.url.path, "9")})

    with AuthzClient("http://authz", "key") as authz:
        authz._http = httpx.Client(transport=httpx.MockTransport(answer))
        for call in (client.policy(), client.change_facts(), client.check(ANN, "read", A), client.policy()):
            authz(call)
    assert seen == [None, None, "7", "7"]


# ---- types ---------------------------------------------------------------------------------------------------------


def test_the_types_are_those_of_the_description():
    assert text(SHAPES) == (ROOT / "authz_project" / "client_types.py").read_text()


def test_a_type_checker_understands_them(tmp_path):
    (tmp_path / "program.py").write_text("""
from authz_project.client import AsyncAuthzClient, AuthzClient, change_facts, check, explain

def ask(authz: AuthzClient) -> str:
    found = authz(explain(("User", "ann"), "read", ("Repo", "a"), as_of=2))
    proof = found["proof"]
    return proof["text"] if proof else found["obstacle"]  # error: typeddict-item

async def ask_too(authz: AsyncAuthzClient) -> int:
    await authz(change_facts([{"predicate": "p", "args": [{"type": "User"}]}]))  # error: typeddict-item
    return (await authz(check(("User", "ann"), "read", ("Repo", "a"), as_off=2)))["allowed"]  # error: call-arg
""")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        tmp_path / "cache",
        "program.py",
    ]
    environment = {"MYPYPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    lines = (tmp_path / "program.py").read_text().splitlines()
    wanted = [(number, line.rpartition("# error: ")[2]) for number, line in enumerate(lines, 1) if "# error: " in line]
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    told = [(int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]")) for line in found]
    assert told == wanted, done.stdout + done.stderr


def test_it_needs_no_django():
    program = "import sys, authz_project.client; print({'django', 'rest_framework'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
