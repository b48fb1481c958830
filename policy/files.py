"""Read and write files that users name, and join several into one policy."""

import os
import stat
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, TextIO

from policy.errors import AuthzError
from policy.language.source import Problem, Source, Span

STANDARD_INPUT = "-"
STANDARD_INPUT_SHOWN = "<stdin>"
# Bytes. Each small read releases the interpreter lock too briefly for another thread to take it, and restarts that
# thread's wait for it: a thread that stores what is read would starve.
_AT_ONCE = 1 << 20


class Unreadable(AuthzError):
    """The file does not exist, cannot be read, or is not text."""


class Unwritable(AuthzError):
    """The file cannot be created, or not written completely."""


class FileAlreadyExists(Unwritable):
    """A file or link of this name already exists."""


def text_of_file(name: str) -> str:
    _refuse_empty(name)
    try:
        raw = Path(name).read_bytes()
    except OSError as reason:
        raise Unreadable(f"cannot read `{shown_name(name)}`: {why(reason)}") from None
    return decoded(raw, name)


def opened(name: str) -> BinaryIO:
    """Open a file, or standard input, to read its bytes."""
    _refuse_empty(name)
    if name == STANDARD_INPUT:
        return _standard_input()
    try:
        return Path(name).open("rb", buffering=_AT_ONCE)
    except OSError as reason:
        raise Unreadable(f"cannot read `{shown_name(name)}`: {why(reason)}") from None


def _standard_input() -> BinaryIO:
    if sys.stdin is None:  # it was closed when Python started
        raise Unreadable("standard input is closed")
    return sys.stdin.buffer


def decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as reason:
        raise Unreadable(f"`{shown_name(name)}` is not UTF-8 text (byte {reason.start})") from None


def make_folder(name: str) -> None:
    """Create the folder, and those above it, unless it exists."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise Unwritable(f"cannot create folder `{shown_name(name)}`: {why(reason)}") from None


@contextmanager
def written_file(name: str, replaces: bool = True, mode: int = 0o666) -> Iterator[TextIO]:
    """Open a text file for writing; without `replaces`, fail if it exists.

    An existing one is replaced once the new one is complete, which has its mode and owner. Pipes and devices are
    written to.
    """
    _refuse_empty(name)

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    path = Path(os.path.realpath(name))
    try:
        if replaces and path.is_file():
            with _opened_beside(path) as (file, new):
                yield file
                _be_whole(file, new, path)
                new.replace(path)
        else:
            with open(name, "w" if replaces else "x", encoding="utf-8", newline="", opener=opener) as file:
                yield file
    except FileExistsError:
        raise FileAlreadyExists(f"`{shown_name(name)}` already exists; not overwritten") from None
    except OSError as reason:
        raise Unwritable(f"cannot write `{shown_name(name)}`: {why(reason)}") from None


def write_new(files: Mapping[str, Callable[[TextIO], object]]) -> None:
    """Write new files: all, or none if one exists already or cannot be written. Pipes and devices are written to."""
    made: list[Path] = []
    try:
        for name, write in files.items():
            path = Path(name)
            is_special = path.exists() and not path.is_file()
            with written_file(name, replaces=is_special) as file:
                if not is_special:
                    made.append(path)
                write(file)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def replace_text(name: str, before: str, after: str) -> None:
    """Replace the text of a file, atomically; raise `Unwritable` if its text is no longer `before`.

    The file keeps its mode and owner. If the name is a symbolic link, its target is replaced.
    """
    path = Path(os.path.realpath(name))
    try:
        if not (path.is_file() and os.access(path, os.W_OK)):
            raise Unwritable(f"cannot write `{shown_name(name)}`: not a regular file")
        with _opened_beside(path) as (file, new):
            file.write(after)
            _be_whole(file, new, path)
            if path.read_bytes() != before.encode():
                raise Unwritable(f"`{shown_name(name)}` was changed by another program; not overwritten")
            new.replace(path)
    except OSError as reason:
        raise Unwritable(f"cannot write `{shown_name(name)}`: {why(reason)}") from None


@contextmanager
def _opened_beside(path: Path) -> Iterator[tuple[TextIO, Path]]:
    """Open a new text file in the same directory, and yield it with its path; then remove it, unless it was renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".new")
    new = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file, new
    finally:
        new.unlink(missing_ok=True)


def _be_whole(file: TextIO, new: Path, before: Path) -> None:
    """Sync a new file to disk, and give it what the one has that it replaces."""
    file.flush()
    os.fsync(file.fileno())
    _be_like(new, before.stat())


def _be_like(new: Path, before: os.stat_result) -> None:
    """Give a new file the owner, the group and the mode of another, as far as the process may.

    If the owner or group cannot be kept, the set-user and set-group bits are dropped, and without the group its
    permissions too: they were not meant for another group.
    """
    try:
        os.chown(new, before.st_uid, before.st_gid)
    except PermissionError:  # the owner of a file may not be able to give it away
        with suppress(PermissionError):
            os.chown(new, -1, before.st_gid)
    mode, now = stat.S_IMODE(before.st_mode), new.stat()
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
    if now.st_gid != before.st_gid:
        mode &= ~stat.S_IRWXG
    new.chmod(mode)


def why(reason: OSError) -> str:
    said = (reason.strerror or "not a file").lower()
    return f"{said}; check the path" if isinstance(reason, FileNotFoundError) else said


def shown_name(name: str) -> str:
    """Return the name in printable form: the bytes of a file name need not be valid text."""
    return name.encode(errors="backslashreplace").decode()


def _refuse_empty(name: str) -> None:
    if not name:
        raise Unreadable("The file name is empty. Specify a file.")


# ---- several files as one policy -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """Files that make up one policy. All but the last end in a newline, so that no comment runs into the next file."""

    parts: tuple[Source, ...]

    @cached_property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @cached_property
    def _source(self) -> Source:
        return Source(self.text)

    @property
    def filename(self) -> str:
        """Return the names of the files joined by commas, without standard input."""
        return ", ".join(part.filename for part in self.parts if part.filename != STANDARD_INPUT_SHOWN)

    def describe(self, problem: Problem) -> str:
        """Format a problem, with its position in its own file."""
        part, span = self.located(problem.span)
        return replace(problem, span=span).describe(part)

    def located(self, span: Span) -> tuple[Source, Span]:
        """Return the file that contains a span of the whole text, and the span within that file."""
        part, start = self._part_at(span.start)
        return part, Span(span.start - start, span.end - start)

    def place_of_line(self, line: int) -> str:
        """Return `file:line` for a line number of the whole text."""
        file, line = self.line_of_file(line)
        return f"{file}:{line}"

    def line_of_file(self, line: int) -> tuple[str, int]:
        """Return the name of the file that contains a line of the whole text, and the line's number there."""
        part, start = self._part_at(self._source.line_start(line))
        return part.filename, line - self.text.count("\n", 0, start)

    def _part_at(self, offset: int) -> tuple[Source, int]:
        starts = [0, *accumulate(len(part.text) for part in self.parts)]
        index = min(bisect_right(starts, offset), len(self.parts)) - 1
        return self.parts[index], starts[index]


def bundle_of_files(names: Iterable[str]) -> Bundle:
    names = list(names)
    texts = [_read(name) for name in names]
    ended = [text if text.endswith("\n") else text + "\n" for text in texts[:-1]] + texts[-1:]
    shown = [STANDARD_INPUT_SHOWN if name == STANDARD_INPUT else shown_name(name) for name in names]
    return Bundle(tuple(Source(text, name) for name, text in zip(shown, ended)))


def _read(name: str) -> str:
    # No newline translation: other clients send `\r\n` unchanged, and the text must be the same.
    if name == STANDARD_INPUT:
        return decoded(_standard_input().read(), STANDARD_INPUT_SHOWN)
    return text_of_file(name)
