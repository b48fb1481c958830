"""Policies from the command line."""

import io
import sys

import pytest
from django.core.management import CommandError, call_command

from facts import store
from facts.store import Inserts
from policy import publishing
from policy.models import Environment
from policy.publishing import active_version
from tests.policy.test_publishing import OTHER, POLICY, TESTED, role, tests_fail, tests_pass  # noqa: F401  fixtures

pytestmark = pytest.mark.one_database


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files into the working directory, and gives their names."""
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> list[str]:
        for name, text in texts.items():
            (tmp_path / f"{name}.polar").write_bytes(text.encode())
        return [f"{name}.polar" for name in texts]

    return write


def run(command: str, *args: str, **options) -> str:
    output = io.StringIO()
    call_command(command, *args, stdout=output, stderr=output, **options)
    return output.getvalue()


def refused(command: str, *args: str, **options) -> str:
    """What a command that fails writes, and how it ends."""
    output = io.StringIO()
    with pytest.raises(CommandError) as refusal:
        call_command(command, *args, stdout=output, stderr=output, **options)
    return output.getvalue() + str(refusal.value)


# ---- load_policy -----------------------------------------------------------------------------------------


def test_a_file_becomes_the_policy(environment, files):
    assert run("load_policy", *files(main=POLICY)) == "policy version 1 is active\n"
    version = active_version(environment.pk)
    assert (version.source, version.filename) == (POLICY, "main.polar")
    assert "already active" in run("load_policy", "main.polar")


def test_several_files_make_one_policy(environment, files):
    names = files(types="actor User {}\n# no line end", folder=POLICY.removeprefix("actor User {}\n"), more="")
    run("load_policy", *names)
    version = active_version(environment.pk)
    assert version.source.startswith("actor User {}\n# no line end\nresource Folder {")
    assert version.filename == "types.polar, folder.polar, more.polar"


def test_the_standard_input_is_a_file_too(environment, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(POLICY.encode())))
    run("load_policy", "-")
    version = active_version(environment.pk)
    assert (version.source, version.filename) == (POLICY, "")


def test_problems_are_shown_in_their_own_files(environment, files):
    names = files(a="actor User {}", b="# first\nresource Folder extends Nix {}\n", c='p() if q(Nada{"x"});\n')
    message = refused("load_policy", *names)
    assert "b.polar:2:25: " in message and "  resource Folder extends Nix {}\n" in message
    assert "c.polar:1:10: " in message
    assert message.endswith("\n2 problems found. The policy was not accepted.")
    assert active_version(environment.pk) is None


def test_warnings_are_shown_in_their_own_files(environment, files):
    output = run("load_policy", *files(a=POLICY, b="\np(x: User) if q(x, y);\n"))
    assert output.startswith("warning: b.polar:2:") and output.endswith("policy version 1 is active\n")


def test_failed_tests_are_shown_in_their_own_files(environment, files, tests_fail):  # noqa: F811
    names = files(a="actor User {}\n", b=TESTED.removeprefix("actor User {}\n"))
    message = refused("load_policy", *names)
    assert message.startswith("b.polar:8: test `viewers view`: expected a result")
    assert message.endswith("\n1 assertion failed. The policy was not accepted.")
    output = run("load_policy", *names, "--force")
    assert "b.polar:8: test" in output and "1 of 1 test failed" in output


def test_a_dry_run_changes_nothing(environment, files, tests_pass):  # noqa: F811
    store.apply(environment.pk, [Inserts([role("ann", "reader", "Document", "d")])])
    output = run("load_policy", *files(main=TESTED), "--dry-run")
    assert "the policy can be published; nothing was changed; 1 test passed; 1 stored fact is not used" in output
    assert active_version(environment.pk) is None
    assert "1 problem" in refused("load_policy", *files(main="resource {"), "--dry-run")


def test_other_environments_are_named(new_api, files):
    other = new_api("other").environment
    run("load_policy", *files(main=POLICY), "--environment", "other")
    assert active_version(other.pk).number == 1
    assert not Environment.objects.filter(slug="default").exists()
    assert "Environment `nowhere` does not exist" in refused("load_policy", "main.polar", "--environment", "nowhere")


def test_files_that_cannot_be_read_are_named(environment, files, tmp_path):
    (tmp_path / "latin.polar").write_bytes("# Grüße".encode("latin-1"))
    files(main=POLICY)
    missing = "cannot read `missing.polar`: no such file or directory; check the path"
    assert refused("load_policy", "missing.polar") == missing
    assert refused("load_policy", "main.polar", "latin.polar") == "`latin.polar` is not UTF-8 text (byte 4)"
    assert refused("check_policy", str(tmp_path)).startswith("cannot read `")


# ---- check_policy ----------------------------------------------------------------------------------------


def test_files_are_checked_without_a_database(files):
    assert run("check_policy", *files(main=TESTED)).startswith("no problems: 2 types, ")
    message = refused("check_policy", *files(a="actor User {}", b="actor User {}"))
    assert message.startswith("b.polar:1:") and message.endswith("\n1 problem found. The policy was not accepted.")


def test_warnings_fail_a_strict_check(files):
    names = files(main="actor User {}\np(x: User) if q(x, y);\n")
    assert "warning: main.polar:2:" in run("check_policy", *names)
    assert refused("check_policy", *names, "--strict").endswith("\n1 warning")
    names = files(main="actor User {}\np(_: User, _: Role);\n")
    assert "warning: main.polar:2:15: type `Role` is used in rules, but not declared" in run("check_policy", *names)
    assert "warning: main.polar:2:15: " in refused("check_policy", *names, "--strict")


# ---- versions --------------------------------------------------------------------------------------------


def test_policies_are_shown_as_they_were_sent(environment):
    assert refused("show_policy") == "No policy is loaded. Publish one with `load_policy`."
    for text in (POLICY, OTHER + "# no line end"):
        publishing.publish(environment.pk, text, None)
    assert run("show_policy") == OTHER + "# no line end"
    assert run("show_policy", "--version", "1") == POLICY
    assert refused("show_policy", "--version", "7") == "policy version 7 does not exist; the latest is 2"


def test_the_history_marks_the_active_version(environment):
    assert run("show_policy", "--history") == ""
    for text, name in ((POLICY, "a.polar"), (OTHER, None)):
        publishing.publish(environment.pk, text, name)
    publishing.activate(environment.pk, 1)
    newest, oldest = run("show_policy", "--history").splitlines()
    assert newest.split()[0] == "2"
    assert oldest.split()[:2] == ["*", "1"] and oldest.endswith("  a.polar")


def test_an_older_version_is_taken_back(environment):
    for text in (POLICY, OTHER):
        publishing.publish(environment.pk, text, None)
    assert run("load_policy", "--version", "1") == "policy version 1 is active\n"
    assert active_version(environment.pk).source == POLICY
    assert refused("load_policy", "--version", "3") == "policy version 3 does not exist; the latest is 2"


def test_policies_are_compared(environment, files):
    publishing.publish(environment.pk, POLICY, None)
    publishing.publish(environment.pk, POLICY.replace('"owner"]', '"owner", "guest"]'), None)
    changed = ['-  roles = ["viewer", "owner"];', '+  roles = ["viewer", "owner", "guest"];']
    output = run("show_policy", "--diff", "1", "2").splitlines()
    assert output[:3] == ["--- 1", "+++ 2", "@@ -1,6 +1,6 @@"]
    assert [line for line in output[3:] if line[0] in "+-"] == changed
    assert run("show_policy", "--diff", "active", "2") == run("show_policy", "--diff", "2") == ""
    files(main=POLICY)
    assert changed[1].replace("+", "-", 1) in run("show_policy", "--diff", "main.polar")
    assert "policy version 9 does not exist" in refused("show_policy", "--diff", "9")


# ---- audit_facts -----------------------------------------------------------------------------------------


def test_facts_without_use_are_listed(environment, files):
    assert "No policy is loaded" in refused("audit_facts")
    facts = [role(f"u{n}", "viewer", "Folder", "f") for n in range(3)]
    store.apply(environment.pk, [Inserts([*facts, role("ann", "reader", "Document", "d")])])
    publishing.publish(environment.pk, POLICY, None)
    assert run("audit_facts").split() == ["1", "has_role(User,", "String,", "Document)"]
    other = files(main=OTHER)
    assert run("audit_facts", "--policy", *other).split() == ["3", "has_role(User,", "String,", "Folder)"]
    both = files(main=POLICY, more=OTHER.removeprefix("actor User {}\n"))
    assert run("audit_facts", "--policy", *both) == "the policy accepts every stored fact\n"
    with pytest.raises(SystemExit):
        run("audit_facts", "--strict")


def test_facts_of_files_are_held_to_the_policy(environment, tmp_path):
    publishing.publish(environment.pk, POLICY, None)
    line = (
        '{"predicate": "has_role", "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "viewer"}, %s]}\n'
    )
    right, wrong = '{"type": "Folder", "id": "f"}', '{"type": "Foldr", "id": "f"}'
    (tmp_path / "facts.jsonl").write_text(line % right + line % wrong)
    message = refused("load_facts", str(tmp_path / "facts.jsonl"))
    assert "the fact `has_role(User, String, Foldr)` is not used in policy (did you mean `Folder`?)" in message
    assert run("audit_facts") == "the policy accepts every stored fact\n"
