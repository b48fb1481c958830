"""Files that people name: read as text and opened to write, or an error that says what is wrong with them.

Several files may be one policy (`Bundle`), and a place in it is found again in its file.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TextIO

from policy.errors import AuthzError
from policy.language.rejection import Problem
from policy.language.source import Source, Span

STANDARD_INPUT = "-"
_STANDARD_INPUT_SHOWN = "<stdin>"


class Unreadable(AuthzError):
    """A file that is not there, or not text."""


class Unwritable(AuthzError):
    """A file that cannot be made, or not be written to its end."""


def text_of_file(name: str) -> str:
    _refuse_empty(name)
    try:
        raw = Path(name).read_bytes()
    except OSError as reason:
        raise Unreadable(f"cannot read `{shown_name(name)}`: {why(reason)}") from None
    return decoded(raw, name)


def decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as reason:
        raise Unreadable(f"`{shown_name(name)}` is not UTF-8 text (byte {reason.start})") from None


@contextmanager
def written_file(name: str) -> Iterator[TextIO]:
    """A new file of text, in place of one that is there."""
    _refuse_empty(name)
    try:
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as reason:
        raise Unwritable(f"cannot write `{shown_name(name)}`: {why(reason)}") from None


def why(reason: OSError) -> str:
    return (reason.strerror or "not a file").lower()


def shown_name(name: str) -> str:
    """The name as it may be printed: its bytes need not be text."""
    return name.encode(errors="backslashreplace").decode()


def _refuse_empty(name: str) -> None:
    if not name:
        raise Unreadable("a file's name is empty; name a file")


# ---- several as one policy -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """Files that make one policy. Each ends its last line, so that no comment runs into the next one."""

    parts: tuple[Source, ...]

    @cached_property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def filename(self) -> str:
        """What to call the whole."""
        return ", ".join(part.filename for part in self.parts if part.filename != _STANDARD_INPUT_SHOWN)

    def describe(self, problem: Problem) -> str:
        """The problem with its place in its own file."""
        part, start = self._part_at(problem.span.start)
        span = Span(problem.span.start - start, problem.span.end - start)
        return replace(problem, span=span).describe(part)

    def place_of_line(self, line: int) -> str:
        """`file:line` of a line of the whole."""
        for part in self.parts[:-1]:
            lines = part.text.count("\n")
            if line <= lines:
                return f"{part.filename}:{line}"
            line -= lines
        return f"{self.parts[-1].filename}:{line}"

    def _part_at(self, offset: int) -> tuple[Source, int]:
        starts = [0, *accumulate(len(part.text) for part in self.parts)]
        index = min(bisect_right(starts, offset), len(self.parts)) - 1
        return self.parts[index], starts[index]


def bundle_of_files(names: Iterable[str], standard_input: TextIO) -> Bundle:
    names = list(names)
    texts = [_read(name, standard_input) for name in names]
    ended = [text if text.endswith("\n") else text + "\n" for text in texts[:-1]] + texts[-1:]
    shown = [_STANDARD_INPUT_SHOWN if name == STANDARD_INPUT else shown_name(name) for name in names]
    return Bundle(tuple(Source(text, name) for name, text in zip(shown, ended)))


def _read(name: str, standard_input: TextIO) -> str:
    # Bytes as they are: with `\r\n` as it was written, the text is the one that other clients send.
    if name == STANDARD_INPUT:
        return decoded(standard_input.buffer.read(), _STANDARD_INPUT_SHOWN)
    return text_of_file(name)
