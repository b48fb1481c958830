"""The error of a text that cannot be imported, with the place where it is wrong."""

from authz_project.importers.model import NOWHERE, Place
from authz_project.importers.report import Fault
from policy.language.source import Source


class SourceError(Exception):
    """Says what is wrong, and where."""

    def __init__(self, message: str, place: Place = NOWHERE):
        super().__init__(message)
        self.message, self.place = message, place

    @property
    def fault(self) -> Fault:
        return Fault(self.place, self.message)


def place_in(source: Source, offset: int) -> Place:
    return Place(source.filename, *source.position(offset))
