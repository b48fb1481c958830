"""`format_policy`: files reformatted, and never lost."""

import io
import os
import stat
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from policy.files import Unwritable, replace_text
from policy.management.commands import format_policy

LAID_OUT = 'actor User {}\n\nresource Repo {  # a comment\n  roles = ["a"];\n}\n'
OTHERWISE = 'actor User{}\r\n\tresource Repo { # a comment\n roles=["a",] ; }'


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files into the working directory, and gives their paths."""
    monkeypatch.chdir(tmp_path)

    def write(**texts: str) -> list[Path]:
        paths = [Path(f"{name}.polar") for name in texts]
        for path, text in zip(paths, texts.values()):
            path.write_bytes(text.encode())
        return paths

    return write


def ended(*arguments: object) -> tuple[str, str, int]:
    """The standard output, the standard error, and the exit code."""
    output, errors = io.StringIO(), io.StringIO()
    try:
        call_command("format_policy", *map(str, arguments), stdout=output, stderr=errors)
    except CommandError as reason:
        return output.getvalue(), f"{errors.getvalue()}{reason}\n", reason.returncode
    return output.getvalue(), errors.getvalue(), 0


def names() -> list[str]:
    """What is in the working directory."""
    return sorted(path.name for path in Path().iterdir())


def read(path: Path) -> str:
    return path.read_bytes().decode()


def test_files_are_laid_out(files):
    one, two = files(one=OTHERWISE, two=LAID_OUT)
    before = two.stat()
    assert ended(one, two) == ("", "one.polar: reformatted\n1 file reformatted, 1 unchanged\n", 0)
    assert read(one) == read(two) == LAID_OUT
    assert (two.stat().st_ino, two.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert ended(one) == ("", "0 files reformatted, 1 unchanged\n", 0)
    assert names() == ["one.polar", "two.polar"]


def test_a_check_changes_nothing_and_says_what_would(files):
    one, two = files(one=OTHERWISE, two=LAID_OUT)
    output, errors, code = ended("--check", one, two)
    assert (output, code) == ("", 1)
    assert errors.startswith("one.polar: would be reformatted\n1 file would be reformatted, 1 unchanged\n")
    assert read(one) == OTHERWISE
    assert ended("--check", two)[2] == 0


def test_a_difference_is_shown_and_nothing_changed(files):
    (one,) = files(one=OTHERWISE)
    output, _, code = ended("--diff", one)
    assert code == 0 and read(one) == OTHERWISE
    assert output.startswith("--- one.polar\n+++ one.polar, reformatted\n@@ ")
    assert "+resource Repo {  # a comment\n" in output and "-actor User{}\r\n" in output
    assert ended("--diff", "--check", one)[::2] == (output, 1)
    assert ended("--diff", *files(two=LAID_OUT))[0] == ""


def test_the_standard_input_goes_to_the_standard_output(files, monkeypatch):
    def given(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    given(OTHERWISE)
    assert ended("-") == (LAID_OUT, "1 file reformatted, 0 unchanged\n", 0)
    given("")
    assert ended("-")[0] == ""
    given(OTHERWISE)
    assert ended("-", "--check")[::2] == ("", 1)
    given("actor {")
    output, errors, code = ended("-")
    assert (output, code) == ("", 2)
    assert errors.startswith("<stdin>:1:7: unexpected `{`")


def test_what_is_no_policy_is_left_and_the_others_are_laid_out(files):
    broken, one = files(broken="actor User {\n", one=OTHERWISE)
    Path("latin.polar").write_bytes(b"\xe9")
    _, errors, code = ended(broken, "latin.polar", "nowhere.polar", ".", one)
    assert code == 2 and read(one) == LAID_OUT and read(broken) == "actor User {\n"
    for said in (
        "broken.polar:1:12: this `{` is never closed",
        "`latin.polar` is not UTF-8 text",
        "cannot read `nowhere.polar`",
        "cannot read `.`",
        "4 files could not be formatted",
    ):
        assert said in errors
    assert ended("--check", broken)[2] == 2


def test_a_file_keeps_its_mode_and_a_link_stays_one(files):
    (one,) = files(one=OTHERWISE)
    one.chmod(0o640)
    link = Path("link.polar")
    link.symlink_to(one)
    assert ended(link)[2] == 0
    assert link.is_symlink() and read(one) == LAID_OUT
    assert stat.S_IMODE(one.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("owner_stays", "group_stays", "mode", "kept"),
    [
        (True, True, 0o6755, 0o6755),
        (False, True, 0o6775, 0o0775),
        (False, False, 0o6775, 0o0705),
        (False, False, 0o0640, 0o0600),
    ],
)
def test_what_was_for_an_owner_or_a_group_is_for_no_other(files, monkeypatch, owner_stays, group_stays, mode, kept):
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    (one,) = files(one=OTHERWISE)
    os.chown(one, 12345, 23456)
    one.chmod(mode)
    give = os.chown

    def chown(path: Path, user: int, group: int) -> None:
        if not (owner_stays or user == -1) or not (group_stays or group == -1):
            raise PermissionError(1, "Operation not permitted")
        give(path, user, group)

    monkeypatch.setattr(os, "chown", chown)
    assert ended(one)[2] == 0 and read(one) == LAID_OUT
    now = one.stat()
    assert (now.st_uid == 12345, now.st_gid == 23456) == (owner_stays, group_stays)
    assert stat.S_IMODE(now.st_mode) == kept


def test_a_layout_that_would_say_something_else_is_not_written(files, monkeypatch):
    (one,) = files(one=OTHERWISE)
    for wrong in (LAID_OUT.replace('"a"', '"b"'), LAID_OUT.replace("# a comment", ""), "actor User {"):
        monkeypatch.setattr(format_policy, "formatted", lambda text, wrong=wrong: wrong)
        _, errors, code = ended(one)
        assert code == 2 and "would change the meaning" in errors
        assert read(one) == OTHERWISE


# ---- one text in the place of another ------------------------------------------------------------------------------


def test_a_text_that_changed_meanwhile_is_kept(files):
    (one,) = files(one="changed")
    with pytest.raises(Unwritable, match="was changed by another program"):
        replace_text("one.polar", "as it was read", "new")
    assert read(one) == "changed" and names() == ["one.polar"]


@pytest.mark.parametrize("failing", ["fsync", "chown", "chmod", "replace"])
def test_a_text_is_kept_when_writing_fails_on_the_way(files, monkeypatch, failing):
    (one,) = files(one="before")

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if failing in ("fsync", "chown") else Path, failing, refuse)
    with pytest.raises(Unwritable, match="no space left on device"):
        replace_text("one.polar", "before", "after")
    assert read(one) == "before" and names() == ["one.polar"]


def test_what_is_no_file_is_not_replaced(files, tmp_path):
    os.mkfifo("pipe")
    for name in ("pipe", "nowhere", "."):
        with pytest.raises(Unwritable, match="not a regular file"):
            replace_text(name, "", "after")
