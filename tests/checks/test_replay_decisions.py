"""Lines of the decision log are asked again: as they were asked, by other facts, and by a policy that is previewed."""

from __future__ import annotations

import os
import re
from io import StringIO
from pathlib import Path

import orjson
import pytest
from django.core.management import CommandError, call_command

from checks.decisions import replay
from checks.decisions.log import BadLogLine, LogLine, lines_of
from checks.explain import explain
from policy.core.clock import microseconds_of, text_of, time_of, timeline
from policy.models import Revision
from tests.checks.conftest import POLICY, about, fact, publish, remove, store, value
from tests.checks.test_decision_log import CALL, EVALUATION, QUESTIONS, lines, path, path_of  # noqa: F401  a fixture
from tests.conftest import Api

CAT_READS = fact("has_role", "User:cat", "reader", "Repo:a")
WITH_CONTEXT = about("User:cat", "Repo:a", action="read", context_facts=[CAT_READS])
LINES = 3 * len(QUESTIONS) + 1  # of the log that `asked` makes
SQL = 3 * sum(answer is None for _, answer in QUESTIONS.values())  # those of them that were answered with SQL
NOT_SQL = LINES - SQL


@pytest.fixture
def asked(repos, path) -> Path:  # noqa: F811
    """A log with every question in it, some of them more than once."""
    for _ in range(3):
        for name, (question, _answer) in QUESTIONS.items():
            repos.post(path_of(name), question)
    repos.post("/authorize", WITH_CONTEXT)
    lines(path)
    return path


def run(*args: object, name: str = "replay_decisions") -> tuple[int, str, str]:
    """The exit code, and what is printed."""
    out, errors = StringIO(), StringIO()
    code = 0
    try:
        call_command(name, *map(str, args), stdout=out, stderr=errors, no_color=True)
    except SystemExit as end:
        code = end.code
    return code, out.getvalue(), errors.getvalue()


def ask(api: Api, name: str, body: object, path: Path) -> None:  # noqa: F811
    """Leave a log of this question alone."""
    path.unlink(missing_ok=True)
    assert api.post(path_of(name), body).status_code == 200
    lines(path)


# ---- the same facts ------------------------------------------------------------------------------------------------


def test_what_did_not_change_is_answered_the_same(asked):
    code, out, errors = run(asked, "--now")
    assert (code, out, errors) == (0, f"0 of {LINES} answers differ\n", "")


def test_all_is_answered_as_it_was_whatever_has_changed_since(asked, repos):
    assert run(asked)[:2] == (0, f"0 of {LINES} answers differ\n")
    remove(repos, fact("has_role", "User:ann", "reader", "Repo:a"), fact("has_role", "User:bob", "writer", "Repo:a"))
    publish(repos, STRICTER)
    code, out, errors = run(asked)
    assert (code, out) == (0, f"0 of {NOT_SQL} answers differ; {SQL} not asked\n")
    assert errors.count("not asked: local SQL is not supported with `as_of`") == SQL
    assert run(asked, "--now")[0] == 1


def test_a_line_that_was_changed_by_hand_differs(asked):
    first, *others = asked.read_bytes().splitlines(keepends=True)
    asked.write_bytes(b"".join([first.replace(b'"allowed":true', b'"allowed":false'), *others]))
    code, out, _ = run(asked, "--explain")
    assert code == 1 and f"1 of {LINES} answers differ" in out and ", denied, but now allowed" in out


def test_nothing_is_changed_by_asking_again(asked, repos):
    before = Revision.objects.count()
    run(asked, "--explain")
    run(asked, "--now", "--explain")
    assert Revision.objects.count() == before


# ---- other facts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, (_, answer) in QUESTIONS.items() if answer and name != "explain"])
def test_an_answer_that_differs_is_told(repos, path, name):  # noqa: F811
    ask(repos, name, QUESTIONS[name][0], path)
    remove(
        repos,
        *(fact("has_role", user, role, "Repo:a") for user, role in (("User:ann", "reader"), ("User:bob", "writer"))),
    )
    code, out, _ = run(path, "--now", "--explain")
    assert code == 1
    assert out.startswith(f"line 1: {name} at 20")
    assert "\n  denied  " in out and "1 of 1 answers differ\n" in out


def test_why_an_answer_differs_is_told(repos, path):  # noqa: F811
    ask(repos, "authorize", about("User:ann", "Repo:a", action="read"), path)
    remove(repos, fact("has_role", "User:ann", "reader", "Repo:a"))
    _, out, _ = run(path, "--now", "--explain")
    assert ', allowed, but now denied: allow(User:ann, "read", Repo:a)\n' in out
    assert '  denied  allow(User:ann, "read", Repo:a)  (policy version 1)\n' in out
    assert '✗ has_role(User:ann, "reader", Repo:a)  no matching fact' in out


def test_context_facts_count_again(repos, path):  # noqa: F811
    ask(repos, "authorize", WITH_CONTEXT, path)
    assert run(path, "--now")[0] == 0
    publish(repos, POLICY.replace('"read" if "reader";', '"read" if "writer";'))
    code, out, _ = run(path, "--now", "--explain")
    assert code == 1 and 'allow(User:cat, "read", Repo:a)' in out


@pytest.mark.parametrize("given", [(), ("--now",)], ids=["then", "now"])
def test_a_denial_that_was_explained_with_what_would_allow_it_is_the_same(repos, path, given, monkeypatch):  # noqa: F811
    """That is searched for by current facts alone, for seconds, and is no part of the decision."""
    ask(repos, "explain", about("User:cat", "Repo:a", action="read", would_allow=True), path)
    monkeypatch.setattr(explain, "WAYS", "nothing.is_searched_for_again")
    assert run(path, *given) == (0, "0 of 1 answers differ\n", "")


def test_a_question_that_is_refused_now_differs(repos, path):  # noqa: F811
    call = {"predicate": ["is_root", ["user"]], "constraints": {"user": {"type": "User", "ids": None}}}
    ask(repos, "evaluate_query", call, path)
    publish(repos, "actor User {}")
    code, out, _ = run(path, "--now", "--explain")
    assert code == 1
    assert "1 found, but now refused: the policy has no predicate `is_root`" in out


def test_a_long_list_is_held_to_all_of_it(repos, path):  # noqa: F811
    store(repos, *(fact("is_public", f"Repo:x{number:03}") for number in range(50)))
    ask(repos, "list", QUESTIONS["list"][0], path)
    assert run(path, "--now")[0] == 0
    remove(repos, fact("is_public", "Repo:x049"))
    store(repos, fact("is_public", "Repo:x050"))
    code, out, _ = run(path, "--now")
    assert code == 1 and "53 found, but now 53 found" in out


def test_sql_that_differs_is_told(repos, path):  # noqa: F811
    ask(repos, "list_query", QUESTIONS["list_query"][0], path)
    assert run(path, "--now")[0] == 0
    remove(repos, fact("has_role", "User:ann", "reader", "Repo:a"))
    assert run(path, "--now")[0] == 1


def test_a_published_client_is_asked_as_one(repos, path):  # noqa: F811
    question = {name: each for name, each in QUESTIONS["list"][0].items() if name != "page_size"}
    repos.post("/list", question, **{"X-OsoApiVersion": "0"})
    lines(path)
    assert run(path, "--now")[0] == 0


# ---- what cannot be asked ------------------------------------------------------------------------------------------


def test_a_line_that_is_none_is_told_with_its_number(asked):
    good = asked.read_bytes()
    first = good.splitlines()[0]
    of_no_form = first.replace(b'"answer":{', b'"answer":{"count":"x","')
    without_revision = orjson.dumps({name: each for name, each in orjson.loads(first).items() if name != "revision"})
    bad = (b"{", b"[]", b"null", b"{}", first.replace(b'"time":"', b'"time":"x'), first[: len(first) // 2], b"\xff\xfe",
           without_revision, of_no_form, first.replace(b"Z", b""))  # fmt: skip
    asked.write_bytes(b"\n".join(bad) + b"\n\n" + good)
    code, out, errors = run(asked, "--now")
    assert code == 1
    assert out == f"0 of {LINES} answers differ; {len(bad)} unreadable\n"
    assert [line.partition(":")[0] for line in errors.splitlines()] == [f"line {n}" for n in range(1, len(bad) + 1)]


def test_what_was_left_out_is_not_guessed(repos, path, settings):  # noqa: F811
    settings.DECISION_LOG_CONTEXT = False
    ask(repos, "authorize", WITH_CONTEXT, path)
    for options in ((), ("--now",)):
        code, out, errors = run(path, *options)
        assert (code, out) == (0, "0 of 0 answers differ; 1 not asked\n")
        assert "line 1: not asked: the log entry has no context facts" in errors


def test_a_question_that_nests_too_deep_is_not_asked(asked, policy_file):
    """An old log may have one; it spoils no other line."""
    first, good = asked.read_bytes().splitlines()[0], asked.read_bytes()
    deep = b'"question":{"deep":%b,' % (b"[" * 300 + b"]" * 300)
    asked.write_bytes(first.replace(b'"question":{', deep) + b"\n" + good)
    for options in ((), ("--now",)):
        code, out, errors = run(asked, *options)
        assert (code, out) == (0, f"0 of {LINES} answers differ; 1 not asked\n")
        assert errors == "line 1: not asked: its request is nested too deeply\n"
    code, out, _ = run(policy_file(STRICTER), "--questions", asked, name="preview_policy")
    assert code == 0 and "not answered: line 1: its request is nested too deeply" in out


def test_what_is_before_the_horizon_is_not_asked(repos, path):  # noqa: F811
    ask(repos, "authorize", QUESTIONS["authorize"][0], path)
    line = orjson.loads(path.read_bytes()) | {"revision": 1}
    path.write_bytes(orjson.dumps(line))
    repos.environment.horizon = 2
    repos.environment.save(update_fields=["horizon"])
    code, _, errors = run(path)
    assert code == 0 and "older than revision 2, the oldest available" in errors


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("environment", 0, "environment 0 does not exist"),
        ("endpoint", "batch", "endpoint `batch` is not a check and cannot be replayed"),
        ("endpoint", "nothing", "endpoint `nothing` is not a check and cannot be replayed"),
    ],
)
def test_a_line_of_something_else_is_not_asked(repos, path, member, value, reason):  # noqa: F811
    ask(repos, "authorize", QUESTIONS["authorize"][0], path)
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {member: value}))
    code, _, errors = run(path)
    assert code == 0 and errors == f"line 1: not asked: {reason}\n"


def test_what_was_asked_before_the_first_policy_is_asked_about_now_only(api, path):  # noqa: F811
    store(api, fact("is_public", "Repo:p"))
    ask(api, "query", {"fact": fact("is_public", "Repo:p")}, path)
    assert run(path) == (0, "0 of 0 answers differ; 1 not asked\n", "line 1: not asked: no policy was active then\n")
    assert run(path, "--now") == (0, "0 of 1 answers differ\n", "")


def test_a_file_that_is_not_there_is_told(repos, tmp_path):
    with pytest.raises(CommandError, match="no such file"):
        run(tmp_path / "nowhere")


def test_a_log_is_read_line_by_line(tmp_path):
    """However long it is: from a pipe, the first line comes before the second is there."""
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    with open(reading, "rb", buffering=0) as file:  # noqa: PTH123  it has no path
        found = next(lines_of(file))
    os.close(writing)
    assert isinstance(found, BadLogLine)


# ---- moments ---------------------------------------------------------------------------------------------------------


def test_a_moment_is_the_lines_time_within_its_revision(repos):
    first, second = Revision.objects.filter(environment=repos.environment).order_by("number")[:2]
    Revision.objects.filter(pk=second.pk).update(at=first.at + 1000)
    line = made(repos, first.number, first.at + 500)
    assert replay.moment_text(line, first.at + 500) == text_of(first.at + 500)
    assert replay.moment_text(line, first.at - 5) == text_of(first.at)
    assert replay.moment_text(line, first.at + 5_000_000) == text_of(first.at + 999)


def test_a_revision_without_a_time_of_its_own_goes_by_its_number(repos):
    first, second = Revision.objects.filter(environment=repos.environment).order_by("number")[:2]
    line = made(repos, first.number, first.at)
    assert replay.moment_text(line, first.at) == text_of(first.at)
    Revision.objects.filter(pk=second.pk).update(at=first.at)
    for forget in timeline._forgetting:  # as after a failover: revisions that were lost are not remembered
        forget()
    assert replay.moment_text(line, first.at) == first.number


def test_the_last_revision_goes_on(repos):
    last = Revision.objects.filter(environment=repos.environment).order_by("number").last()
    line = made(repos, last.number, last.at + 10**9)
    assert replay.moment_text(line, line.at) == text_of(last.at + 10**9)


def test_a_body_that_names_a_moment_keeps_it():
    assert replay.as_of({"as_of": 3}, 7) == {"as_of": 3}
    assert replay.as_of({"as_of": None}, 7) == {"as_of": 7}
    assert replay.as_of({"page_token": "…"}, 7) == {"page_token": "…"}
    assert replay.as_of([{"a": 1}, {"b": 2}], 7) == [{"a": 1, "as_of": 7}, {"b": 2}]
    assert replay.as_of([{"as_of": 3}, {"b": 2}], 7) == [{"as_of": 3}, {"b": 2}]
    assert replay.as_of([], 7) == []


def made(api: Api, revision: int, at: int) -> LogLine:
    return LogLine(1, text_of(at), "", api.environment.pk, "key 1", "authorize", {}, {"allowed": True}, revision, 1, 0)


def test_times_are_read_as_they_are_written():
    at = 1_793_714_531_123_456
    assert microseconds_of(time_of(at)) == at
    assert LogLine(1, text_of(at), "", 1, "", "", {}, {}, None, None, 0).at == at


# ---- by another policy ---------------------------------------------------------------------------------------------

STRICTER = POLICY.replace('  "read" if "reader";\n', '  "read" if "writer";\n')
LOOSER = POLICY + 'has_permission(_: User, "write", repo: Repo) if is_public(repo);\n'
PROPERTY = POLICY + 'has_permission(_: User, "write", repo: Repo) if colour(repo, "red");\n'


@pytest.fixture
def policy_file(tmp_path):
    def make(text: str) -> Path:
        (tmp_path / "new.polar").write_text(text)
        return tmp_path / "new.polar"

    return make


@pytest.mark.parametrize("is_strict", [False, True])
def test_what_is_answered_now_is_explained_by_properties_that_count_now(repos, path, settings, is_strict):  # noqa: F811
    settings.STRICT_FACTS = is_strict
    ask(repos, "/access/v1/evaluation", EVALUATION | {"action": {"name": "write"}}, path)
    publish(repos, PROPERTY)
    code, out, errors = run(path, "--now", "--explain")
    assert (code, errors) == (1, "") and "but now" in out
    assert "colour(Repo:a" in out and "context fact" in out


# ---- preview_policy --------------------------------------------------------------------------------------------------


def test_preview_takes_the_log(asked, policy_file):
    code, out, _ = run(policy_file(STRICTER), "--questions", asked, "--explain", name="preview_policy")
    assert code == 0
    assert '\n  - denied   allow(User:ann, "read", Repo:a)\n' in out
    assert '\n  - denied   allow(User:cat, "read", Repo:a)\n' in out
    assert "context fact" in out
    assert f" checks would change; {SQL} not answered" in out
    assert out.count("depends on the caller's database") == SQL


@pytest.mark.parametrize("is_strict", [False, True])
def test_preview_counts_properties_by_the_policy_that_asks_for_them(repos, path, policy_file, settings, is_strict):  # noqa: F811
    settings.STRICT_FACTS = is_strict
    ask(repos, "/access/v1/evaluation", EVALUATION | {"action": {"name": "write"}}, path)
    asked = ("--questions", str(path), "--explain")
    _, out, _ = run(policy_file(PROPERTY), *asked, name="preview_policy")
    assert '  + allowed  allow(User:ann, "write", Repo:a)' in out
    assert "decisions: 1 of 1 check would change" in out and "context fact" in out
    publish(repos, PROPERTY)
    _, out, _ = run(policy_file(POLICY), *asked, name="preview_policy")
    assert '  - denied   allow(User:ann, "write", Repo:a)' in out


def test_preview_takes_both_kinds_of_questions(asked, policy_file, repos):
    text = asked.read_text() + '# by hand\nallow(User:bob, "read", Repo:a)\nallow(User:cat, "read", Repo:a)\n{"a": 1}\n'
    asked.write_text(text)
    _, out, _ = run(policy_file(STRICTER), "--questions", asked, name="preview_policy")
    assert f" checks would change; {SQL + 1} not answered" in out
    assert f"not answered: line {LINES + 4}: not a decision log entry: `time` is missing or invalid" in out


def test_preview_leaves_other_environments_alone(asked, policy_file, new_api):
    other = new_api("other")
    publish(other, POLICY)
    code, out, _ = run(
        policy_file(STRICTER), "--questions", asked, "--environment", "other", name="preview_policy"
    )  # fmt: skip
    assert code == 0 and f"decisions: 0 of 0 checks would change; {LINES} not answered" in out


def test_preview_compares_a_query_of_several_calls_call_by_call(repos, path, policy_file):  # noqa: F811
    calls = CALL | {"calls": [["is_public", ["repo"]]]}
    ask(repos, "evaluate_query", calls, path)
    new = policy_file(POLICY.replace('"read" if is_public', '"write" if is_public'))
    _, out, _ = run(new, "--questions", path, name="preview_policy")
    assert '  - denied   has_permission(User:ann, "read", Repo:p)' in out
    assert "is_public(Repo:p)\n" not in out


def test_for_a_preview_a_predicate_that_would_go_holds_for_nothing(repos, path, policy_file):  # noqa: F811
    call = {"predicate": ["is_root", ["user"]], "constraints": {"user": {"type": "User", "ids": None}}}
    ask(repos, "evaluate_query", call, path)
    _, out, _ = run(policy_file("actor User {}"), "--questions", path, name="preview_policy")
    assert "decisions: 1 of 1 check would change\n" in out and "  - denied   is_root(User:root)\n" in out


def test_of_a_long_list_only_what_differs_is_explained(repos, path):  # noqa: F811
    """The log keeps its first results: one more before them shifts the last one out, which both answers have."""
    store(repos, *(fact("is_public", f"Repo:x{number:03}") for number in range(50)))
    ask(repos, "list", about("User:dan", action="read", resource_type="Repo", page_size=10_000), path)
    store(repos, fact("is_public", "Repo:a1"))
    _, out, _ = run(path, "--now", "--explain")
    assert re.findall(r"allow\(.*?\)", out.partition("\n")[2])[0] == 'allow(User:dan, "read", Repo:a1)'
    assert "Repo:x0" not in out.partition("\n")[2], out
    remove(repos, fact("is_public", "Repo:a1"), fact("is_public", "Repo:x003"))
    _, out, _ = run(path, "--now", "--explain")
    assert "Repo:x003" in out and "Repo:x019" not in out and "Repo:x020" not in out, out


def test_preview_shows_some_of_a_list_that_differs(repos, path, policy_file):  # noqa: F811
    store(repos, *(fact("is_public", f"Repo:x{number:03}") for number in range(50)))
    ask(repos, "list", about("User:dan", action="write", resource_type="Repo", page_size=10_000), path)
    _, out, _ = run(policy_file(LOOSER), "--questions", path, "--show", "20", name="preview_policy")
    assert "decisions: 1 of 1 check would change\n" in out and out.count("  + allowed ") == 20


def test_preview_leaves_out_evaluations_that_cannot_be_asked_together(repos, path, policy_file):  # noqa: F811
    publish(repos, PROPERTY)
    repos.post("/authorize", about("User:ann", "Repo:a", action="read"))
    repos.post("/access/v1/evaluations", EVALUATION | {"evaluations": [{}, {"resource": value("Repo:a")}]})
    repos.post("/authorize", about("User:bob", "Repo:a", action="read"))
    lines(path)
    _, out, _ = run(policy_file(PROPERTY), "--questions", path, name="preview_policy")
    assert "decisions: 0 of 2 checks would change; 1 not answered" in out
    assert "not answered: line 2: its evaluations have different properties, or some are invalid\n" in out


def test_for_a_preview_facts_hold_before_the_first_policy(api, path, policy_file):  # noqa: F811
    store(api, fact("is_public", "Repo:p"), fact("has_role", "User:ann", "reader", "Repo:a"))
    for each in (fact("is_public", "Repo:p"), fact("has_role", "User:ann", "reader", "Repo:a")):
        api.post("/query", {"fact": each})
    call = {"predicate": ["is_public", ["repo"]], "constraints": {"repo": {"type": "Repo", "ids": ["p"]}}}
    api.post("/evaluate_query", call)
    lines(path)
    _, out, _ = run(policy_file(POLICY), "--questions", path, name="preview_policy")
    assert "decisions: 0 of 3 checks would change\n" in out


def test_a_page_of_a_search_is_asked_again_by_its_token(repos, path):  # noqa: F811
    body = {"subject": {"type": "User"}, "action": {"name": "read"}, "resource": {"type": "Repo", "id": "a"}}
    token = ""
    for _ in range(2):
        answer = repos.post("/access/v1/search/subject", body | {"page": {"limit": 1, "token": token}})
        token = answer.json()["page"]["next_token"]
        store(repos, fact("has_role", f"User:{token[-3:]}", "reader", "Repo:a"))
    lines(path)
    assert run(path) == (0, "0 of 2 answers differ\n", "")
