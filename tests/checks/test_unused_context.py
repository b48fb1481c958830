"""Context facts that the policy has no use for change no answer and no statement, and are told."""

import logging

import pytest

from checks.asking.ask import LiveSession
from facts.accept import HEADER, LONGEST
from tests.checks.conftest import about, fact, publish, store
from tests.contract import OPERATIONS

WITH_BOOLEAN = """
actor User {}
resource Issue { permissions = ["close"]; roles = ["triager"]; }
has_permission(u: User, "close", i: Issue) if has_role(u, "triager", i) and not is_closed(i, true);
"""
USED = fact("has_role", "User:eve", "reader", "Repo:a")
UNUSED = fact("has_rol", "User:eve", "reader", "Repo:a")
TOLD = "not used in policy: `has_rol(User, String, Repo)` (did you mean `has_role`?)"

EVE, ON_A = about("User:eve"), about("User:eve", "Repo:a")
QUERY = {"predicate": ["allow", ["u", "a", "r"]], "constraints": {
    "u": {"type": "User", "ids": ["eve"]}, "a": {"type": "String", "ids": None}, "r": {"type": "Repo", "ids": None},
}}  # fmt: skip
QUESTIONS = {
    "/authorize": {**ON_A, "action": "read"},
    "/actions": ON_A,
    "/list": {**EVE, "action": "read", "resource_type": "Repo", "page_size": 10_000},
    "/authorize_resources": {**EVE, "action": "read", "resources": [{"type": "Repo", "id": "a"}]},
    "/authorize_each": {
        "checks": [
            {"actor": {"type": "User", "id": "eve"}, "action": action, "resource": {"type": "Repo", "id": "a"}}
            for action in ("read", "write")
        ]
    },
    "/evaluate_query": QUERY,
    "/query": {"fact": {"predicate": "allow", "args": [{"type": "User", "id": "eve"}, None, None]}},
}
LOCAL = {
    "/authorize_query": {"query": QUESTIONS["/authorize"]},
    "/actions_query": {"query": QUESTIONS["/actions"]},
    "/list_query": {"query": QUESTIONS["/list"], "column": "id"},
    "/evaluate_query_local": {
        "query": QUERY, "mode": {"mode": "select", "query_vars_to_output_column_names": {"r": "id"}},
    },
}  # fmt: skip


def with_context(path: str, *context: dict) -> dict:
    if path in LOCAL:
        return {**LOCAL[path], "query": {**LOCAL[path]["query"], "context_facts": list(context)}}
    return {**QUESTIONS[path], "context_facts": list(context)}


def test_every_endpoint_that_takes_them_is_asked():
    """Those that are told in another way, or for many questions at once, have tests of their own."""
    taking = {each.path.removeprefix("/api") for each in OPERATIONS if each.endpoint.takes_context}
    assert taking - {"/explain", "/bulk_actions"} == {*QUESTIONS, *LOCAL}


@pytest.mark.parametrize("path", [*QUESTIONS, *LOCAL])
def test_they_change_no_answer_and_are_told_in_a_header(repos, path):
    plain = repos.post(path, with_context(path, USED))
    assert (plain.status_code, HEADER in plain) == (200, False)
    for context in ([USED, UNUSED], [UNUSED, USED], [UNUSED, USED, UNUSED]):
        answer = repos.post(path, with_context(path, *context))
        assert (answer.status_code, answer.json(), answer[HEADER]) == (200, plain.json(), TOLD)
    alone = repos.post(path, with_context(path, UNUSED))
    assert (alone.json(), alone[HEADER]) == (repos.post(path, with_context(path)).json(), TOLD)
    assert alone.json() != plain.json()


def test_those_of_the_first_of_many_questions_are_told_once(repos):
    answer = repos.post("/bulk_actions", [with_context("/actions", USED, UNUSED), ON_A, ON_A])
    assert answer.json() == [{"results": ["read"]}] * 3
    assert answer[HEADER] == TOLD


def test_a_fact_of_another_shape_is_advised_of_the_policys_own(api):
    """Neither a denial out of the blue nor a refusal for callers that are older than the policy."""
    publish(api, WITH_BOOLEAN)
    store(api, fact("has_role", "User:ann", "triager", "Issue:1"))
    question = about("User:ann", "Issue:1", action="close")
    answer = api.post("/authorize", {**question, "context_facts": [fact("is_closed", "Issue:1")]})
    assert answer.json() == {"allowed": True}
    assert answer[HEADER] == "not used in policy: `is_closed(Issue)` (accepted: `is_closed(Issue, Boolean)`)"
    publish(api, WITH_BOOLEAN.replace(" and not is_closed(i, true)", ""))
    answer = api.post("/authorize", {**question, "context_facts": [fact("is_closed", "Issue:1", "Boolean:true")]})
    assert (answer.json(), answer[HEADER]) == ({"allowed": True}, "not used in policy: `is_closed(Issue, Boolean)`")


def test_they_make_no_statement_of_their_own(repos):
    repos.post("/authorize", with_context("/authorize", USED))
    before = len(LiveSession.statements)
    for number in range(5):
        unused = fact(f"unused_{number}", "User:eve", f"Type{number}:x")
        repos.post("/authorize", with_context("/authorize", USED, unused))
    assert len(LiveSession.statements) == before


def test_pages_go_on_with_them(repos):
    store(repos, *(fact("is_public", f"Repo:{number:05}") for number in range(10_001)))
    body = with_context("/list", UNUSED)
    first = repos.post("/list", body).json()
    rest = repos.post("/list", {**body, "page_token": first["next_page_token"]})
    assert (len(first["results"]), rest.json()["results"], rest[HEADER]) == (10_000, ["10000", "p"], TOLD)


def test_without_a_policy_any_fact_is_of_use(api):
    answer = api.post("/authorize", {**ON_A, "action": "read", "context_facts": [UNUSED]})
    assert (answer.json(), HEADER in answer) == ({"allowed": False}, False)


@pytest.mark.parametrize("path", ["/authorize", "/authorize_query", "/explain", "/bulk_actions"])
def test_they_are_refused_where_that_is_wanted(repos, settings, path):
    settings.STRICT_FACTS = True
    asked = {"/explain": "/authorize", "/bulk_actions": "/actions"}.get(path, path)
    body = with_context(asked, USED, UNUSED)
    answer = repos.post(path, [body] if path == "/bulk_actions" else body)
    place = "query.context_facts[1]" if path in LOCAL else "context_facts[1]"
    advice = "is not used in policy (did you mean `has_role`?)"
    message = f"{place}: the fact `has_rol(User, String, Repo)` {advice}"
    assert (answer.status_code, answer.json()["message"].removeprefix("[0].")) == (400, message)
    assert HEADER not in answer


def test_what_is_told_is_short_and_plain_whatever_is_sent(repos, caplog):
    caplog.set_level(logging.INFO, "authz.request")
    types = [f"{'🙂' * 40}{number}:\r\nX-Allowed: yes" for number in range(40)]
    hostile = [fact("naïve\u2028ü 漢字 🙂" * 5, *[each] * 5) for each in types]
    answer = repos.post("/authorize", with_context("/authorize", USED, *hostile))
    assert answer.json() == {"allowed": True}
    assert answer[HEADER].startswith("not used in policy: `na\\xefve\\u2028")
    assert answer[HEADER].isascii() and answer[HEADER].isprintable() and len(answer[HEADER]) == LONGEST
    (record,) = caplog.records
    assert record.getMessage() == f"request {answer['X-Request-ID']}: context facts {answer[HEADER]}"
    many = [fact(f"p{number}", "User:x") for number in range(25)]
    assert repos.post("/authorize", with_context("/authorize", *many))[HEADER].endswith("; `p9(User)`; and 15 more")


def test_the_log_tells_nothing_where_all_are_used(repos, caplog):
    caplog.set_level(logging.INFO, "authz.request")
    repos.post("/authorize", with_context("/authorize", USED))
    assert caplog.records == []
