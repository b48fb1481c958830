"""What GET /history is asked: a pattern as GET /facts takes it, and which page. And its answer.

A token that continues a history can be written by this service only. It continues one pattern of one environment after
the last fact that was sent, with the size that the first request asked for: what changes meanwhile is newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import orjson
from django.core import signing

from facts.history import FactChange, History, HistoryCursor
from facts.serializers import pattern_from_query
from facts.wire import Argument, fact_to_json
from policy.clock import short_text_of, text_of
from policy.errors import MalformedRequest

USUAL, LARGEST = 1_000, 10_000  # facts on a page
_SALT = "facts.history"
_REFUSED = "is not a token that this history was continued with"


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    environment_id: int
    predicate: str | None
    args: tuple[Argument, ...]
    size: int
    after: HistoryCursor | None


def history_query(environment_id: int, query: Mapping[str, str]) -> HistoryQuery:
    predicate, args = pattern_from_query(query)
    token = query.get("page_token")
    if not token:
        return HistoryQuery(environment_id, predicate, args, _size(query.get("page_size")), None)
    try:
        environment, digest, size, revision, row = _signer().unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise MalformedRequest("page_token", _REFUSED) from None
    if environment != environment_id or digest != _digest(predicate, args):
        raise MalformedRequest("page_token", _REFUSED)
    return HistoryQuery(environment_id, predicate, args, size, HistoryCursor(revision, tuple(row)))


def _size(text: str | None) -> int:
    if not text:
        return USUAL
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST):
        raise MalformedRequest("page_size", f"must be an integer from 1 to {LARGEST}")
    return int(text)


def history_to_json(asked: HistoryQuery, found: History) -> dict[str, object]:
    results = [
        {
            "revision": entry.revision.number,
            "at": text_of(entry.revision.at),
            "author": entry.revision.author,
            "kind": entry.revision.kind,
            "inserted": [_changed_to_json(each) for each in entry.inserted],
            "deleted": [_changed_to_json(each) for each in entry.deleted],
            "policy_version": entry.revision.policy_version.number if entry.revision.policy_version else None,
        }
        for entry in found.entries
    ]
    return {"results": results, "next_page_token": _token(asked, found.more), "horizon": found.horizon}


def _changed_to_json(changed: FactChange) -> dict[str, object]:
    end = {} if changed.expires_at is None else {"expires_at": short_text_of(changed.expires_at)}
    return fact_to_json(changed.fact) | end


def _token(asked: HistoryQuery, more: HistoryCursor | None) -> str | None:
    if more is None:
        return None
    digest = _digest(asked.predicate, asked.args)
    return _signer().sign_object([asked.environment_id, digest, asked.size, more.revision, list(more.row)])


def _signer() -> signing.Signer:
    return signing.Signer(salt=_SALT)


def _digest(predicate: str | None, args: Sequence[Argument]) -> str:
    return sha256(orjson.dumps([predicate, [[arg.type, arg.id] for arg in args]])).hexdigest()
