"""Lines in which two policies differ, for pages and for terminals."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff

CONTEXT = 3  # lines around a change


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a difference: kept, added or removed, with its number in the texts that have it; or a gap."""

    kind: str  # kept, added, removed, gap
    before: int | None
    after: int | None
    text: str

    @property
    def sign(self) -> str:
        return {"kept": " ", "added": "+", "removed": "-"}[self.kind]


def difference(before: str, after: str) -> list[Row]:
    """Return the changed lines with `CONTEXT` lines around them; an empty list if the texts are the same."""
    old, new = lines_of(before), lines_of(after)
    rows: list[Row] = []
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        if rows or group[0][1]:
            rows.append(Row("gap", None, None, ""))
        for operation in group:
            rows.extend(_rows(operation, old, new))
    return [] if all(row.kind == "kept" for row in rows) else rows


def lines_of(text: str) -> list[str]:
    """Return the lines, and mark a missing line end to make it visible: `a\\nb` -> `a`, `b (no line end)`."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + " (no line end)"]


def _rows(operation: tuple, old: list[str], new: list[str]) -> Iterator[Row]:
    kind, start, end, other_start, other_end = operation
    if kind == "equal":
        for offset in range(end - start):
            yield Row("kept", start + offset + 1, other_start + offset + 1, old[start + offset])
        return
    for index in range(start, end):
        yield Row("removed", index + 1, None, old[index])
    for index in range(other_start, other_end):
        yield Row("added", None, index + 1, new[index])


def unified(before: str, after: str, name_before: str, name_after: str) -> Iterator[str]:
    """Yield the lines of the difference in the unified format, as `diff -u` prints it."""
    return unified_diff(lines_of(before), lines_of(after), name_before, name_after, n=CONTEXT, lineterm="")
