"""Several files as one policy, and the way back from a place in it to a place in a file."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TextIO

from policy.files import decoded, shown_name, text_of_file
from policy.language.rejection import Problem
from policy.language.source import Source, Span

STANDARD_INPUT = "-"
_STANDARD_INPUT_SHOWN = "<stdin>"


@dataclass(frozen=True)
class Bundle:
    """Each part ends its last line, so that no comment runs into the next one."""

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
