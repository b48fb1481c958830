"""Documents: texts with possible line breaks between them, to be written on one line or on several.

A group breaks at all of its possible line breaks or at none. It breaks at none if nothing forces a break and it fits
into the width, together with the text after it up to the next line break. Nested parts are indented further. This is
Wadler's method ("A prettier printer", 2003), which most formatters use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 100
STEP = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A possible line break: the line breaks here if its group breaks.

    `always` forces the group to break. With `blank`, the break leaves a blank line.
    """

    flat: str = " "  # what stands there on one line
    always: bool = False
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment at the end of a line. It forces its group to break, and it may go beyond the width."""

    text: str


@dataclass(frozen=True, slots=True)
class IfBroken:
    """A text that is written only if its group is broken."""

    text: str


@dataclass(frozen=True, slots=True)
class Nest:
    parts: Sequence[Document]
    forced: bool  # whether it contains a line break that is always there


@dataclass(frozen=True, slots=True)
class Group:
    parts: Sequence[Document]
    forced: bool


Document = str | Line | Remark | IfBroken | Nest | Group
_Pending = tuple[int, bool, Document]  # the indentation, whether the group around is broken, and the document


def nest(parts: Sequence[Document]) -> Nest:
    return Nest(parts, _breaks(parts))


def group(parts: Sequence[Document], forced: bool = False) -> Group:
    return Group(parts, forced or _breaks(parts))


def _breaks(parts: Iterable[Document]) -> bool:
    for part in parts:
        match part:
            case Line(always=True) | Remark() | Nest(forced=True) | Group(forced=True):
                return True
    return False


def written(document: Document, indent: int) -> str:
    """Return the document as text. Its first line begins at column `indent`, but is returned without indentation."""
    out: list[str] = []
    column = indent
    pending: list[_Pending] = [(indent, True, document)]
    while pending:
        level, broken, part = pending.pop()
        match part:
            case str():
                out.append(part)
                column += len(part)
            case Line(flat, always, blank):
                if broken or always:
                    out.append(("\n\n" if blank else "\n") + " " * level)
                    column = level
                else:
                    out.append(flat)
                    column += len(flat)
            case Remark(text):
                out.append(f"  {text}")
            case IfBroken(text):
                if broken:
                    out.append(text)
            case Nest(parts):
                pending.extend((level + STEP, broken, inner) for inner in reversed(parts))
            case Group(parts, forced):
                breaks = forced or not _fits(WIDTH - column, part, pending)
                pending.extend((level, breaks, inner) for inner in reversed(parts))
    return "".join(out)


def _fits(room: int, tried: Group, after: list[_Pending]) -> bool:
    """Say whether the group on one line, with the text after it up to the next line break, fits into `room` columns."""
    pending: list[tuple[bool, Document]] = [(False, tried)]
    left = len(after)
    while room >= 0:
        if not pending:
            if not left:
                return True
            left -= 1
            _, broken, part = after[left]
        else:
            broken, part = pending.pop()
        match part:
            case str():
                room -= len(part)
            case Line(flat, always):
                if broken or always:
                    return True
                room -= len(flat)
            case IfBroken(text):
                room -= len(text) if broken else 0
            case Nest(parts):
                pending.extend((broken, inner) for inner in reversed(parts))
            case Group(parts, forced):
                pending.extend((forced or broken, inner) for inner in reversed(parts))
    return False
