"""What was carried over, and what was not, with its place: nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from authz_project.importers.model import Place


class ImportRejected(Exception):
    """The text is wrong: what, and where; all that was found."""

    def __init__(self, faults: Iterable[Fault]):
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if any(self.place) else self.message


def wrong(place: Place, message: str) -> ImportRejected:
    """Return the refusal for one thing that is wrong."""
    return ImportRejected([Fault(place, message)])


class Kind(Enum):
    NEEDED = "cannot be left out"  # more would be granted without it: the import is refused
    LOST = "not carried over"  # its answers would be missing here: the import is refused unless it is asked for
    SKIPPED = "left out"  # a tuple or test that is no good by the model itself, or asks what nobody can ask here
    CHANGED = "changed"  # says the same by another name


@dataclass(frozen=True, slots=True)
class Remark:
    kind: Kind
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if any(self.place) else self.message


@dataclass
class Report:
    """What gathers while an import goes on."""

    _remarks: dict[Remark, None] = field(default_factory=dict)

    def needed(self, place: Place, message: str) -> None:
        self._add(Remark(Kind.NEEDED, place, message))

    def lost(self, place: Place, message: str) -> None:
        self._add(Remark(Kind.LOST, place, message))

    def skipped(self, place: Place, message: str) -> None:
        self._add(Remark(Kind.SKIPPED, place, message))

    def changed(self, place: Place, message: str) -> None:
        self._add(Remark(Kind.CHANGED, place, message))

    def of(self, kind: Kind) -> list[Remark]:
        return [remark for remark in self._remarks if remark.kind is kind]

    def _add(self, remark: Remark) -> None:
        self._remarks[remark] = None
