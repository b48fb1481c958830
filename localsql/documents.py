"""YAML text -> plain maps, lists, texts, truth values and None: what data bindings are made of, and nothing more.

Anchors and aliases, merge keys, tags and deep nesting are short to write and may take long to read: they are refused
while the text is parsed, before they cost anything. Numbers and dates stay the texts that they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from checks.asking import deadline
from localsql.errors import BindingRejected

LARGEST = 1024 * 1024  # characters of the document
DEEPEST = 20  # maps and lists in one another
MOST_NODES = 50_000

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml if it is installed: thirty times as fast
_MERGE = "<<"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{spelt: True for word in ("yes", "true", "on") for spelt in (word, word.title(), word.upper())},
    **{spelt: False for word in ("no", "false", "off") for spelt in (word, word.title(), word.upper())},
}


def document_from_text(text: str) -> object:
    """Return what the document says; None if the text has no document."""
    if len(text) > LARGEST:
        raise BindingRejected("", f"must have at most {LARGEST} characters")
    try:
        return _Reader(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = _place(mark.line, mark.column) if mark else ""
        raise BindingRejected("", f"is not YAML: {error.problem or error.context}{place}") from None
    except yaml.YAMLError as error:
        raise BindingRejected("", f"is not YAML: {str(error).splitlines()[0]}") from None
    except ValueError:
        raise BindingRejected("", "is not YAML: it has a character that no YAML has") from None


class _Reader:
    def __init__(self, text: str):
        self._events: Iterator[Event] = yaml.parse(text, Loader=_PARSER)
        self._left = MOST_NODES

    def document(self) -> object:
        documents = [self._value(next(self._events), 1) for event in self._events if type(event) is DocumentStartEvent]
        if len(documents) > 1:
            raise BindingRejected("", "must be one YAML document")
        return documents[0] if documents else None

    def _value(self, event: Event, depth: int) -> object:
        self._check(event, depth)
        match event:
            case ScalarEvent():
                return _scalar(event)
            case SequenceStartEvent():
                return [self._value(each, depth + 1) for each in self._until(SequenceEndEvent)]
        return self._map(depth)

    def _map(self, depth: int) -> dict[object, object]:
        """Read a map. A key that stands twice is refused: to keep the last one would hide a mistake."""
        found: dict[object, object] = {}
        seen: set[str] = set()
        for event in self._until(MappingEndEvent):
            key = self._key(event, depth)
            if key.value in seen:
                raise BindingRejected(key.value, "stands twice")
            seen.add(key.value)
            found[_scalar(key)] = self._value(next(self._events), depth + 1)
        return found

    def _key(self, event: Event, depth: int) -> ScalarEvent:
        self._check(event, depth)
        if not isinstance(event, ScalarEvent):
            raise _refused(event, "a key must be text")
        if event.value == _MERGE and event.implicit[0]:
            raise _refused(event, "merge keys (`<<`) are not accepted; write out what they stand for")
        return event

    def _until(self, end: type[Event]) -> Iterator[Event]:
        """Yield the first event of each node before the end; the caller takes the rest of the node before going on."""
        for event in self._events:
            if type(event) is end:
                return
            yield event

    def _check(self, event: Event, depth: int) -> None:
        deadline.check()
        self._left -= 1
        if self._left < 0:
            raise BindingRejected("", f"must have at most {MOST_NODES} keys and values")
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
            raise _refused(event, "anchors and aliases (`&`, `*`) are not accepted; write out what they stand for")
        if isinstance(event, ScalarEvent | CollectionStartEvent) and event.tag is not None:
            raise _refused(event, "tags (`!`) are not accepted")
        if isinstance(event, MappingStartEvent | SequenceStartEvent) and depth > DEEPEST:
            raise _refused(event, f"must be nested at most {DEEPEST} levels deep")


def _scalar(event: ScalarEvent) -> object:
    """Return the scalar's value; words such as `true` and `null` have a meaning only without quotes."""
    return _WORDS.get(event.value, event.value) if event.implicit[0] else event.value


def _refused(event: Event, reason: str) -> BindingRejected:
    mark = event.start_mark
    return BindingRejected("", f"{reason}{_place(mark.line, mark.column) if mark else ''}")


def _place(line: int, column: int) -> str:
    return f" (line {line + 1}, column {column + 1})"
