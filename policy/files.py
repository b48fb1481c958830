"""Files that people name: read as text and opened to write, or an error that says what is wrong with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from policy.errors import AuthzError


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
