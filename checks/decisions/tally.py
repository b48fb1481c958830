"""How many decisions there are in an answer, and how they came out: what is counted of it, whatever it is about."""

from __future__ import annotations

from typing import Any

Tally = dict[str, int]  # `allowed` and `denied`; or `rows` of a list; or neither, of SQL

_ALLOWED, _DENIED = {"allowed": 1, "denied": 0}, {"allowed": 0, "denied": 1}  # which nobody changes


def tally_of(body: Any) -> Tally:
    """Return what is counted of a body."""
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


