"""Nonsense on the command line: every command says in one line what is wrong with it, and changes nothing."""

import io

import pytest
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.one_database

FILES = [
    ("check_policy", "{}"), ("load_policy", "{}"), ("test_policy", "{}"), ("preview_policy", "{}"),
    ("show_policy", "--diff", "{}"), ("audit_facts", "--policy", "{}"), ("load_facts", "{}"), ("check_bindings", "{}"),
    ("ask_local", "authorize", "User:a", "read", "Repo:b", "--bindings", "{}"),
]  # fmt: skip


def refused(*words: str) -> str:
    out = io.StringIO()
    with pytest.raises(CommandError) as refusal:
        call_command(*words, stdout=out, stderr=out)
    assert out.getvalue() == ""
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("command", FILES, ids=lambda command: command[0])
def test_files_that_cannot_be_read(environment, tmp_path, command):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for file, said in (
        (tmp_path / "missing", "no such file or directory"),
        (tmp_path, "is a directory"),
        ("", "The file name is empty"),
        (binary, "is not UTF-8 text"),
    ):
        if command[0] != "load_facts" or file != binary:  # whose lines are told one by one
            assert said in refused(*(word.format(file) for word in command))


@pytest.mark.parametrize(
    ("file", "said"),
    [("{}/missing/x", "no such file"), ("{}", "is a directory"), ("", "is empty"), ("/dev/full", "no space left")],
)
def test_files_that_cannot_be_written(environment, tmp_path, file, said):
    store_one(environment)
    assert said in refused("dump_facts", file.format(tmp_path))


def store_one(environment) -> None:
    from facts import store
    from facts.store import Inserts
    from facts.wire import Fact
    from policy.values import Value

    store.apply(environment.pk, [Inserts([Fact("p", (Value("T", "x"),))])])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("api_keys", "create", "x" * 201), "at most 200 are allowed"),
        (("api_keys", "create", "--environment", "a b", "--create-environment"), "1 to 40 letters and digits"),
        (("api_keys", "create", "--environment", "", "--create-environment"), "1 to 40 letters and digits"),
        (("show_policy", "--history", "--environment", ""), "Environment `` does not exist"),
        (("api_keys", "revoke", ""), "API key not found"),
        (("show_policy", "--version=-1"), "must be a whole number"),
        (("show_policy", "--version", "99999999999999999999"), "must be a whole number from 0 to 2,147,483,647"),
        (("show_policy", "--version", "0" * 20 + "9" * 5000), "must be a whole number from 0 to 2,147,483,647"),
        (("show_policy", "--version", "0" * 5000 + "7"), "policy version 7 does not exist"),
        (("load_policy", "--version", "x"), "must be a whole number"),
        (("load_policy", "--version", "7"), "policy version 7 does not exist"),
        (("show_policy", "--diff", "1", "2", "3"), "--diff takes one or two policies, not 3"),
        (("show_policy", "--diff", "9" * 30), "Policy version 999"),
        (("show_policy", "--diff", "9" * 5000), "Policy version 999"),
        (("show_policy", "--diff", "0" * 5000 + "7"), "policy version 7 does not exist"),
        (("preview_policy", "x", "--seconds", "0"), "must be a number above 0"),
        (("preview_policy", "x", "--show=-1"), "must be a whole number"),
        (("how", "allow()", "--show", "0"), "must be a whole number from 1 to 2,147,483,647"),
        (("delete_facts", "p("), "expected an argument"),
        (("ask", "authorize", "User:*", "read", "Repo:b"), "must not be `*`"),
        (("ask", "authorize", "User:" + "x" * 513, "read", "Repo:b"), "at most 512 bytes"),
        (("ask", "authorize", "User:a", "", "Repo:b"), "the action is empty"),
    ],
)
def test_values_that_mean_nothing(environment, words, said):
    assert said in refused(*words)
