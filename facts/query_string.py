"""The pattern in the query string of GET /facts: `predicate`, `args.0.type`, `args.0.id`, `args.1.type` …"""

import re
from collections.abc import Mapping

from facts.wire import Argument
from policy.errors import MalformedRequest
from policy.values import canonical_id

_ARGUMENT = re.compile(r"args\.([0-9]{1,4})\.(type|id)", re.ASCII)


def pattern_from_query(query: Mapping[str, str]) -> tuple[str | None, tuple[Argument, ...]]:
    """The predicate, None for all, and what is known of the first arguments."""
    given: dict[tuple[int, str], str] = {}
    for name, text in query.items():
        found = _ARGUMENT.fullmatch(name)
        if found:
            _check(text, name)
            given[int(found[1]), found[2]] = text
    predicate = query.get("predicate") or None
    _check(predicate or "", "predicate")
    length = 1 + max((position for position, _ in given), default=-1)
    return predicate, tuple(_argument(given, position) for position in range(length))


def _argument(given: dict[tuple[int, str], str], position: int) -> Argument:
    type_name, id_text = given.get((position, "type")), given.get((position, "id"))
    if type_name is None or id_text is None:
        return Argument(type_name, id_text)
    try:
        return Argument(type_name, canonical_id(type_name, id_text))
    except ValueError as reason:
        raise MalformedRequest(f"args.{position}.id", str(reason)) from None


def _check(text: str, name: str) -> None:
    if "\0" in text:
        raise MalformedRequest(name, "must not contain NUL characters")
