"""`explain` and `preview_policy` in the terminal."""

import re
import time
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from policy.models import PolicyVersion
from tests.checks.conftest import POLICY, fact, publish, store

pytestmark = pytest.mark.one_database

MINUTE = "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]Z"


def run(name: str, *args: str) -> str:
    written = StringIO()
    call_command(name, *args, stdout=written, stderr=written, no_color=True)
    return written.getvalue()


# ---- explain -----------------------------------------------------------------------------------------------------


def test_a_proof_is_drawn_as_a_tree(repos):
    since = rf", since {MINUTE} by key {repos.environment.api_keys.get().pk} \(revision 2\)"
    assert re.sub(since, ", since then", run("ask", "authorize", "--explain", "User:ann", "read", "Repo:b")) == (
        'allowed  allow(User:ann, "read", Repo:b)  (policy version 1)\n'
        '✓ allow(User:ann, "read", Repo:b)\n'
        "│ by default rule: allow(actor, action, resource)"
        " if has_permission(actor, action, resource);\n"
        '└─ ✓ has_permission(User:ann, "read", Repo:b)\n'
        '   │ by line 15: "read" if "reader";\n'
        '   └─ ✓ has_role(User:ann, "reader", Repo:b)\n'
        '      │ by line 14: "reader" if "member" on "organization";\n'
        '      ├─ ✓ has_relation(Repo:b, "organization", Org:o)  stored fact, since then\n'
        '      └─ ✓ has_role(User:ann, "member", Org:o)\n'
        '         │ by line 6: "member" if "admin";\n'
        '         └─ ✓ has_role(User:ann, "admin", Org:o)  stored fact, since then\n'
    )


def test_obstacles_are_drawn_as_a_tree(repos):
    said = run("ask", "authorize", "--explain", "User:bob", "write", "Repo:b")
    assert said.startswith('denied  allow(User:bob, "write", Repo:b)')
    assert '✗ has_role(User:bob, "writer", Repo:b)  no matching fact' in said


def test_context_facts_count(repos):
    context = 'has_role(User:bob, "writer", Repo:b)'
    said = run("ask", "authorize", "--explain", "User:bob", "write", "Repo:b", "--context", context)
    assert '✓ has_role(User:bob, "writer", Repo:b)  context fact' in said


def test_context_facts_without_use_are_reported(repos):
    said = run("ask", "authorize", "--explain", "User:bob", "write", "Repo:b", "--context", "has_rol(User:bob)")
    assert said.startswith("denied")
    assert said.endswith("the context fact `has_rol(User)` is not used in policy (did you mean `has_role`?)\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("ann", "read", "Repo:b"), "`ann` is not a valid value; did you mean `User:ann`"),
        (("User:ann", "read", "Repo:b", "--environment", "nope"), "Environment `nope` does not exist"),
    ],
)
def test_mistakes_are_reported(repos, args, message):
    with pytest.raises(CommandError, match=message):
        run("ask", "authorize", "--explain", *args)


def test_advice_is_about_the_policy_that_answers(repos):
    publish(repos, POLICY.replace('"write"', '"change"'))
    of_then = ("Repo:b", "--policy-version", "1")
    assert run("ask", "authorize", "User:bob", "write", *of_then) == "denied\n"
    assert "the policy has no action `change` on Repo" in run("ask", "authorize", "User:bob", "change", *of_then)


# ---- preview_policy ----------------------------------------------------------------------------------------------


@pytest.fixture
def new_policy(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "new.polar"
        path.write_text(text)
        return str(path)

    return write


def test_decisions_that_would_differ_are_listed_and_explained(repos, new_policy):
    changed = POLICY.replace('"read" if is_public(resource);', "").replace('"reader" if "writer";', "")
    said = run("preview_policy", new_policy(changed), "--explain")
    assert "tests: none" in said
    assert "rules: 2 removed, 0 added" in said
    assert 'allow(User:_, "read", Repo:_): 2 of ' in said and "0 newly allowed, 2 newly denied (all compared)" in said
    assert '- denied   allow(User:_, "read", Repo:p)' in said
    assert '- denied   allow(User:bob, "read", Repo:a)' in said
    assert '"read" if is_public(resource);' in said
    assert "            1  is_public(Repo)" in said
    assert PolicyVersion.objects.count() == 1


def test_a_policy_that_grants_more_says_so(repos, new_policy):
    said = run("preview_policy", new_policy(POLICY + 'has_permission(_: User, "write", _: Repo) if is_open();'))
    assert "decisions: 0 of 1 would change (all affected results were compared)" in said
    said = run("preview_policy", new_policy(POLICY + 'has_permission(_: User, "write", _: Repo);'))
    assert '+ allowed  allow(User:_, "write", Repo:_)' in said


def test_what_cannot_differ_is_not_asked(repos, new_policy):
    """Nor what is only written otherwise."""
    for old, new in (("\n", "\n\n"), ('"reader" if "writer";', '"reader" if ("writer"); # as before')):
        said = run("preview_policy", new_policy(POLICY.replace(old, new)))
        assert "rules: no rules changed\ndecisions: 0 would change: no rules changed" in said


def test_what_decisions_are_made_of_is_compared_too(repos, new_policy):
    said = run("preview_policy", new_policy(POLICY.replace('"reader" if "writer";', "")))
    assert 'has_role(User:_, "reader", Repo:_): 1 of 3 would change, 0 newly allowed, 1 newly denied (all comp' in said
    assert '- denied   has_role(User:bob, "reader", Repo:a)' in said


def test_questions_may_be_given(repos, new_policy, tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text('# one a line\n\nallow(User:root, "read", Repo:a)\nhas_role(User:ann, "reader", Repo:a);\n')
    changed = new_policy(POLICY.replace("is_root(user) and ", "is_root(user) and is_safe(user) and "))
    said = run("preview_policy", changed, "--questions", str(questions))
    assert 'decisions: 1 of 2 checks would change\n  - denied   allow(User:root, "read", Repo:a)' in said


def test_a_question_with_a_word_that_neither_policy_has_is_not_counted(repos, new_policy, tmp_path):
    """It is misspelled, and so says nothing about what would change."""
    questions = tmp_path / "questions.txt"
    asked = ("alow", 'User:ann, "read"'), ("allow", 'User:ann, "raed"'), ("allow", 'Usr:ann, "read"')
    new = ("allow", 'User:ann, "print"')
    questions.write_text("\n".join(f"{predicate}({args}, Repo:a)" for predicate, args in (*asked, new)))
    printing = POLICY.replace('permissions = ["read", "write"', 'permissions = ["print", "read", "write"')
    assert printing != POLICY
    said = run("preview_policy", new_policy(printing), "--questions", str(questions))
    assert "decisions: 0 of 1 check would change; 3 not answered" in said
    assert "not answered: line 1: the policy has no predicate `alow` (did you mean `allow`?)" in said
    assert "not answered: line 2: the policy has no action `raed` on Repo (did you mean `read`?" in said
    assert "not answered: line 3: the policy has no type `Usr` (did you mean `User`?" in said


def test_failing_tests_and_strictness(repos, new_policy):
    failing = POLICY + 'test "nobody" { assert allow(User{"x"}, "read", Repo{"y"}); }'
    assert "1 of 1 test failed" in run("preview_policy", new_policy(failing))
    with pytest.raises(SystemExit):
        run("preview_policy", new_policy(failing), "--strict")
    run("preview_policy", new_policy(POLICY), "--strict")


def test_what_is_no_policy_is_refused(repos, new_policy):
    with pytest.raises(CommandError, match="1 problem found"):
        run("preview_policy", new_policy("actor User"))


def test_a_first_policy_can_be_previewed(api, environment, new_policy):
    said = run("preview_policy", new_policy(POLICY))
    assert "decisions: 0 of 0 would change (all affected results were compared)" in said


LARGE = """
actor User {}
resource Folder { roles = ["viewer"]; relations = { folder: Folder }; role if role on "folder"; }
resource Doc {
  roles = ["reader"];
  permissions = ["read"];
  relations = { folder: Folder };
  "read" if "reader";
  "reader" if "viewer" on "folder";
}
"""


@pytest.fixture
def large(api):
    """30,000 users read what is theirs, 3 see what is in a folder: too much to ask all of it as one question."""
    publish(api, LARGE)
    owned = [fact("has_role", f"User:u{n}", "reader", f"Doc:own{n}") for n in range(30_000)]
    shared = [fact("has_relation", f"Doc:d{n}", "folder", "Folder:f") for n in range(100)]
    store(api, *owned, *shared, *(fact("has_role", f"User:s{n}", "viewer", "Folder:f") for n in range(3)))
    return api


def test_few_who_are_touched_are_found_among_many_and_are_all(large, new_policy):
    said = run("preview_policy", new_policy(LARGE.replace('"reader" if "viewer" on "folder";', "")), "--show", "2")
    assert "decisions: 300 of 300 would change (all affected results were compared)" in said
    assert said.count("- denied   allow(") == 2
    assert "and 596 more; use --show N to print more" in said


def test_a_sample_says_so_and_is_the_same_for_the_same_seed(large, new_policy, monkeypatch):
    monkeypatch.setattr("checks.compare.differences.QUOTA", 50)
    monkeypatch.setattr("checks.compare.differences._MOST_ROWS", 500)  # of what the rule concludes, which are more
    changed = new_policy(LARGE.replace('"read" if "reader";', '"read" if "reader" and not is_shut(resource);'))
    said = [run("preview_policy", changed, "--seed", seed, "--seconds", "60") for seed in ("1", "1", "2")]
    assert "decisions: 0 of " in said[0] and "(of a sample with seed 1)" in said[0]
    assert re.search(r"sample of 50 of 20,\d+ or more User ids", said[0])
    assert said[0] == said[1]


def test_what_the_new_policy_cannot_list_is_asked_for_given_values(api, new_policy):
    """A list is a 400 then, and each decision is an answer."""
    text = """
    actor User {}
    resource Folder { roles = ["reader"]; permissions = ["read"]; relations = { parent: Folder }; "read" if "reader"; }
    has_role(user: User, role: String, folder: Folder) if
      parent matches Folder and has_relation(folder, "parent", parent) and has_role(user, role, parent);
    """
    publish(api, text)
    store(
        api,
        fact("has_relation", "Folder:b", "parent", "Folder:a"),
        fact("has_role", "User:ann", "reader", "Folder:a"),
    )
    changed = new_policy(text.replace("and has_relation", "and not has_relation"))
    begun = time.monotonic()
    said = run("preview_policy", changed, "--seconds", "600")
    assert time.monotonic() - begun < 300  # what is refused is not asked again and again
    assert '+ allowed  allow(User:ann, "read", Folder:_)' in said


def test_kinds_of_questions_that_are_left_out_are_reported(repos, new_policy, monkeypatch):
    monkeypatch.setattr("checks.compare.kinds.MOST_KINDS", 1)
    said = run("preview_policy", new_policy(POLICY.replace('"reader" if "writer";', "")))
    assert "in the first 1 affected queries (there are more)" in said


def test_a_decision_is_compared_however_many_types_an_action_could_have(api, new_policy):
    types = "".join(f"resource T{number} {{}}\n" for number in range(20))
    granted = "allow(actor, action, resource) if may(actor, action, resource) and is_open(resource);"
    publish(api, f"actor User {{}} {types} {granted}")
    store(api, fact("may", "User:ann", "read", "T9:a"), fact("is_open", "T9:a"))
    said = run("preview_policy", new_policy(f"actor User {{}} {types}"))
    assert '- denied   allow(User:ann, "read", T9:a)' in said
    assert "decisions: 1 of 1 would change (all affected results were compared)" in said


def test_what_takes_too_long_is_reported_as_not_asked(large, new_policy):
    changed = new_policy(LARGE.replace('"read" if "reader";', ""))
    said = run("preview_policy", changed, "--seconds", "0.0001")
    assert "not evaluated: the time limit was reached" in said


def test_the_other_environment_is_left_alone(repos, new_api, new_policy):
    other = new_api("other")
    publish(other, POLICY)
    store(other, fact("is_root", "User:other"))
    assert "User:other" not in run("preview_policy", new_policy(POLICY.replace("is_root", "is_boss")), "--explain")
