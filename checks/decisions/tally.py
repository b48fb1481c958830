"""Counts the decisions in an answer by how they came out, whatever they are about."""

from __future__ import annotations

from typing import Any

Tally = dict[str, int]  # `allowed` and `denied`; or `rows` of a list; or, of SQL, nothing

_ALLOWED, _DENIED = {"allowed": 1, "denied": 0}, {"allowed": 0, "denied": 1}  # shared, so never changed


def tally_of(body: Any) -> Tally:
    """Return the counts of the body of an answer."""
    if isinstance(body, list):  # of /bulk_actions
        return {"rows": sum(len(each["results"]) for each in body)}
    if "allowed" in body:
        return _ALLOWED if body["allowed"] is True else _DENIED
    if "decision" in body:
        return _ALLOWED if body["decision"] is True else _DENIED
    if "evaluations" in body:
        return _decided([each["decision"] for each in body["evaluations"]])
    if "results" not in body:
        return {}
    results = body["results"]
    return _decided(results) if results and isinstance(results[0], bool) else {"rows": len(results)}


def _decided(decisions: list[Any]) -> Tally:
    allowed = sum(1 for each in decisions if each is True)
    return {"allowed": allowed, "denied": len(decisions) - allowed}


