"""Bodies and query strings of endpoints about facts: their decoding and their schemas.

Each kind of fact is decoded by a single function: nested serializers take twenty times as long.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rest_framework import serializers

from facts import wire
from facts.feed import MOST, FeedRequest, feed_position_from_text
from facts.history import FactChange, History, HistoryKey
from facts.models import MAX_ARGUMENTS
from facts.store import changes_from_json
from facts.wire import END, MAX_ID_BYTES, MAX_NAME_BYTES, Argument, batch_from_json, fact_to_json, lasting_from_json
from policy import endpoint
from policy.core.clock import short_text_of, text_of
from policy.core.pagination import Cursor, cursor_of, digest_of
from policy.endpoint import DecodedField, JsonType, QueryParameter, Schema, many, ref, taken
from policy.errors import MalformedRequest
from policy.values import canonical_id

_QUERIED = re.compile(r"args\.([0-9]{1,4})\.(type|id)", re.ASCII)
_ARITY: dict[str, Any] = {"minItems": 1, "maxItems": MAX_ARGUMENTS}

_FACT: dict[str, Schema] = {"predicate": ref("Name"), "args": many(ref("Value"), **_ARITY)}

# Targets of `ref`: the schemas that bodies of all apps are made of.
SHAPES: dict[str, Schema] = {
    "Name": {
        "type": "string",
        "description": f"The name of a predicate, type or variable: at most {MAX_NAME_BYTES} bytes of UTF-8.",
        "minLength": 1,
        "maxLength": MAX_NAME_BYTES,
        "pattern": r"^[^\u0000-\u001f\u007f]+$",
    },
    "Id": {
        "type": "string",
        "description": f"At most {MAX_ID_BYTES} bytes of UTF-8, compared byte by byte. Must not be `*` or contain NUL.",
        "minLength": 1,
        "maxLength": MAX_ID_BYTES,
        "pattern": r"^([^*\u0000]|[^\u0000]{2,})[^\u0000]*$",
    },
    "Value": taken(
        "A typed value: an entity, a `String`, an `Integer` or a `Boolean` (`true` or `false`).",
        {"type": ref("Name"), "id": ref("Id")},
    ),
    "Argument": {
        "description": "A value; if `id` is null or absent, any value of the type; if both are, any value.",
        "anyOf": [
            {"type": "null"},
            taken("", {"type": endpoint.text()}, {"id": {"type": ["string", "null"]}}),
            taken("", {}, {"type": {"type": "null"}, "id": {"type": "null"}}),
        ],
    },
    "Fact": taken('A predicate with its arguments, such as `has_role(User:ann, "admin", Repo:acme)`.', _FACT),
    "NewFact": taken(
        "A fact to store, optionally with an expiry.",
        _FACT,
        {
            END: {
                "description": "When the fact expires: an RFC 3339 time in the future. Inserting the fact again "
                "replaces its expiry.",
                "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
            }
        },
    ),
    "FactPattern": taken(
        "Matches stored facts with the same number of arguments.",
        {"predicate": ref("Name"), "args": many(ref("Argument"), **_ARITY)},
    ),
    "Changeset": {
        "description": "One step of a batch, with either `inserts` or `deletes`.",
        "oneOf": [
            taken("", {"inserts": many(ref("NewFact"))}) | {"not": {"required": ["deletes"]}},
            taken("", {"deletes": many(ref("FactPattern"))}) | {"not": {"required": ["inserts"]}},
        ],
    },
}

# ---- bodies ----------------------------------------------------------------------------------------------------


NAME = JsonType(wire.name_from_json, ref("Name"))
VALUES = JsonType(wire.values_from_json, many(ref("Value")))
FACT = JsonType(wire.fact_from_json, ref("NewFact"))
FACTS = JsonType(batch_from_json, many(ref("NewFact")))
LASTING_FACTS = JsonType(lasting_from_json, many(ref("Fact")))
PATTERN = JsonType(wire.pattern_from_json, ref("FactPattern"))
PATTERNS = JsonType(wire.patterns_from_json, many(ref("FactPattern")))
CHANGES = JsonType(changes_from_json, many(ref("Changeset")))


class Bulk(serializers.Serializer):
    """Deletes first, then inserts."""

    delete = DecodedField(PATTERNS, optional=True, absent=())
    tell = DecodedField(FACTS, optional=True, absent=())


# ---- query strings ---------------------------------------------------------------------------------------------

PATTERN_PARAMETERS = (
    QueryParameter("predicate", "The predicate of the facts to list."),
    *(
        QueryParameter(f"args.{place}.{part}", f"The {part} of argument {place}.")
        for place in range(MAX_ARGUMENTS)
        for part in ("type", "id")
    ),
)


def pattern_from_query(query: Mapping[str, str]) -> tuple[str | None, tuple[Argument, ...]]:
    """Return the predicate, None for all, and what is known of the first arguments."""
    given: dict[tuple[int, str], str] = {}
    for name, text in query.items():
        found = _QUERIED.fullmatch(name)
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


# ---- change feed -----------------------------------------------------------------------------------------------

LONGEST_WAIT = 60  # seconds
FEED_PARAMETERS = (
    QueryParameter("after", "A revision number, or the `next` of the previous response (default: 0)."),
    QueryParameter("limit", "Facts per response, from 1 to 10,000 (default: 1,000).", {"type": "integer"}),
    QueryParameter(
        "wait", "Seconds to wait if there are no changes yet, from 0 to 60 (default: 0).", {"type": "number"}
    ),
    QueryParameter(
        "predicate", "Only return facts with this predicate. Can be given several times.", many(endpoint.text())
    ),
)
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


class _Queried(Protocol):
    @property
    def query_params(self) -> Mapping[str, str]: ...
    def query_list(self, name: str) -> list[str]: ...


def feed_from_query(request: _Queried) -> tuple[FeedRequest, float]:
    """Return the request for the change feed, and for how many seconds it may wait."""
    query, predicates = request.query_params, request.query_list("predicate")
    for each in predicates:
        wire.name_from_json(each, "predicate")
    limit, wait = query.get("limit", "1000"), query.get("wait", "0")
    if not _WHOLE.fullmatch(limit) or not 1 <= int(limit) <= MOST:
        raise MalformedRequest("limit", f"must be an integer from 1 to {LARGEST:,}")
    if not _SECONDS.fullmatch(wait) or float(wait) > LONGEST_WAIT:
        raise MalformedRequest("wait", f"must be a number of seconds from 0 to {LONGEST_WAIT}")
    return FeedRequest(feed_position_from_text(query.get("after", "0")), int(limit), frozenset(predicates)), float(wait)


# ---- request and response of GET /history ----------------------------------------------------------------------
#
# A token continues the history of one pattern in one environment after the last fact that was sent, with the page size
# of the first request: later changes are newer than all following pages.

USUAL, LARGEST = 1_000, 10_000  # facts on a page
_REFUSED = "is not a valid page token for this history; start again without `page_token`"


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    environment_id: int
    predicate: str | None
    args: tuple[Argument, ...]
    size: int
    after: HistoryKey | None


def history_query(environment_id: int, query: Mapping[str, str]) -> HistoryQuery:
    predicate, args = pattern_from_query(query)
    token = query.get("page_token")
    if not token:
        return HistoryQuery(environment_id, predicate, args, _size(query.get("page_size")), None)
    cursor = cursor_of(token)
    if cursor is None or cursor.of != _of(environment_id, predicate, args):
        raise MalformedRequest("page_token", _REFUSED)
    return HistoryQuery(environment_id, predicate, args, cursor.size, HistoryKey.of(cursor.key))


def _size(text: str | None) -> int:
    if not text:
        return USUAL
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST)) and 1 <= int(text) <= LARGEST):
        raise MalformedRequest("page_size", f"must be an integer from 1 to {LARGEST:,}")
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


def _token(asked: HistoryQuery, more: HistoryKey | None) -> str | None:
    if more is None:
        return None
    return Cursor(_of(asked.environment_id, asked.predicate, asked.args), more, asked.size).token


def _of(environment_id: int, predicate: str | None, args: Sequence[Argument]) -> str:
    return digest_of("history", environment_id, predicate, [[arg.type, arg.id] for arg in args])
