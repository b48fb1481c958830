"""Pages that are told by their numbers, of lines that are all worked out anew for each."""

from __future__ import annotations

from typing import NamedTuple

PAGE = 100  # lines
_LAST = 10_000  # page that can be named


class NumberedPage(NamedTuple):
    number: int  # from 1

    @property
    def start(self) -> int:
        return (self.number - 1) * PAGE

    @property
    def end(self) -> int:
        return self.start + PAGE


def page_of(text: str, lines: int | None = None) -> NumberedPage:
    """Read which page is wanted: no page after the last one, where it is known how many lines there are."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1
    last = _LAST if lines is None else max(1, -(-lines // PAGE))
    return NumberedPage(min(max(number, 1), last))
