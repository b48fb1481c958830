"""The elements of a batch: what is to be stored and what is to go, in order."""

from __future__ import annotations

from facts.batches import batch_from_json
from facts.store import Change, Deletes, Inserts
from facts.wire import patterns_from_json
from policy.errors import MalformedRequest


def changes_from_json(raw: object, path: str) -> list[Change]:
    """Return the elements of a batch, in order."""
    if not isinstance(raw, list):
        raise MalformedRequest(path, "the body must be an array of changesets")
    return [_change_from_json(item, f"{path}[{index}]") for index, item in enumerate(raw)]


def _change_from_json(raw: object, path: str) -> Change:
    match raw:
        case {"inserts": _, "deletes": _}:
            raise MalformedRequest(path, 'must have "inserts" or "deletes", not both')
        case {"inserts": facts}:
            return Inserts(batch_from_json(facts, f"{path}.inserts"), f"{path}.inserts")
        case {"deletes": patterns}:
            return Deletes(patterns_from_json(patterns, f"{path}.deletes"))
    raise MalformedRequest(path, 'must be an object with "inserts" or "deletes"')
