"""What may stand on one line, or on several: texts, and the places between them where lines may break.

A group breaks at all its places or at none: at none, if all up to the next break fits into the width. What is nested
stands further in. This is the method of Wadler ("A prettier printer", 2003), as most formatters have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 100
STEP = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A place where the line breaks with its group; `always` breaks the group. After `blank`, a line is left free."""

    flat: str = " "  # what stands there on one line
    always: bool = False
    blank: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment at the end of a line; it may go beyond the width, and a line break follows."""

    text: str


@dataclass(frozen=True, slots=True)
class IfBroken:
    """A text that is only there where its group is broken."""

    text: str


@dataclass(frozen=True, slots=True)
class Nest:
    parts: Sequence[Document]
    forced: bool  # a line break is in it that is always there


@dataclass(frozen=True, slots=True)
class Group:
    parts: Sequence[Document]
    forced: bool


Document = str | Line | Remark | IfBroken | Nest | Group
_Pending = tuple[int, bool, Document]  # how far in, whether broken, and what


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
    """The text, whose first line is to stand that far in, and without its indentation."""
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
    """Whether the group on one line, and what is after it up to the next line break, fit into the room."""
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
