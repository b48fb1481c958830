"""Commands that do it again whenever a file changes, and end with ctrl-C."""

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from policy.management import command
from tests.service import ROOT

POLICY = 'actor User {}\nresource Repo { roles = ["a"]; permissions = ["p"]; "p" if "a"; }\n'
TEST = 'test "t" { assert_not allow(User{"ann"}, "p", Repo{"r"}); }\n'


@pytest.fixture
def steps(monkeypatch):
    """What happens one after the other while a command waits; then ctrl-C."""

    def given(*actions) -> None:
        left = list(actions)

        def waited(seconds: float) -> None:
            assert 0 < seconds <= 1
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        monkeypatch.setattr(command, "sleep", waited)

    return given


def watched(*arguments: str) -> str:
    output = io.StringIO()
    call_command(*arguments, "--watch", stdout=output, stderr=output)
    return output.getvalue()


def test_a_file_is_checked_again_when_it_changes(tmp_path, steps):
    file = tmp_path / "a.polar"
    file.write_text(POLICY)
    steps(
        lambda: file.write_text("actor User {"),
        lambda: None,
        file.unlink,
        lambda: file.write_text(POLICY + "p(x: User) if q(x, _);\n"),
    )
    shown = watched("check_policy", str(file))
    places = [
        shown.index(text) for text in ("2 types, 1 rule", "never closed", "1 problem found", "cannot read", "2 rules")
    ]
    assert places == sorted(places)
    assert shown.count("watching; Ctrl-C to stop") == 4, "once for each state of the file"


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)  # a failed test is explained
def test_the_tests_are_run_again_when_one_of_several_files_changes(db, tmp_path, steps):
    one, two = tmp_path / "a.polar", tmp_path / "b.polar"
    one.write_text(POLICY)
    two.write_text(TEST)
    steps(lambda: two.write_text(TEST.replace("assert_not", "assert")))
    shown = watched("test_policy", str(one), str(two), "--coverage")
    assert shown.index("1 test passed") < shown.index("FAIL t: 0 of 1") < shown.index("1 of 1 test failed")
    assert shown.count("1 rule is exercised") == 2


def test_a_change_while_it_acts_is_a_change(tmp_path, steps):
    """What an editor saves in the middle of a run is not missed."""
    file = tmp_path / "a"
    file.write_text("1")
    seen: list[str] = []

    def act() -> None:
        seen.append(file.read_text())
        if len(seen) == 1:
            file.write_text("twice")

    steps()
    command.until_interrupted([str(file)], act, io.StringIO())
    assert seen == ["1", "twice"]


@pytest.mark.parametrize("command", ["check_policy", "test_policy"])
def test_the_standard_input_cannot_be_watched(command):
    with pytest.raises(CommandError, match="Cannot watch standard input"):
        watched(command, "-")


def _heed_interrupts() -> None:
    """As a terminal has it: who runs tests in the background of a shell has them ignored, and so have its processes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_ends_it(tmp_path):
    file = tmp_path / "a.polar"
    file.write_text(POLICY)
    process = subprocess.Popen(
        [sys.executable, "manage.py", "check_policy", str(file), "--watch"],
        cwd=ROOT, env={**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path}/a.sqlite3", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_heed_interrupts,
    )  # fmt: skip
    try:
        assert "2 types, 1 rule" in next_line(process)
        assert "watching" in next_line(process)
        replacement = Path(f"{file}.new")
        replacement.write_text("actor {")
        replacement.replace(file)  # as editors save
        assert "unexpected `{`" in next_line(process)
        while "watching" not in next_line(process):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen) -> str:
    line = process.stdout.readline()
    assert line, "it has ended"
    return line


def test_it_looks_often_enough_and_not_all_the_time():
    assert 0.05 <= command.INTERVAL <= 1
