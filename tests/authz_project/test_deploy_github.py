"""The action for GitHub, a workflow that uses it, and hooks for pre-commit: their commands run as they stand."""

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.core.management import CommandError, call_command
from pre_commit.clientlib import load_manifest

from authz_project import __version__
from tests.service import ROOT

# Commands need no database, but to connect to one in memory is to be allowed by pytest-django.
pytestmark = [pytest.mark.usefixtures("db"), pytest.mark.parametrize("db", ["sqlite"], indirect=True)]

DEPLOY = ROOT / "authz_project" / "deploy"
FOLDER = DEPLOY / "action"
ACTION = yaml.safe_load((FOLDER / "action.yml").read_text())
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


def commands() -> list[list[str]]:
    """What its steps run of ours, with the variables put in as a shell does."""
    written = [step["run"] for step in ACTION["runs"]["steps"] if step.get("run", "").startswith("authz ")]
    return [shlex.split(line.replace("$POLICY", "main.polar").replace("$MINIMUM", "90"))[1:] for line in written]


def test_the_workflow_uses_the_action():
    found = yaml.safe_load((DEPLOY / "github-actions.yml").read_text())
    assert set(found[True]) == {"push", "pull_request"}  # as YAML 1.1 reads the key `on`
    assert found["permissions"] == {"contents": "read", "pull-requests": "write"}
    *_, step = found["jobs"]["policy"]["steps"]
    folder, _, version = step["uses"].partition("/")[2].partition("/")[2].partition("@")
    assert ROOT / folder / "action.yml" == FOLDER / "action.yml" and version == f"v{__version__}"
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert {name for name, each in ACTION["inputs"].items() if each.get("required")} <= set(step["with"])


def test_the_action_is_one():
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step) and ("shell" in step) == ("run" in step)
        # What is sent is in variables: in the text of a script, it would be run.
        assert "${{" not in step.get("run", "")
        sent = " ".join(step.get("env", {}).values())
        assert set(re.findall(r"inputs\.([\w-]+)", sent)) <= set(ACTION["inputs"])
    assert (FOLDER / "../../..").resolve() == ROOT and "$GITHUB_ACTION_PATH/../../.." in str(ACTION)


GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$LOG"
case "$*" in
  *startswith*) printf '%s' "$EARLIER" ;;
esac
exit $STATUS
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("earlier", "status", "facts", "told"),
    [
        ("", 0, "facts.csv", "issues/7/comments -F"),
        ("55", 0, "", "-X PATCH repos/o/r/issues/comments/55"),
        ("", 1, "", ""),
    ],
    ids=["new", "again", "fork"],
)
def test_a_change_is_previewed_in_the_summary_and_a_comment(tmp_path, earlier, status, facts, told):
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    (folder / "main.polar").write_text(POLICY)
    (folder / "facts.csv").write_text("has_role,User,ann,String,reader,Repo,a\n")
    git("init", "--quiet")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "First")
    git("remote", "add", "origin", str(folder))
    (folder / "main.polar").write_text(
        POLICY.replace('"read" if "reader";', "").replace("assert allow", "assert_not allow")
    )
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(GH)
    gh.chmod(0o755)
    programs = f"{gh.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {
        "PATH": programs, "LOG": str(tmp_path / "log"), "EARLIER": earlier, "STATUS": str(status), "FACTS": facts,
        "POLICY": "main.polar", "COMMENT": "true", "BASE": git("rev-parse", "HEAD"), "NUMBER": "7", "SECRET_KEY": "",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_REPOSITORY": "o/r", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    env.pop("DJANGO_SETTINGS_MODULE", None)
    words = ["bash", FOLDER / "preview.sh"]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = (tmp_path / "summary").read_text()
    assert "grants less" in summary and str(tmp_path) not in summary
    assert ('- denied   allow(User:ann, "read", Repo:a)' in summary) is bool(facts)
    assert told in (tmp_path / "log").read_text()
    assert ("could not be commented" in done.stdout) is bool(status)


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


# ---- pre-commit --------------------------------------------------------------------------------------------------


def test_hooks_are_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.polar").write_text(POLICY)
    hooks = load_manifest(ROOT / ".pre-commit-hooks.yaml")
    assert [hook["id"] for hook in hooks] == ["authz-check-policy", "authz-test-policy", "authz-format-policy"]
    for hook in hooks:
        assert hook["language"] == "python" and re.search(hook["files"], "policy/main.polar")
        words = shlex.split(hook["entry"])[1:]
        call_command(*words, "main.polar", stdout=io.StringIO(), stderr=io.StringIO())
