"""Relationships as people write them, a line each: `document:plan#viewer@group:eng#member[at_night:{"from": 22}]`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from authz_project.importers.located_data import value_of_json
from authz_project.importers.model import Place, Thing, Tuple, Values, Who
from authz_project.importers.spicedb.source_errors import SourceError, place_in
from policy.language.source import Source

_NAME = r"(?:[a-z][a-z0-9_]*/)*[a-z][a-z0-9_]*"
_ID = r"[a-zA-Z0-9/_|\-=+]+"
_SUBJECT = rf"(?P<subject_type>{_NAME}):(?P<subject>{_ID}|\*)(?:\#(?P<subject_relation>[a-z][a-z0-9_]*|\.\.\.))?"
_RESOURCE = rf"(?P<type>{_NAME}):(?P<id>{_ID})\#(?P<relation>[a-z][a-z0-9_]*)"
_RELATIONSHIP = re.compile(
    rf"""{_RESOURCE}@{_SUBJECT}
    (?:\[(?!expiration:)(?P<caveat>{_NAME})(?::(?P<context>\{{.*\}}))?\])?
    (?:\[expiration:(?P<end>[^\]]+)\])?""",
    re.VERBOSE,
)
_SUBJECT_ALONE, _RESOURCE_ALONE = re.compile(_SUBJECT), re.compile(_RESOURCE)


def lines_of(source: Source) -> Iterator[tuple[str, Place]]:
    """Yield the lines of a text that say something, and where each stands."""
    for found in re.finditer(r"[^\n]+", source.text):
        text = found[0].strip(" \t\r\f\v\ufeff")
        if text and not text.startswith("//"):
            yield text, place_in(source, found.start() + found[0].find(text))


def relationship_of(text: str, place: Place) -> Tuple:
    found = _RELATIONSHIP.fullmatch(text)
    if found is None:
        raise SourceError(f"`{text}` is no relationship; one looks like `document:plan#viewer@user:ann`", place)
    return Tuple(
        Thing(found["type"], found["id"]),
        found["relation"],
        _who(found),
        found["caveat"],
        context_of(found["context"], place) if found["context"] else (),
        _end(found["end"], place) if found["end"] else None,
        place,
    )


def subject_of(text: str, place: Place) -> Who:
    found = _SUBJECT_ALONE.fullmatch(text)
    if found is None:
        raise SourceError(f"`{text}` is no subject; one looks like `user:ann` or `group:eng#member`", place)
    return _who(found)


def permission_of(text: str, place: Place) -> tuple[Thing, str]:
    """Return an object and the name of its relation or permission."""
    found = _RESOURCE_ALONE.fullmatch(text)
    if found is None:
        raise SourceError(f"`{text}` is no permission of a resource; one looks like `document:plan#view`", place)
    return Thing(found["type"], found["id"]), found["relation"]


def context_of(text: str, place: Place) -> Values:
    """Return names and values, written as JSON."""
    try:
        context = value_of_json(text)
    except ValueError as reason:
        raise SourceError(f"`{text}` is no JSON: {reason}", place) from None
    if not isinstance(context, dict):
        raise SourceError(f'`{text}` names no values; write an object, such as `{{"hour": 9}}`', place)
    return tuple(context.items())


def _who(found: re.Match[str]) -> Who:
    relation = found["subject_relation"]
    return Who(found["subject_type"], found["subject"], None if relation == "..." else relation)


def _end(text: str, place: Place) -> datetime:
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise SourceError(f"`{text}` is no time; one looks like `2030-01-01T00:00:00Z`", place) from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)
