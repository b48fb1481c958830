"""The sample of a workflow for GitHub: it can be read, and its commands run as they stand."""

import io
import shlex

import pytest
import yaml
from django.core.management import CommandError, call_command

from tests.service import ROOT

# Commands need no database, but to connect to one in memory is to be allowed by pytest-django.
pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

TEXT = (ROOT / "authz_project" / "deploy" / "github-actions.yml").read_text()
POLICY = """actor User {}

resource Repo {
  roles = ["reader"];
  permissions = ["read"];
  "read" if "reader";
}

test "readers read" {
  setup {
    has_role(User{"ann"}, "reader", Repo{"a"});
  }
  assert allow(User{"ann"}, "read", Repo{"a"});
}
"""


def workflow() -> dict:
    found = yaml.safe_load(TEXT)
    found["on"] = found.pop(True)  # as YAML 1.1 reads the key `on`
    return found


def commands() -> list[list[str]]:
    """What its steps run of ours, with the variables put in as a shell does."""
    steps = workflow()["jobs"]["policy"]["steps"]
    written = [step["run"] for step in steps if step.get("run", "").startswith("authz ")]
    return [shlex.split(line.replace("$POLICY", "main.polar"))[1:] for line in written]


def test_it_is_a_workflow():
    found = workflow()
    assert set(found) == {"name", "on", "permissions", "env", "jobs"}
    assert set(found["on"]) == {"push", "pull_request"} and found["permissions"] == {"contents": "read"}
    for step in found["jobs"]["policy"]["steps"]:
        assert ("uses" in step) != ("run" in step)
    used = {name for step in found["jobs"]["policy"]["steps"] for name in found["env"] if f"${name}" in str(step)}
    assert used == set(found["env"])


def test_its_commands_accept_a_policy_that_is_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.polar").write_text(POLICY)
    assert [name for name, *_ in commands()] == ["check_policy", "test_policy", "format_policy"]
    for command in commands():
        call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())


@pytest.mark.parametrize(
    ("wrong", "right", "refused"),
    [
        ('"read" if "reader"', '"read" if "raeder"', ["check_policy", "test_policy"]),
        ("assert allow", "assert_not allow", ["test_policy"]),
        ('  "read" if "reader";', '  "read" if "reader";\n  "reader" if "read" on "nothing";', ["check_policy"]),
        ("actor User {}", "actor User { }", ["format_policy"]),
    ],
)
def test_each_refuses_what_it_is_there_for(tmp_path, monkeypatch, wrong, right, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.polar").write_text(POLICY.replace(wrong, right))
    failed = []
    for command in commands():
        try:
            call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())
        except CommandError:
            failed.append(command[0])
    assert set(refused) <= set(failed)
    assert [path.name for path in tmp_path.iterdir()] == ["main.polar"]
