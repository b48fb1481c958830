"""What the decision log keeps of an answer: enough to tell whether another one is the same.

{"allowed": true}                                       of a decision
{"count": 2, "results": ["a", "b"]}                     of a list; of a long one the first, and a digest of all
{"count": 3, "allowed": 1, "results": [true, false, …]} of many decisions, also AuthZEN's
{"characters": 120, "digest": "5f1c…"}                  of SQL
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

SHOWN = 20  # results of a list that are kept

Summary = dict[str, Any]


def summary_of(body: Any) -> Summary:
    """Return what is kept of the body of an answer."""
    if isinstance(body, list):  # of /bulk_actions
        return _listed([each["results"] for each in body])
    if "allowed" in body:
        return {"allowed": body["allowed"]}
    if "decision" in body:
        return {"allowed": body["decision"]}
    if "evaluations" in body:
        return _listed([each["decision"] for each in body["evaluations"]])
    if "sql" in body:
        return {"characters": len(body["sql"]), "digest": _digest(body["sql"].encode())}
    goes_on = body.get("next_page_token") or body.get("page", {}).get("next_token")
    more = {"has_next_page": True} if goes_on else {}
    return _listed(body["results"]) | more


def _listed(results: list[Any]) -> Summary:
    found: Summary = {"count": len(results)}
    if results and isinstance(results[0], bool):
        found["allowed"] = results.count(True)
    found["results"] = results[:SHOWN]
    if len(results) > SHOWN:
        found["digest"] = _digest(orjson.dumps(results))
    return found


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()[:32]


def is_denial(summary: Summary) -> bool:
    """Say whether something that was asked for is not allowed, or nothing was found."""
    allowed, count = summary.get("allowed"), summary.get("count")
    if count is None:
        return allowed is False
    return count == 0 or (allowed is not None and allowed < count) or [] in summary["results"]


def shown(summary: Summary) -> str:
    """Return the summary in a few words: `allowed`, `2 found`, `1 of 3 allowed`."""
    allowed, count = summary.get("allowed"), summary.get("count")
    if count is None:
        return f"SQL of {summary['characters']:,} characters" if allowed is None else "allowed" if allowed else "denied"
    return f"{count:,} found" if allowed is None else f"{allowed:,} of {count:,} allowed"


def is_summary(found: dict[str, Any]) -> bool:
    """Say whether an object has the form of a summary."""
    if "count" in found:
        return isinstance(found["count"], int) and isinstance(found.get("results"), list)
    return isinstance(found.get("allowed"), bool) or isinstance(found.get("characters"), int)


# ---- how the decisions came out --------------------------------------------------------------------------------------

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
