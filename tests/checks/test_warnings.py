"""Words of a question that the policy does not have are named in a header, and by the exit status of `ask`."""

from contextlib import nullcontext

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from checks.management.commands.ask import Command as Ask
from facts.accept import LONGEST, WARNING
from tests.checks.conftest import about, fact, publish, store, url

ANN_ON_A = about("User:ann", "Repo:a")
RAED = 'unknown action "raed" (did you mean "read"?)'
A_QUERY = {"predicate": ["allow", ["u", "a", "r"]], "constraints": {
    "u": {"type": "User", "ids": ["ann"]}, "a": {"type": "String", "ids": ["raed"]}, "r": {"type": "Repo", "ids": None},
}}  # fmt: skip


def check(actor="User:ann", action="raed", resource="Repo:a"):
    actor_type, _, actor_id = actor.partition(":")
    resource_type, _, resource_id = resource.partition(":")
    actor_of, resource_of = {"type": actor_type, "id": actor_id}, {"type": resource_type, "id": resource_id}
    return {"actor": actor_of, "action": action, "resource": resource_of}


QUESTIONS = {
    "/authorize": ({**ANN_ON_A, "action": "raed"}, RAED),
    "/actions": (about("User:ann", "Rep:a"), 'unknown type "Rep" (did you mean "Repo"?)'),
    "/list": ({**about("Usr:ann"), "action": "read", "resource_type": "Repo", "page_size": 10_000},
              'unknown type "Usr" (did you mean "User"?)'),
    "/authorize_resources": ({**about("User:ann"), "action": "raed", "resources": [{"type": "Repo", "id": "a"}]}, RAED),
    "/authorize_each": ({"checks": [check(), check(action="read"), check(resource="Rep:a")]},
                        f'{RAED}; unknown type "Rep" (did you mean "Repo"?)'),
    "/evaluate_query": (A_QUERY, RAED),
    "/query": ({"fact": {"predicate": "allow", "args": [
        {"type": "User", "id": "ann"}, {"type": "String", "id": "raed"}, {"type": "Rep"},
    ]}}, 'unknown type "Rep" (did you mean "Repo"?)'),
    "/explain": ({**ANN_ON_A, "action": "raed"}, RAED),
    "/authorize_query": ({"query": {**ANN_ON_A, "action": "raed"}}, RAED),
}  # fmt: skip


@pytest.mark.parametrize("path", QUESTIONS)
def test_an_unknown_word_is_named_in_a_header(repos, path):
    body, told = QUESTIONS[path]
    answers = [repos.post(path, body) for _ in range(4)]  # the later ones come from the cache
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.get(WARNING) for answer in answers] == [told] * 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/authorize", {**ANN_ON_A, "action": "read"}),
        ("/authorize", {**about("User:nobody", "Repo:a"), "action": "write"}),
        ("/actions", ANN_ON_A),
        ("/list", {**about("User:nobody"), "action": "read", "resource_type": "Repo", "page_size": 10_000}),
        ("/authorize_each", {"checks": [check(action="read"), check(action="write")]}),
        ("/explain", {**about("User:nobody", "Repo:a"), "action": "write"}),
    ],
)
def test_known_words_are_not_warned_of(repos, path, body):
    answer = repos.post(path, body)
    assert (answer.status_code, WARNING in answer) == (200, False)


def test_a_name_that_is_known_of_another_type_is_warned_of(repos):
    answer = repos.post("/authorize", {**about("User:ann", "Org:o"), "action": "write"})
    assert answer[WARNING] == 'unknown action "write" (known: "read")'


ANN = {"type": "User", "id": "ann"}
READ_TEXT, RAED_TEXT = {"type": "String", "id": "read"}, {"type": "String", "id": "raed"}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([ANN, RAED_TEXT, {"type": "Repo"}], RAED),
        ([ANN, RAED_TEXT, None], 'unknown action "raed" (did you mean "read"?)'),  # once, not for each type
        ([{"type": "Usr", "id": "ann"}, READ_TEXT, None], 'unknown type "Usr" (did you mean "User"?)'),
        ([{"type": "String", "id": "8"}, READ_TEXT, None], "the actor `8` has no type (did you mean `User:8`?)"),
        ([None, {"type": "String", "id": "write"}, None], None),  # an action of a repository, but not of all types
        ([ANN, None, None], None),
    ],
)
def test_a_pattern_of_facts_is_warned_of_what_no_type_has(repos, args, told):
    answer = repos.post("/query", {"fact": {"predicate": "allow", "args": args}})
    assert (answer.status_code, answer.get(WARNING)) == (200, told)


def test_without_a_policy_and_with_rules_about_any_action_there_is_nothing_to_warn_of(api):
    assert WARNING not in api.post("/authorize", {**ANN_ON_A, "action": "raed"})
    publish(api, "actor User {} resource Repo {}\nallow(u: User, action: String, r: Repo) if may(u, action, r);")
    assert WARNING not in api.post("/authorize", {**ANN_ON_A, "action": "raed"})


def test_a_cached_answer_is_warned_of_by_the_policy_of_now(repos):
    body = {**ANN_ON_A, "action": "raed"}
    assert [repos.post("/authorize", body).get(WARNING) for _ in range(3)] == [RAED] * 3
    publish(repos, 'actor User {} resource Repo { permissions = ["raed"]; }')
    assert [WARNING in repos.post("/authorize", body) for _ in range(3)] == [False] * 3


def test_the_header_is_one_line_of_ascii_whatever_is_asked(repos):
    hostile = 'x"\r\nSet-Cookie: a=b\n' + "é🙂" * 60
    checks = [check(action=f"{number}{hostile}", resource=f"T{number}{'ü' * 40}:a") for number in range(300)]
    for path, body in (("/authorize", {**ANN_ON_A, "action": hostile}), ("/authorize_each", {"checks": checks})):
        answer = repos.post(path, body)
        assert answer.status_code == 200, answer.json()
        told = answer[WARNING]
        assert told.isascii() and told.isprintable() and len(told) <= LONGEST and told.startswith("unknown ")


# ---- an actor without a type -------------------------------------------------------------------------------------

NO_TYPE = "the actor `8` has no type (did you mean `User:8`?)"


def test_an_actor_without_a_type_is_told_what_may_be_meant(repos):
    asked = {"actor_type": "String", "actor_id": "8", "action": "read", "resource_type": "Repo", "resource_id": "a"}
    assert repos.post("/explain", asked).json()["note"] == NO_TYPE
    assert repos.post("/authorize", asked)[WARNING] == NO_TYPE


def test_a_policy_about_strings_takes_an_actor_without_a_type(api):
    publish(api, 'actor User {} resource Repo {}\nallow(u: String, "read", r: Repo) if named(u, r);')
    asked = {"actor_type": "String", "actor_id": "8", "action": "read", "resource_type": "Repo", "resource_id": "a"}
    assert WARNING not in api.post("/authorize", asked)


def test_the_command_tells_what_may_be_meant(repos, capsys):
    call_command("ask", "authorize", "8", "read", "Repo:a", "--explain")
    assert NO_TYPE in capsys.readouterr().out
    with pytest.raises(CommandError, match="`ann` is not a valid value; did you mean `User:ann`"):
        call_command("ask", "authorize", "ann", "read", "Repo:a")
    with pytest.raises(CommandError, match="did you mean `Org:a` or `Repo:a`"):
        call_command("ask", "authorize", "User:8", "read", "a")


def test_the_workbench_tells_what_may_be_meant(repos, admin, version):
    for actor, told in (("8", "has no type"), ("ann", "did you mean")):
        asked = {"kind": "authorize", "actor": actor, "action": "read", "resource": "Repo:a"}
        page = admin.get(url("ask", version), asked).content.decode()
        assert told in page and f"User:{actor}" in page


# ---- the exit status -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("authorize User:ann read Repo:a", 0),
        ("authorize User:eve read Repo:a", 1),
        ("authorize User:eve read Repo:a --explain", 1),
        ("authorize User:ann raed Repo:a", 2),
        ("authorize User:ann raed Repo:a --explain", 2),
        ("authorize User:ann read Rep:a", 2),
        ("authorize 8 read Repo:a", 2),
        ("list User:eve write Repo", 0),
        ("list User:eve write Rep", 2),
        ("actions User:eve Repo:zzz", 0),
        ("who raed Repo:a", 2),
        ("authorize User:eve read Repo:a --plan", 0),
    ],
)
def test_the_exit_status_tells_denied_from_unknown(repos, capsys, words, status):
    with pytest.raises(SystemExit) if status else nullcontext() as ended:
        Ask().run_from_argv(["authz", "ask", *words.split()])
    assert not status or ended.value.code == status


def test_lists_for_people_are_in_natural_order(repos, capsys):
    store(repos, *(fact("is_public", f"Repo:{name}") for name in ("10", "9", "r2-10", "r2-9", "r10", "100")))
    call_command("ask", "list", "User:eve", "read", "Repo")
    assert capsys.readouterr().out.split() == ["9", "10", "100", "p", "r2-9", "r2-10", "r10"]
