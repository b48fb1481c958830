"""Events of agents in the decision log, and the page of decisions in the admin."""

from __future__ import annotations

import os
import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from checks.compare.preview import questions_of_text
from checks.decisions import log, page
from policy.active import program_of_version
from tests.checks.conftest import about, fact, remove
from tests.checks.test_decision_log import QUESTIONS, lines, path, path_of  # noqa: F401  a fixture
from tests.checks.test_replay_decisions import run
from tests.factories import EnvironmentFactory

pytestmark = pytest.mark.one_database
EVENT = {
    "agent_id": "bot", "session_id": "s-1", "users": [{"type": "User", "id": "ann"}], "timestamp": "2026-11-03T14:00Z",
}  # fmt: skip
CALL = EVENT | {"tool_name": "get_weather", "tool_parameters": {"city": "Rome"}, "more": [1]}
REQUEST = "/agents/event/tool_call_request"


@pytest.fixture
def logged(repos, path, settings):  # noqa: F811
    """Every kind of question in the log, whose file the page reads."""
    settings.DECISION_LOG = str(path)
    for name, (question, _answer) in QUESTIONS.items():
        assert repos.post(path_of(name), question).status_code == 200
    repos.post("/authorize", about("User:bob", "Repo:b", action="write"))
    repos.post(REQUEST, CALL)
    lines(path)
    return path


def shown(admin, **fields: str) -> str:
    """The page's text on one line, without its tags."""
    answer = admin.get("/admin/decisions/", fields)
    assert answer.status_code == 200, answer.status_code
    body = answer.content.decode().partition('<div id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def link(admin, fields: dict[str, str], title: str) -> str:
    """The first link of the page with this text."""
    body = admin.get("/admin/decisions/", fields).content.decode()
    return unescape(re.search(rf'<a [^>]*href="([^"]+)"[^>]*>{title}', body)[1])


def rows(admin, **fields: str) -> int:
    return admin.get("/admin/decisions/", fields).content.decode().count("<tr>") - 1


# ---- events --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "members"), [
    ("tool_call_request", {"tool_name": "look", "arguments": {"at": "this"}}),
    ("tool_call_response", {"tool_name": "look", "response": {"seen": True}}),
    ("tool_call_error", {"tool_name": "look", "error": "nothing there"}),
    ("message_from_user", {"message": "look"}),
    ("message_to_user", {"message": "seen"}),
])  # fmt: skip
def test_an_event_is_a_line(repos, path, kind, members):  # noqa: F811
    event, endpoint = EVENT | members, f"agents/event/{kind}"
    assert repos.post(f"/{endpoint}", event).json() == {"message": "recorded"}
    (line,) = lines(path)
    assert (line["endpoint"], line["question"], line["answer"]) == (endpoint, event, {"recorded": True})
    assert line["key"].startswith("key ") and line["environment"] == repos.environment.pk


def test_an_event_is_refused_like_a_question(repos, path):  # noqa: F811
    assert repos.post(REQUEST, CALL | {"agent_id": 7}).status_code == 400
    assert repos.post(REQUEST, []).status_code == 400
    assert repos.request("POST", REQUEST, CALL, Authorization="Bearer e_x").status_code == 401
    assert lines(path) == []


def test_without_a_log_the_answer_says_so(repos, monkeypatch):
    monkeypatch.setattr(log, "writer", None)
    assert repos.post(REQUEST, CALL).json() == {"message": "not recorded: DECISION_LOG is not set"}


def test_what_an_agent_said_may_be_left_out(repos, path, settings):  # noqa: F811
    settings.DECISION_LOG_CONTEXT = False
    repos.post(REQUEST, CALL)
    (line,) = lines(path)
    assert line["question"] == EVENT | {"tool_name": "get_weather"} and line["context_facts_left_out"] == 2
    assert "Rome" not in path.read_text()


def test_a_large_member_is_replaced_by_its_digest(repos, path):  # noqa: F811
    repos.post("/agents/event/message_to_user", EVENT | {"message": "x" * 20_000})
    (line,) = lines(path)
    assert line["question"] == EVENT | {
        "message": {"characters": 20_002, "digest": log._digest(b'"%b"' % (b"x" * 20_000))}
    }
    repos.post("/agents/event/message_to_user", EVENT | {"message": [["x" * 20_000]], "small": 1})
    assert lines(path)[1]["question"]["small"] == 1 and len(path.read_bytes()) < 2_000


def test_an_event_is_no_decision(repos, path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(log.spans, "is_on", True)
    monkeypatch.setattr(log, "_notice", lambda answer: pytest.fail("counted"))
    assert repos.post(REQUEST, CALL).status_code == 200


def test_events_are_not_asked_again(logged, version):
    code, out, errors = run(logged)
    assert (code, "agents/event" in out + errors, "unreadable" in out) == (0, False, False)
    program = program_of_version(version.pk)
    line = logged.read_text().splitlines()[-1]
    _, refused = questions_of_text(line, version.environment_id, (program, program))
    assert refused == ["line 1: it is an event of an agent"]


# ---- the page ------------------------------------------------------------------------------------------------------


def test_decisions_are_listed_the_last_one_first(logged, admin):
    text = shown(admin)
    assert text.index("bot for User:ann: tool_call_request get_weather") < text.index(
        'allow(User:bob, "write", Repo:b)'
    )
    assert rows(admin) == len(QUESTIONS) + 2
    assert "recorded" in text and "3 found" in text and "1 of 2 allowed" in text


FILTERS = (
    ({"actor": "User:bob"}, 1), ({"actor": "User:bob", "resource": "Repo:b"}, 1), ({"actor": "User:bo"}, 0),
    ({"actor": "User:bob", "action": "read"}, 0), ({"action": "get_weather"}, 1), ({"actor": "bot"}, 1),
    ({"resource": "Repo:b"}, 1), ({"outcome": "events"}, 1), ({"text": "s-1"}, 1), ({"text": "nowhere"}, 0),
    ({"actor": "User:ann", "outcome": "events"}, 1), ({"actor": "User:bob", "outcome": "allowed"}, 0),
    ({"actor": "User:bob", "outcome": "denied"}, 1), ({"until": "2020-01-01"}, 0), ({"since": "2099-01-01"}, 0),
    ({"since": "2020-01-01", "until": "2099-01-01", "outcome": "events"}, 1),
)  # fmt: skip


def test_a_filter_selects_lines(logged, admin):
    assert [(fields, max(0, rows(admin, **fields))) for fields, _ in FILTERS] == [*FILTERS]


def test_local_sql_is_found_by_its_actor(logged, admin):
    assert rows(admin, actor="User:ann", text="data_bindings") >= 3


def test_each_environment_has_its_own_lines(logged, admin):
    other = EnvironmentFactory(slug="other")
    assert "No decisions found" in shown(admin, environment=other.slug)


def test_a_link_shows_no_line_of_another_environment_that_has_taken_the_place(logged, admin):
    address, text = link(admin, {"actor": "User:bob"}, "20"), logged.read_bytes()
    assert "Replay" in admin.get(address).content.decode()
    environment = orjson.loads(text.splitlines()[-1])["environment"]
    logged.write_bytes(text.replace(b'"environment":%d,' % environment, b'"environment":%d,' % (environment ^ 1)))
    page_of_line = admin.get(address).content.decode()
    assert "Replay" not in page_of_line and "No decisions found" in page_of_line


def test_a_wrong_time_is_told(logged, admin):
    assert "Enter a time" in shown(admin, since="7") and "From:" in shown(admin, since="soon")


def test_a_row_leads_to_its_explanation_as_of_then(logged, admin, repos):
    address = link(admin, {"actor": "User:bob"}, "Explain")
    fields = parse_qs(urlsplit(address).query)
    assert (fields["actor"], fields["action"], fields["resource"]) == (["User:bob"], ["write"], ["Repo:b"])
    remove(repos, fact("has_role", "User:ann", "admin", "Org:o"))
    assert "Denied" in admin.get(address).content.decode()
    of_list = parse_qs(urlsplit(link(admin, {"text": '"page_size"'}, "Explain")).query)
    assert (of_list["kind"], of_list["resource"]) == (["list"], ["Repo"])


def test_an_action_with_spaces_is_explained_as_it_was_asked(admin, logged, repos):
    repos.post("/authorize", about("User:ann", "Repo:a", action=" read"))
    lines(logged)
    said = admin.get(link(admin, {"text": '" read"'}, "Explain")).content.decode()
    assert "Denied" in said and "the policy has no action" in said.lower()


def test_a_line_is_replayed(logged, admin, repos):
    line = link(admin, {"text": '"page_size"'}, r"\d{4}")
    before = " ".join(admin.get(line).content.decode().split())
    assert before.count("Same answer") == 2
    remove(repos, fact("is_public", "Repo:p"))
    after = " ".join(admin.get(line).content.decode().split())
    assert after.count("Same answer") == 1 and "Different answer: 2 found" in after
    assert len(lines(logged)) == len(QUESTIONS) + 2, "a replay is not logged"


def test_an_event_is_shown_whole_and_not_replayed(logged, admin):
    page_of_event = admin.get(link(admin, {"outcome": "events"}, r"\d{4}")).content.decode()
    assert "Rome" in page_of_event and "Replay" not in page_of_event


def test_markup_and_hidden_characters_in_the_log_are_text(logged, admin, repos):
    repos.post("/agents/event/message_from_user", EVENT | {"message": "<script>\u202e"})
    lines(logged)
    for answer in (admin.get("/admin/decisions/"), admin.get(link(admin, {"outcome": "events"}, r"\d{4}"))):
        text = answer.content.decode()
        assert "<script>\\" not in text and "&lt;script&gt;\\u202e" in text and "\u202e" not in text


@pytest.mark.parametrize("permissions", [(), ("view_policyversion",), ("view_signature",)])
def test_facts_and_policy_must_be_visible(logged, version, permissions):
    person = User.objects.create_user("bea", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(person)
    assert client.get("/admin/decisions/").status_code == client.get("/admin/go/decisions/").status_code == 403


def test_navigation_has_the_page_if_there_is_a_log(logged, admin, settings):
    assert "/admin/go/decisions/" in admin.get("/admin/").content.decode()
    assert admin.get("/admin/go/decisions/")["Location"] == "/admin/decisions/?environment=default"
    settings.DECISION_LOG = ""
    assert "/admin/go/decisions/" not in admin.get("/admin/").content.decode()
    os.mkfifo(pipe := logged.parent / "pipe")
    for name in ("", "-", str(logged.parent), str(pipe)):
        settings.DECISION_LOG = name
        assert "Set DECISION_LOG to a file" in shown(admin)


# ---- reading -------------------------------------------------------------------------------------------------------


def write(path, template: dict, numbers, pad: int = 0) -> None:  # noqa: F811
    """Write a line for each number: a minute's question, from the first minute of 2026 on."""
    with path.open("wb") as file:
        for number in numbers:
            time = f"2026-01-{1 + number // 1440:02}T{number // 60 % 24:02}:{number % 60:02}:00.000000Z"
            question = about(f"User:u{number}", "Repo:a", action="read", pad="x" * pad)
            file.write(orjson.dumps(template | {"time": time, "question": question}) + b"\n")


@pytest.fixture
def template(logged) -> dict:
    return orjson.loads(logged.read_bytes().splitlines()[0])


def test_pages_follow_each_other_both_ways(logged, admin, template, monkeypatch):
    monkeypatch.setattr(page, "_BLOCK", 1_000)
    write(logged, template, range(120))

    def users(address: str) -> list[int]:
        return [
            int(number) for number in re.findall(r"allow\(User:u(\d+)", unescape(admin.get(address).content.decode()))
        ]

    def next_of(address: str, title: str) -> str:
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        return link(admin, query, title)

    first = "/admin/decisions/?outcome=allowed"
    second = next_of(first, "Next")
    third = next_of(second, "Next")
    assert [*users(first), *users(second), *users(third)] == [*range(119, -1, -1)]
    assert users(next_of(third, "Previous")) == users(second)
    with logged.open("ab") as file:
        file.write(b'{"torn')
    assert "1 unreadable line skipped" in shown(admin, outcome="allowed")
    logged.rename(logged.with_suffix(".1"))
    write(logged, template, range(200, 202))
    assert users(third) == [201, 200], "after rotation, the first page of the new file is shown"


def test_no_request_reads_more_than_its_share(logged, admin, template, monkeypatch):
    monkeypatch.setattr(page, "_BLOCK", 4_000)
    monkeypatch.setattr(page, "MOST_READ", 50_000)
    write(logged, template, range(500), pad=100)
    fields, visited = {"actor": "User:u3"}, 1
    while "allow(User:u3," not in (text := shown(admin, **fields)):
        assert "No decisions found in the 48 KiB that were read" in text
        fields = {name: values[0] for name, values in parse_qs(urlsplit(link(admin, fields, "Next")).query).items()}
        visited += 1
    assert visited == pytest.approx(logged.stat().st_size / 50_000, abs=2)


def test_a_time_is_found_without_reading_what_is_later(logged, template, monkeypatch):
    monkeypatch.setattr(page, "_BLOCK", 4_000)
    write(logged, template, range(3_000), pad=100)
    with logged.open("rb") as file:
        until = page._time_of("2026-01-01T10:00Z")
        end = page.end_of(file, until)
        place, raw = next((place, raw) for place, raw in page.lines_before(file, end) if raw)
        assert until <= log.line_of_text(raw, place).at < until + 60 * 60_000_000
        assert page.end_of(file, None) == logged.stat().st_size


@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"a\nbb\n\nccc", b"a\nbb\nccc\n"])
def test_a_file_is_read_from_its_end(tmp_path, monkeypatch, text):
    monkeypatch.setattr(page, "_BLOCK", 2)
    (tmp_path / "file").write_bytes(text)
    with (tmp_path / "file").open("rb") as file:
        found = [each for each in page.lines_before(file, len(text)) if each[1]]
    assert [raw for _, raw in found] == [*filter(None, reversed(text.split(b"\n")))]
    assert all(text[place:].startswith(raw) for place, raw in found)
