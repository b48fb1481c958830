"""`load_example`: which there are, one of them loaded, or written to files."""

import io
import re
import shlex

import pytest
from django.core.management import CommandError, call_command

from authz_project.examples import example_named, examples
from facts import read
from policy.models import Environment, default_environment
from policy.publishing import active_version, publish


def said(*words: str) -> str:
    out = io.StringIO()
    call_command("load_example", *words, stdout=out)
    return out.getvalue()


def test_alone_it_lists_all(db):
    lines = said().splitlines()
    assert [line.split()[0] for line in lines] == [example.name for example in examples()]
    patterns = ("RBAC", "groups", "folders", "custom roles", "sharing", "time", "quotas", "field level",
                "impersonation", "multi-tenancy")  # fmt: skip
    assert [pattern for pattern in patterns if not any(pattern in line for line in lines)] == []


def test_it_loads_into_the_default_environment_and_says_what_to_ask(db):
    told = said("saas")
    example = example_named("saas")
    assert told.startswith(f"{example.title}: policy version 1 and {len(example.stored_facts)} facts\n")
    assert "authorize User:sue view Tenant:initech\n      denied: kim refuses" in told
    assert "--environment" not in told
    assert "ask who --environment firm --actor-type User approve Expense:ian-trip" in said(
        "company", "--environment", "firm"
    )
    assert len(list(read.every(default_environment().pk))) == len(example.stored_facts)
    assert said("saas") == "environment `default` already contains this example; nothing was changed\n"


def test_what_it_says_to_ask_is_answered_so(db):
    """As typed, every line of it."""
    told = said("code")
    commands = re.findall(r"^  .* ask (.*)\n      (.*?): ", told, re.MULTILINE)
    assert len(commands) == len(example_named("code").questions)
    for command, answer in commands:
        out = io.StringIO()
        call_command("ask", *shlex.split(command), stdout=out)
        assert ", ".join(line.removeprefix("User:") for line in out.getvalue().splitlines()) == answer


def test_it_makes_the_environment_that_is_named(db):
    assert "ask authorize --environment tryout User:" in said("code", "--environment", "tryout")
    assert active_version(Environment.objects.get(slug="tryout").pk).filename == "code.polar"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["codes"], "Example `codes` does not exist. Use one of code, documents, saas, company, clinic."),
        (["code", "--environment", "not a name"], "is not a valid name"),
        (["code", "--environment", "testenvironment123"], "is reserved for test environments"),
    ],
)
def test_what_is_not_there_is_said_to_be_so(db, words, told):
    with pytest.raises(CommandError, match=told):
        said(*words)


def test_what_is_there_is_left_alone(db):
    publish(default_environment().pk, "actor User {}", None)
    with pytest.raises(CommandError, match=r"`default` is not empty: .* version 1\. .*ENVIRONMENT`, which creates"):
        said("code")
    assert list(read.every(default_environment().pk)) == []


def test_it_is_written_to_files_that_can_be_loaded(db, tmp_path):
    assert said("clinic", "--write", str(tmp_path)) == f"{tmp_path}/clinic.polar\n{tmp_path}/clinic.csv\n"
    call_command("load_policy", str(tmp_path / "clinic.polar"), stdout=io.StringIO())
    call_command("load_facts", str(tmp_path / "clinic.csv"), stdout=io.StringIO())
    environment = default_environment()
    assert set(read.every(environment.pk)) == set(example_named("clinic").stored_facts)
    assert "already contains this example" in said("clinic")
    with pytest.raises(CommandError, match="already exists"):
        said("clinic", "--write", str(tmp_path))
    new = tmp_path / "a" / "folder"
    assert said("clinic", "--write", str(new)) == f"{new}/clinic.polar\n{new}/clinic.csv\n"
    with pytest.raises(CommandError, match=r"cannot create folder .*: not a directory"):
        said("clinic", "--write", str(new / "clinic.csv" / "folder"))


@pytest.mark.parametrize("name", ["clinic.polar", "clinic.csv"])
def test_it_is_not_written_through_a_link_that_leads_nowhere(tmp_path, name):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(CommandError, match="already exists; not overwritten"):
        said("clinic", "--write", str(folder))
    assert not elsewhere.exists()
