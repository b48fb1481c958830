"""Parse YAML into plain values and maps, with the line of each key.

Anchors and aliases, merge keys, tags and deep nesting are short to write and may be expensive to read: they are
rejected during parsing, before they cost anything.
"""

from collections.abc import Callable, Iterator
from typing import Any

import yaml

LARGEST = 1024 * 1024  # characters of the document
DEEPEST = 20  # levels of nested maps and lists
MOST_NODES = 50_000

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml if available: thirty times as fast
_MERGE = "<<"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{spelt: True for word in ("yes", "true", "on") for spelt in (word, word.title(), word.upper())},
    **{spelt: False for word in ("no", "false", "off") for spelt in (word, word.title(), word.upper())},
}


_HINTS = {  # by the parser's message
    "mapping values are not allowed in this context": "; put a value that contains `: ` in quotes, or check the "
    "indentation",
    "found character that cannot start any token": "; put a value that begins with a special character in quotes, and "
    "indent with spaces",
    "could not find expected ':'": "; write each entry as `key: value`",
    "did not find expected key": "; check the indentation and the quotes",
}


class YamlRejected(Exception):
    """Raised for a text that is not YAML, or that exceeds the limits; `key` is set if the error is about one key.

    `place` is a line and a column, counted from 1; the reason names it unless there is a key.
    """

    def __init__(self, problem: str, key: str = "", place: tuple[int, int] | None = None, advice: str = ""):
        self.problem, self.key, self.place = f"{problem}{advice}", key, place
        shown = f" (line {place[0]}, column {place[1]})" if place and not key else ""
        self.reason = f"{problem}{shown}{advice}"
        self.line = place[0] if place and key else None
        super().__init__(f"`{key}` {self.reason}" if key else self.reason)


class LocatedMap(dict[object, object]):
    """A map with the events of each of its keys and their values, by the key as written."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, tuple[yaml.ScalarEvent, yaml.Event]] = {}

    def line(self, name: str) -> int | None:
        """Return the line of a key; None if the map does not have it."""
        return _place(self.events[name][0])[0] if name in self.events else None


def document_from_yaml(text: str, is_typed: bool = False, on_node: Callable[[], None] = lambda: None) -> object:
    """Parse a document, with maps as `LocatedMap`; return None if the text has no document.

    Numbers and dates remain strings. With `is_typed`, they are converted as in YAML 1.1, and keys are always strings.
    `on_node` is called for each key and value, and may raise an exception to abort.
    """
    if len(text) > LARGEST:
        raise YamlRejected(f"must have at most {LARGEST:,} characters")
    return YamlReader(text, yaml.SafeLoader("") if is_typed else None, on_node).read()


class YamlReader:
    """Reads a document, whose scalars `types` resolves and constructs; without, only words are special."""

    deepest, most_nodes = DEEPEST, MOST_NODES

    def __init__(self, text: str, types: yaml.SafeLoader | None, on_node: Callable[[], None] = lambda: None):
        self.text = text
        self._types: Any = types
        self._on_node = on_node
        self._read = 0

    def read(self) -> object:
        try:
            self._events: Iterator[yaml.Event] = yaml.parse(self.text, Loader=_PARSER)
            return self.document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            problem = str(error.problem or error.context)
            place = (mark.line + 1, mark.column + 1) if mark else None
            raise YamlRejected(f"invalid YAML: {problem}", "", place, _HINTS.get(problem, "")) from None
        except yaml.YAMLError as error:
            raise YamlRejected(f"invalid YAML: {str(error).splitlines()[0]}") from None
        except ValueError:
            raise YamlRejected("invalid YAML: it has a character that YAML does not allow") from None

    def document(self) -> object:
        documents = [
            self.value(next(self._events), 1) for event in self._events if type(event) is yaml.DocumentStartEvent
        ]
        if len(documents) > 1:
            raise YamlRejected("must be one YAML document")
        return documents[0] if documents else None

    def value(self, event: yaml.Event, depth: int) -> object:
        self._check(event, depth)
        match event:
            case yaml.ScalarEvent():
                return _plain(event) if self._types is None else self._typed(event)
            case yaml.SequenceStartEvent():
                return self.read_list(event, depth)
        return self.read_map(event, depth)

    def read_list(self, start: yaml.Event, depth: int) -> list[object]:
        return [self.value(each, depth + 1) for each in self.until(yaml.SequenceEndEvent)]

    def read_map(self, start: yaml.Event, depth: int) -> LocatedMap:
        """Read a map. Duplicate keys are rejected: to keep the last one would hide a mistake."""
        found = LocatedMap()
        for event in self.until(yaml.MappingEndEvent):
            key = self._key(event, depth)
            if key.value in found.events:
                raise YamlRejected("is a duplicate", key.value, _place(event))
            value = next(self._events)
            found.events[key.value] = key, value
            found[_plain(key) if self._types is None else key.value] = self.value(value, depth + 1)
        return found

    def _key(self, event: yaml.Event, depth: int) -> yaml.ScalarEvent:
        self._check(event, depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise _refused(event, "a key must be a string")
        if event.value == _MERGE and event.implicit[0]:
            raise _refused(event, "merge keys (`<<`) are not allowed; write out the values")
        return event

    def until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        """Yield the first event of each node before the end; the caller consumes the rest of the node in between."""
        for event in self._events:
            if type(event) is end:
                return
            yield event

    def _check(self, event: yaml.Event, depth: int) -> None:
        self._on_node()
        self._read += 1
        if self._read > self.most_nodes:
            raise YamlRejected(f"must have at most {self.most_nodes:,} keys and values")
        if isinstance(event, yaml.AliasEvent) or (isinstance(event, yaml.NodeEvent) and event.anchor is not None):
            raise _refused(event, "anchors and aliases (`&`, `*`) are not allowed; write out the values")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise _refused(event, "tags (`!`) are not allowed")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent) and depth > self.deepest:
            raise _refused(event, f"must not be nested deeper than {self.deepest} levels")

    def _typed(self, event: yaml.ScalarEvent) -> object:
        tag = self._types.resolve(yaml.ScalarNode, event.value, event.implicit)
        try:
            return self._types.construct_object(yaml.ScalarNode(tag, event.value))
        except (ValueError, yaml.YAMLError) as reason:  # such as month 13
            raise _refused(event, f"invalid YAML: {reason}") from None


def _plain(event: yaml.ScalarEvent) -> object:
    """Return the scalar's value; words such as `true` and `null` are special only without quotes."""
    return _WORDS.get(event.value, event.value) if event.implicit[0] else event.value


def _refused(event: yaml.Event, reason: str) -> YamlRejected:
    return YamlRejected(reason, "", _place(event))


def _place(event: yaml.Event) -> tuple[int, int]:
    assert event.start_mark is not None, "what a parser yields has a place"
    return event.start_mark.line + 1, event.start_mark.column + 1
