"""`ask` and `test_policy`, from the command line."""

import io

import pytest
from django.core.management import CommandError, call_command

from facts import read
from policy.models import PolicyVersion
from tests.checks.conftest import POLICY, fact, publish, store

pytestmark = pytest.mark.one_database


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


# ---- ask --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("authorize", "User:ann", "read", "Repo:a"), "allowed\n"),
        (("authorize", "User:ann", "write", "Repo:a"), "denied\n"),
        (("authorize", "User:ann", "read", 'Repo:"a"'), "allowed\n"),
        (("authorize", "User:eve", "read", "Repo:a", "--context", 'has_role(User:eve, "reader", Repo:a)'), "allowed\n"),
        (("authorize", "Robot:ann", "read", "Planet:a"), "denied\n"),
        (("actions", "User:bob", "Repo:a"), "read\nwrite\n"),
        (("actions", "User:nobody", "Repo:a"), ""),
        (("list", "User:ann", "read", "Repo"), "a\nb\np\n"),
        (("list", "User:root", "read", "Repo"), "*\np\n"),
        (("list", "User:eve", "read", "Repo", "--context", "is_public(Repo:z)"), "p\nz\n"),
    ],
)
def test_questions_from_the_command_line(repos, arguments, answer):
    assert said("ask", *arguments) == answer


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (
            ("authorize", "Usr:ann", "reed", "Repo:a"),
            "the policy has no type `Usr` (did you mean `User`? declared: `Org`, `Repo`, `User`)\n"
            "the policy has no action `reed` on Repo (did you mean `read`? declared: `read`, `write`)\n",
        ),
        (("authorize", "User:nobody", "write", "Repo:a"), ""),
        (("list", "User:ann", "read", "Rpo"), "the policy has no type `Rpo` (did you mean `Repo`?"),
        (("list", "User:ann", "writ", "Repo"), "the policy has no action `writ` on Repo (did you mean `write`?"),
        (("actions", "User:ann", "Rpo:a"), "the policy has no type `Rpo`"),
    ],
)
@pytest.mark.parametrize("command", ["ask", "ask_local"])
def test_words_that_the_policy_does_not_have_are_reported_beside_the_answer(repos, command, arguments, advice):
    errors = io.StringIO()
    column = ("id",) if (command, arguments[0]) == ("ask_local", "list") else ()
    call_command(command, *arguments, *column, stdout=io.StringIO(), stderr=errors)
    assert errors.getvalue().startswith(advice) and bool(errors.getvalue()) == bool(advice)


def test_another_environment_is_asked_by_name(repos, new_api):
    other = new_api("other")
    publish(other, POLICY)
    store(other, fact("is_public", "Repo:there"))
    assert said("ask", "list", "User:ann", "read", "Repo", "--environment", "other") == "there\n"


def test_a_list_is_whole(repos):
    store(repos, *(fact("is_public", f"Repo:{number}") for number in range(10_001)))
    assert len(said("ask", "list", "User:nobody", "read", "Repo").splitlines()) == 10_002


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("authorize", "ann", "read", "Repo:a"), "not a valid value"),
        (("authorize", "User:_", "read", "Repo:a"), "not a valid value"),
        (("authorize", "User:ann", "read", "Repo:a) x(b"), "expected"),
        (("authorize", "User:ann", "read", "Repo:a", "--context", "nonsense"), "expected"),
        (("list", "User:ann", "read", "Repo", "--environment", "nowhere"), "Environment `nowhere` does not exist"),
    ],
)
def test_a_wrong_question_ends_with_its_reason(repos, arguments, reason):
    with pytest.raises(CommandError, match=reason):
        said("ask", *arguments)


def test_the_plan_and_the_statement_are_shown_and_nothing_is_asked(repos):
    shown = said("ask", "authorize", "User:ann", "read", "Repo:a", "--plan")
    assert "plan" in shown and "has_role(User, String, Repo)" in shown and "SELECT" in shown
    assert "ann" not in shown
    assert "ORDER BY" in said("ask", "list", "User:ann", "read", "Repo", "--plan")
    assert "the answer is always empty" in said("ask", "authorize", "Robot:x", "read", "Repo:a", "--plan")


def test_an_id_is_one_line_and_moves_no_cursor(repos):
    """Who names a resource could pretend that there is another one, or hide one."""
    store(repos, fact("has_role", "User:dan", "reader", "Repo:b\nRepo:c\x1b[2A"))
    assert said("ask", "list", "User:dan", "read", "Repo").splitlines() == ["b\\nRepo:c\\u001b[2A", "p"]
    shown = said("ask", "authorize", "User:dan", "read", r'Repo:"b\nRepo:c\u001b[2A"', "--explain")
    assert shown.startswith("allowed") and "\x1b" not in shown and r'Repo:"b\nRepo:c\u001b[2A"' in shown


def test_each_type_of_actors_has_a_plan_of_its_own(repos):
    publish(repos, f"{POLICY} actor Bot {{}}")
    shown = said("ask", "who", "read", "Repo:a", "--plan")
    assert "has_role(User, String, Repo)" in shown and shown.count("SELECT CASE WHEN") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "authorize", "User:ann", "read", "Repo:a"),
        ("ask", "authorize", "User:ann", "read", "Repo:a", "--plan"),
        ("ask", "actions", "User:ann", "Repo:a"),
        ("ask", "list", "User:ann", "read", "Repo"),
        ("ask_local", "list", "User:ann", "read", "Repo", "id"),
    ],
)
def test_context_facts_without_use_are_reported_beside_the_answer(repos, arguments):
    answer, errors = io.StringIO(), io.StringIO()
    call_command(*arguments, "--context", "has_rol(User:ann)", stdout=answer, stderr=errors)
    assert answer.getvalue() == said(*arguments)
    assert errors.getvalue() == "the context fact `has_rol(User)` is not used in policy (did you mean `has_role`?)\n"


# ---- test_policy ----------------------------------------------------------------------------------------------------

PASSES = 'test "passes" { assert_not allow(User{"ann"}, "read", Repo{"a"}); }\n'
FAILS = """test "fails" {
  assert allow(User{"ann"}, "read", Repo{"a"});
  assert allow(User{"bob"}, "read", Repo{"a"});
}
"""


@pytest.fixture
def written(tmp_path):
    """Writes a file, and gives its name."""

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_every_assertion_is_reported(db, written):
    shown = said("test_policy", written("a.polar", POLICY + PASSES))
    assert shown.splitlines()[0] == "ok passes: 1 of 1"
    assert shown.splitlines()[-1] == "1 test passed"
    assert 'assert_not allow(User{"ann"}, "read", Repo{"a"});' in shown


def test_a_failure_is_shown_at_its_place_and_ends_the_command(db, written, capsys):
    rules, tests = written("rules.polar", POLICY), written("tests.polar", PASSES + FAILS)
    with pytest.raises(CommandError, match="1 of 2 tests failed"):
        call_command("test_policy", rules, tests)
    shown = capsys.readouterr().out
    assert "FAIL fails: 0 of 2" in shown
    assert f'FAIL {tests}:3: assert allow(User{{"ann"}}, "read", Repo{{"a"}});' in shown
    assert "expected true, got false" in shown


def test_failing_fast_stops_at_the_first_failure(db, written, capsys):
    with pytest.raises(CommandError):
        call_command("test_policy", written("a.polar", POLICY + FAILS + PASSES), "--fail-fast")
    shown = capsys.readouterr().out
    assert shown.count("FAIL") == 2 and "passes" not in shown


def test_rules_that_no_test_exercises_are_listed(db, written):
    name = written("a.polar", POLICY + PASSES)
    shown = said("test_policy", name, "--coverage")
    assert "0 of 8 rules are exercised by a test" in shown
    assert f'{name}:6: "member" if "admin";' in shown


def test_a_file_that_is_no_policy_is_reported_as_such(db, written):
    with pytest.raises(CommandError, match="1 problem"):
        said("test_policy", written("a.polar", "actor User {"))
    with pytest.raises(CommandError, match="cannot read"):
        said("test_policy", "nowhere.polar")
    assert said("test_policy", written("b.polar", POLICY)) == "the policy has no tests\n"


def test_nothing_stored_is_seen_or_changed(repos, written):
    before = (PolicyVersion.objects.count(), read.stats(repos.environment.id))
    said("test_policy", written("a.polar", POLICY + PASSES))
    assert (PolicyVersion.objects.count(), read.stats(repos.environment.id)) == before
