"""How many decisions there are in an answer, and how they came out: what is counted of it, whatever it is about."""

from __future__ import annotations

from typing import Any

import orjson

_KNOWN = 4 << 20  # bytes of answers from memory that are known
_OVERHEAD = 500

Tally = dict[str, int]  # `allowed` and `denied`; or `rows` of a list; or neither, of SQL

_known: dict[bytes, Tally] = {}  # of answers from memory, each of which is one and the same object every time
_known_size = 0


def tally_of(answer: object) -> Tally:
    """Return what is counted of a body, or of one that is JSON already."""
    global _known_size
    if not isinstance(answer, bytes):
        return _tally_of(answer)
    found = _known.get(answer)
    if found is None:
        found = _tally_of(orjson.loads(answer))
        if _known_size > _KNOWN:
            _known.clear()
            _known_size = 0
        _known[answer] = found
        _known_size += len(answer) + _OVERHEAD
    return found


def _tally_of(body: Any) -> Tally:
    if isinstance(body, list):  # of /bulk_actions
        return {"rows": sum(len(each["results"]) for each in body)}
    if "allowed" in body:
        return _decided([body["allowed"]])
    if "decision" in body:
        return _decided([body["decision"]])
    if "evaluations" in body:
        return _decided([each["decision"] for each in body["evaluations"]])
    if "results" not in body:
        return {}
    results = body["results"]
    return _decided(results) if results and isinstance(results[0], bool) else {"rows": len(results)}


def _decided(decisions: list[Any]) -> Tally:
    allowed = sum(1 for each in decisions if each is True)
    return {"allowed": allowed, "denied": len(decisions) - allowed}
