"""How far a command is: on a terminal, after a while, on one line, and gone when all is done."""

import io
import os
import pty
import subprocess
import sys
import time

import pytest
from django.core.management.base import OutputWrapper

from policy.management.command import Progress
from tests.service import ROOT

SOON = 0.02  # seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(out: io.StringIO, until: str) -> str:
    """What is written by the time that this is part of it."""
    deadline = time.monotonic() + 30
    while until not in out.getvalue() and time.monotonic() < deadline:
        time.sleep(SOON)
    return out.getvalue()


def on_a_terminal(**options) -> tuple[Terminal, Progress]:
    out = Terminal()
    return out, Progress("storing facts", OutputWrapper(out), **{"patience": SOON, "every": SOON, **options})


def test_what_is_done_soon_shows_nothing():
    out, shown = on_a_terminal(patience=60)
    with shown:
        shown.tell(1)
    assert out.getvalue() == ""


@pytest.mark.parametrize("dumb", [False, True])
def test_nothing_is_shown_where_nobody_looks(monkeypatch, dumb):
    out = Terminal() if dumb else io.StringIO()
    monkeypatch.setenv("TERM", "dumb" if dumb else "xterm")
    with Progress("storing facts", OutputWrapper(out), SOON, SOON) as shown:
        time.sleep(10 * SOON)
        assert list(shown.counted("abc")) == ["a", "b", "c"]
    assert out.getvalue() == ""


def test_a_line_is_drawn_over_and_is_gone_in_the_end(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out, shown = on_a_terminal()
    with shown:
        drawn(out, "storing facts  0:00")
        shown.tell(1_234, 0.5, "of default")
        text = drawn(out, "1,234")
    assert f"\rstoring facts  [{'#' * 12}{'.' * 12}]  50%  1,234  of default  0:00  about 0:00 left\033[K" in text
    assert out.getvalue().endswith("\r\033[K") and "\n" not in out.getvalue()


def test_a_line_that_is_the_same_is_not_drawn_again():
    out, shown = on_a_terminal()
    shown.line = lambda seconds, width: "the same"
    with shown:
        drawn(out, "the same")
        time.sleep(10 * SOON)
    assert out.getvalue().count("the same") == 1


def test_others_are_written_in_place_of_the_line():
    out, shown = on_a_terminal()
    with shown:
        drawn(out, "storing facts")
        with shown.aside():
            out.write("a result\n")
    assert "\r\033[Ka result\n" in out.getvalue()


def test_it_ends_with_what_fails():
    out, shown = on_a_terminal()
    with pytest.raises(ValueError), shown:
        drawn(out, "storing facts")
        raise ValueError
    assert out.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize(
    ("seconds", "share", "told"),
    [
        (75, None, "storing facts  1:15"),
        (3_725, None, "storing facts  1:02:05"),
        (10, 0.25, f"storing facts  [{'#' * 6}{'.' * 18}]  25%  0:10  about 0:30 left"),
        (10, 0.001, f"storing facts  [{'.' * 24}]   0%  0:10"),
        (10, 1.5, f"storing facts  [{'#' * 24}] 100%  0:10"),
    ],
)
def test_what_a_line_says(seconds, share, told):
    _, shown = on_a_terminal()
    shown.tell(share=share)
    assert shown.line(seconds, 200) == told
    assert shown.line(seconds, 20) == told[:19]


def test_a_command_shows_how_far_it_is(tmp_path):
    """With the output in a pipe, and somebody at the terminal, who sees the line and in the end nothing of it."""
    url, variables = f"sqlite:///{tmp_path / 'authz.sqlite3'}", {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, ROOT / "manage.py"]
    options = {"cwd": tmp_path, "env": os.environ | variables | {"DATABASE_URL": url}}
    subprocess.run([*command, "migrate", "-v0"], check=True, timeout=60, **options)
    ours, theirs = pty.openpty()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": theirs}
    with subprocess.Popen([*command, "load_facts", "-"], **pipes, **options) as process:
        process.stdin.write(b'{"predicate": "p", "args": [{"type": "T", "id": "x"}]}\n')
        process.stdin.flush()
        seen = b""
        while b"storing facts  0:0" not in seen:
            seen += os.read(ours, 1000)
        told, _ = process.communicate(timeout=60)
    os.close(theirs)
    assert told == b"1 fact read, 1 of them new, 0 lines skipped\n"
    assert (seen + os.read(ours, 1000)).endswith(b"\r\x1b[K")
    os.close(ours)
