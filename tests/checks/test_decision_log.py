"""The decision log has a line for each question that is answered, and what happens to it is felt by nobody who asks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import orjson
import pytest
from django.core.management.base import CommandError

from authz_project.keys import create_key
from authz_project.management.commands.serve import refuse_closed_log
from authz_project.urls import endpoints
from authz_project.wsgi import application
from checks import views
from checks.decisions import log
from checks.decisions.log import Memo, Writer
from policy.models import PolicyVersion
from policy.publishing import activate
from tests.checks.conftest import POLICY, about, fact, publish, store, value

REPO_A = about("User:ann", "Repo:a")
CONTEXT = [fact("has_role", "User:cat", "reader", "Repo:a")]
BINDINGS = "facts: {}"
CHECK = {"actor": value("User:ann"), "action": "read", "resource": value("Repo:a")}
CALL = {
    "predicate": ["has_permission", ["user", "action", "repo"]],
    "constraints": {
        "user": {"type": "User", "ids": ["ann"]},
        "action": {"type": "String", "ids": ["read"]},
        "repo": {"type": "Repo", "ids": None},
    },
}
LISTED = {"query": about("User:ann", action="read", resource_type="Repo"), "column": "id", "data_bindings": BINDINGS}
EVALUATION = {
    "subject": value("User:ann"),
    "action": {"name": "read"},
    "resource": value("Repo:a") | {"properties": {"colour": "red"}},
}
QUESTIONS = {
    "authorize": ({**REPO_A, "action": "read"}, {"allowed": True}),
    "actions": (REPO_A, {"count": 1, "results": ["read"]}),
    "list": (
        about("User:ann", action="read", resource_type="Repo", page_size=10_000),
        {"count": 3, "results": ["a", "b", "p"]},
    ),
    "authorize_resources": (
        about("User:ann", action="read", resources=[value("Repo:a"), value("Repo:z")]),
        {"count": 1, "results": [value("Repo:a")]},
    ),
    "authorize_each": (
        {"checks": [CHECK, CHECK | {"action": "write"}]},
        {"count": 2, "allowed": 1, "results": [True, False]},
    ),
    "evaluate_query": (
        CALL,
        {"count": 3, "results": [{"user": "ann", "action": "read", "repo": name} for name in "abp"]},
    ),
    "query": (
        {"fact": fact("has_role", "User:bob", "writer", "Repo:a")},
        {"count": 1, "results": [fact("has_role", "User:bob", "writer", "Repo:a")]},
    ),
    "bulk_actions": ([REPO_A, about("User:dan", "Repo:a")], {"count": 2, "results": [["read"], []]}),
    "explain": ({**REPO_A, "action": "write"}, {"allowed": False}),
    "/access/v1/evaluation": (EVALUATION, {"allowed": True}),
    "/access/v1/evaluations": (
        EVALUATION | {"evaluations": [{}, {"action": {"name": "write"}}]},
        {"count": 2, "allowed": 1, "results": [True, False]},
    ),
    "/access/v1/search/subject": (
        EVALUATION | {"subject": {"type": "User"}, "page": {"limit": 1}},
        {"count": 1, "results": [value("User:ann")], "has_next_page": True},
    ),
    "/access/v1/search/resource": (
        EVALUATION | {"resource": {"type": "Repo"}},
        {"count": 3, "results": [value(f"Repo:{name}") for name in "abp"]},
    ),
    "/access/v1/search/action": (
        {"subject": value("User:ann"), "resource": value("Repo:a")},
        {"count": 1, "results": [{"name": "read"}]},
    ),
    "authorize_query": ({"query": {**REPO_A, "action": "read"}, "data_bindings": BINDINGS}, None),
    "actions_query": ({"query": REPO_A, "data_bindings": BINDINGS}, None),
    "list_query": (LISTED, None),
    "evaluate_query_local": (
        {"query": CALL, "mode": {"mode": "select", "query_vars_to_output_column_names": {"repo": "id"}}},
        None,
    ),
}


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """The file of a log that is written when the test says so."""
    made = Writer(str(tmp_path / "decisions"), log.line_of)
    made._thread = threading.current_thread()
    monkeypatch.setattr(log, "writer", made)
    views._answers.clear()
    return tmp_path / "decisions"


def path_of(name: str) -> str:
    """Where an endpoint is that the log names."""
    return name if name.startswith("/") else f"/{name}"


def lines(path: Path) -> list[dict]:
    log.writer.flush()
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_each_question_is_a_line(repos, path):
    for name, (question, answer) in QUESTIONS.items():
        said = repos.post(path_of(name), question, **{"X-Request-ID": f"the {name}".replace(" ", "-")})
        assert said.status_code == 200, said.content
        (line,) = lines(path)
        path.unlink()
        assert line["endpoint"] == name
        assert line["question"] == question
        assert line["request_id"] == f"the-{name}"
        assert line["environment"] == repos.environment.pk
        assert line["policy_version"] == 1
        assert line["key"].startswith("key ")
        assert 0 < line["microseconds"] < 60_000_000
        assert bool(log.tally_of(said.json())) == bool(answer), "only SQL is not counted"
        if answer:
            assert line["answer"] == answer
        else:
            assert line["answer"]["characters"] == len(said.json()["sql"])


def test_every_endpoint_that_asks_is_among_these():
    """Those that answer and change nothing, by the class that they are of."""
    asking = {f"/{name}".removeprefix("/api/") for name, each in endpoints.items() if hasattr(each, "reply")}
    assert asking == set(QUESTIONS)


def test_nothing_is_written_of_what_is_no_answer(repos, path):
    assert repos.post("/authorize", {}).status_code == 400
    assert repos.request("POST", "/authorize", QUESTIONS["authorize"][0], Authorization="Bearer e_x").status_code == 401
    assert repos.get("/facts").status_code == 200
    assert repos.post("/expect", {"request_id": "a", "expected": True}).status_code == 200
    assert lines(path) == []


def test_a_key_is_named_and_never_told(repos, path):
    _, token = create_key(repos.environment, "billing")
    repos.request("POST", "/authorize", QUESTIONS["authorize"][0], Authorization=f"Bearer {token}")
    (line,) = lines(path)
    assert line["key"].endswith('"billing"')
    text = path.read_text()
    assert token not in text and token.rpartition("_")[2] not in text


def test_an_answer_from_memory_is_a_line_as_well(repos, path):
    question = QUESTIONS["list"][0]
    for _ in range(4):
        repos.post("/list", question)
    found = lines(path)
    assert len(found) == 4
    assert len({orjson.dumps(line["answer"]) for line in found}) == 1
    assert {line["policy_version"] for line in found} == {1}


def test_the_version_is_that_of_the_answer(repos, path):
    repos.post("/authorize", QUESTIONS["authorize"][0])
    publish(repos, POLICY + "# again\n")
    repos.post("/authorize", QUESTIONS["authorize"][0])
    activate(repos.environment.pk, PolicyVersion.objects.get(number=1, environment=repos.environment).number)
    repos.post("/authorize", QUESTIONS["authorize"][0])
    assert [line["policy_version"] for line in lines(path)] == [1, 2, 1]


def test_without_a_policy_there_is_no_version(api, path):
    api.post("/authorize", QUESTIONS["authorize"][0])
    (line,) = lines(path)
    assert line["policy_version"] is None and line["answer"] == {"allowed": False}


def test_a_long_list_is_counted_and_told_apart(repos, path):
    store(repos, *(fact("is_public", f"Repo:x{number:03}") for number in range(50)))
    repos.post("/list", QUESTIONS["list"][0])
    store(repos, fact("is_public", "Repo:zz"))
    repos.post("/list", QUESTIONS["list"][0])
    first, second = (line["answer"] for line in lines(path))
    assert (first["count"], len(first["results"])) == (53, 20)
    assert first["results"] == second["results"] and first["digest"] != second["digest"]


def test_a_published_client_is_told(repos, path):
    question = {name: each for name, each in QUESTIONS["list"][0].items() if name != "page_size"}
    assert repos.post("/list", question, **{"X-OsoApiVersion": "0"}).status_code == 200
    assert [line["is_published_client"] for line in lines(path)] == [True]


def test_a_question_of_many_lines_is_one(repos, path):
    body = orjson.dumps(QUESTIONS["authorize"][0] | {"note": "a\nb\r\u2028"}, option=orjson.OPT_INDENT_2) + b"\r\n"
    assert repos.post("/authorize", body).status_code == 200
    (line,) = lines(path)
    assert path.read_bytes().count(b"\n") == 1
    assert line["question"] == orjson.loads(body)


# ---- settings ------------------------------------------------------------------------------------------------------


def test_of_a_sample_the_others_are_left_out(repos, path, settings):
    settings.DECISION_LOG_SAMPLE = 0.5
    for _ in range(100):
        repos.post("/authorize", QUESTIONS["authorize"][0])
    assert 20 < len(lines(path)) < 80


@pytest.mark.parametrize(("name", "is_denied"), [
    ("authorize", False), ("actions", False), ("list", False), ("authorize_resources", False),
    ("evaluate_query", False), ("authorize_each", True), ("bulk_actions", True), ("explain", True),
    ("authorize_query", False),
])  # fmt: skip
def test_denials_may_be_kept_whatever_the_sample(repos, path, settings, name, is_denied):
    settings.DECISION_LOG_SAMPLE, settings.DECISION_LOG_DENIED = 0.0, True
    repos.post(f"/{name}", QUESTIONS[name][0])
    assert len(lines(path)) == is_denied


def test_an_empty_list_is_a_denial(repos, path, settings):
    settings.DECISION_LOG_SAMPLE, settings.DECISION_LOG_DENIED = 0.0, True
    for _ in range(3):
        repos.post("/list", QUESTIONS["list"][0] | {"actor_id": "nobody", "action": "write"})
    assert [line["answer"] for line in lines(path)] == [{"count": 0, "results": []}] * 3


@pytest.mark.parametrize("name", ["authorize", "bulk_actions", "list_query"])
def test_context_facts_may_be_left_out(repos, path, settings, name):
    body = orjson.loads(orjson.dumps(QUESTIONS[name][0]))
    asked = body[0] if isinstance(body, list) else body.get("query", body)
    asked["context_facts"] = CONTEXT
    assert repos.post(f"/{name}", body).status_code == 200
    (whole,) = lines(path)
    settings.DECISION_LOG_CONTEXT = False
    assert repos.post(f"/{name}", body).status_code == 200
    _, without = lines(path)
    assert whole["question"] == body and "context_facts_left_out" not in whole
    assert without["context_facts_left_out"] == 1
    assert b"context_facts" not in orjson.dumps(without["question"])


def test_context_facts_are_left_out_however_their_key_is_written(repos, path, settings):
    settings.DECISION_LOG_CONTEXT = False
    body = orjson.dumps(QUESTIONS["authorize"][0] | {"context_facts": CONTEXT})
    assert repos.post("/authorize", body.replace(b"context_facts", b"context\\u005ffacts")).status_code == 200
    (line,) = lines(path)
    assert (line["question"], line["context_facts_left_out"]) == (QUESTIONS["authorize"][0], 1)


@pytest.mark.parametrize("name", ["authorize", "/access/v1/evaluation"])
def test_a_question_that_cannot_be_written_without_them_is_left_out(repos, path, settings, name):
    """Bodies that nest as deep are refused, unless they are large."""
    settings.DECISION_LOG_CONTEXT = False
    more = {"context_facts": CONTEXT, "large": "x" * (1 << 20)}
    body = orjson.dumps(QUESTIONS[name][0] | more)[:-1] + b',"deep":%b}' % (b"[" * 300 + b"]" * 300)
    assert repos.post(path_of(name), body).status_code == 200
    (line,) = lines(path)
    assert (line["question"], line["context_facts_left_out"]) == ({}, 1)


@pytest.mark.parametrize(
    ("name", "ignored", "left_out"),
    [
        ("authorize", {"query": {"context_facts": 5}}, 1),
        ("/access/v1/evaluation", {"evaluations": 7}, 1),
        ("/access/v1/evaluations", {"evaluations": [{}, {"context": 5}, {"action": {"properties": True}}]}, 3),
        ("/access/v1/search/subject", {"subject": {"type": "User", "properties": 7}, "evaluations": 7}, 2),
    ],
)
def test_a_question_is_kept_beside_ignored_members_of_the_same_names(repos, path, settings, name, ignored, left_out):
    settings.DECISION_LOG_CONTEXT = False
    body = QUESTIONS[name][0] | ignored
    assert repos.post(path_of(name), body).status_code == 200
    (line,) = lines(path)
    assert line["question"].keys() == body.keys() and line["context_facts_left_out"] == left_out


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_what_has_no_room_is_counted_and_told_once(repos, path, monkeypatch, caplog):
    monkeypatch.setattr(log, "ROOM", 3_000)
    for _ in range(10):
        assert repos.post("/authorize", QUESTIONS["authorize"][0]).json() == {"allowed": True}
    written = len(lines(path))
    assert 0 < written < 10
    log.writer.complain()
    log.writer.complain()
    (record,) = [each for each in caplog.records if each.name == "authz.decisions"]
    assert record.getMessage().startswith(f"dropped {10 - written} decisions from the decision log: ")


def test_a_log_that_cannot_be_written_fails_no_answer(repos, path, caplog):
    path.mkdir()
    for _ in range(3):
        assert repos.post("/authorize", QUESTIONS["authorize"][0]).json() == {"allowed": True}
    log.writer.flush()
    log.writer.complain()
    assert "dropped 3 decisions from the decision log: IsADirectoryError" in caplog.text
    path.rmdir()
    repos.post("/authorize", QUESTIONS["authorize"][0])
    assert len(lines(path)) == 1


def test_a_mistake_of_the_log_fails_no_answer(repos, path, monkeypatch, caplog):
    monkeypatch.setattr(log, "_entry", lambda *args: 1 / 0)
    assert repos.post("/authorize", QUESTIONS["authorize"][0]).json() == {"allowed": True}
    log.writer.complain()
    assert "dropped 1 decision from the decision log: ZeroDivisionError" in caplog.text


def test_what_nobody_can_summarise_costs_its_own_line_only(repos, path, monkeypatch, caplog):
    whole = log.summary_of
    monkeypatch.setattr(log, "_answer_json_of", Memo(log._summarised))  # which knows of none yet
    monkeypatch.setattr(log, "summary_of", lambda body: 1 / 0 if "allowed" in body else whole(body))
    repos.post("/authorize", QUESTIONS["authorize"][0])
    repos.post("/actions", QUESTIONS["actions"][0])
    assert [line["endpoint"] for line in lines(path)] == ["actions"]
    log.writer.complain()
    assert "dropped 1 decision from the decision log: ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_cut_off_spoils_no_other_line(repos, path, monkeypatch, caplog, more):
    """Lines that the disk takes whole stay, and a part of one does not, behind which other processes would go on."""
    repos.post("/authorize", QUESTIONS["authorize"][0])
    size = len(log.line_of(log.writer._waiting[0]))
    for _ in range(more):
        repos.post("/actions", QUESTIONS["actions"][0])
    write, places = os.write, [10 + size * more]

    def full(file: int, text: bytes) -> int:
        """The disk takes some bytes, and then no more."""
        if not places:
            raise OSError(28, "No space left on device")
        return write(file, bytes(text)[: places.pop()])

    monkeypatch.setattr(log.os, "write", full)
    log.writer.flush()
    monkeypatch.setattr(log.os, "write", write)
    repos.post("/authorize", QUESTIONS["authorize"][0])
    log.writer.flush()
    assert [orjson.loads(line)["endpoint"] for line in path.read_bytes().splitlines()] == ["authorize"] * (1 + more)
    log.writer.complain()
    assert "dropped 1 decision from the decision log: OSError: [Errno 28]" in caplog.text


def test_a_pipe_is_gone_on_with_after_what_was_cut_off(repos, path, monkeypatch):
    """From there nobody takes anything back."""
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write, places = os.write, [10]

    def full(file: int, text: bytes) -> int:
        if not places:
            raise OSError(11, "Resource temporarily unavailable")
        return write(file, bytes(text)[: places.pop()])

    repos.post("/authorize", QUESTIONS["authorize"][0])
    monkeypatch.setattr(log.os, "write", full)
    log.writer.flush()
    monkeypatch.setattr(log.os, "write", write)
    repos.post("/authorize", QUESTIONS["authorize"][0])
    log.writer.flush()
    torn, whole = os.read(reader, 1 << 16).splitlines()
    os.close(reader)
    assert len(torn) == 10 and orjson.loads(whole)["answer"] == {"allowed": True}


def test_a_pipe_that_nobody_reads_is_not_waited_for(repos, path, caplog):
    os.mkfifo(path)
    with pytest.raises(CommandError, match="nobody reads this pipe"):
        refuse_closed_log(str(path))
    repos.post("/authorize", QUESTIONS["authorize"][0])
    log.writer.flush()
    log.writer.complain()
    assert "dropped 1 decision from the decision log: OSError: [Errno 6]" in caplog.text


def test_the_file_may_be_moved_away(repos, path):
    repos.post("/authorize", QUESTIONS["authorize"][0])
    assert len(lines(path)) == 1
    path.rename(path.with_suffix(".1"))
    repos.post("/authorize", QUESTIONS["authorize"][0])
    assert len(lines(path)) == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_both_ways_to_an_endpoint_lead_here(repos, path):
    """The short one, and that of the framework, by which the tests above go."""
    body = orjson.dumps(QUESTIONS["authorize"][0])
    environ = {
        "REQUEST_METHOD": "POST", "PATH_INFO": "//api/authorize", "QUERY_STRING": "", "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": f"Bearer {repos.key}", "wsgi.input": path.parent / "body", "HTTP_X_REQUEST_ID": "short",
    }  # fmt: skip
    (path.parent / "body").write_bytes(body)
    with (path.parent / "body").open("rb") as environ["wsgi.input"]:
        assert b"".join(application(environ, lambda *args: None)) == b'{"allowed":true}'
    repos.post("/authorize", QUESTIONS["authorize"][0], **{"X-Request-ID": "short"})
    one, other = lines(path)
    assert {**one, "time": "", "microseconds": 0} == {**other, "time": "", "microseconds": 0}


def test_when_it_is_off_nothing_is_looked_at(repos, monkeypatch):
    monkeypatch.setattr(log, "_entry", lambda *args: 1 / 0)
    monkeypatch.setattr(log, "writer", None)
    assert repos.post("/authorize", QUESTIONS["authorize"][0]).json() == {"allowed": True}


def test_properties_are_left_out_like_context_facts(repos, path, settings):
    settings.DECISION_LOG_CONTEXT = False
    question = EVALUATION | {"context": {"ip": "10.0.0.1"}, "evaluations": [{"subject": EVALUATION["resource"]}]}
    assert repos.post("/access/v1/evaluations", question).status_code == 200
    (line,) = lines(path)
    assert line["context_facts_left_out"] == 3
    assert "red" not in str(line) and "10.0.0.1" not in str(line)


def test_kept_answers_of_two_endpoints_are_never_taken_for_each_other():
    """Each is known by a name of its own."""
    asking = [type(each) for each in endpoints.values() if hasattr(each, "reply")]
    assert len({(each.__module__, each.__name__) for each in asking}) == len(asking)
