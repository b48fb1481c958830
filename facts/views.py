"""The endpoints about facts, and the decoding and the schemas of their bodies and query strings.

Each kind of fact is decoded by a single function: nested serializers take twenty times as long.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from django.utils.module_loading import import_string
from rest_framework import serializers

from facts import feed, history, read, store, together, wire
from facts.accept import WARNING, printable, sentences, unknown_names
from facts.feed import MOST, FeedRequest, as_json, change_to_json, feed_position_from_text
from facts.history import Entry, HistoryKey
from facts.models import MAX_ARGUMENTS
from facts.store import Applied, Change, Deletes, Inserts, changes_from_json
from facts.wire import END, MAX_ID_BYTES, MAX_NAME_BYTES, Argument, batch_from_json, fact_to_json, lasting_from_json
from policy import endpoint
from policy.active import NOTHING_SEEN, Caller, Scope, program_of_version
from policy.core import spans
from policy.core.journal import By, current_offset
from policy.core.pagination import Cursor, cursor_of, digest_of
from policy.endpoint import (
    LONG_POLL,
    OFFSET,
    RESPONDS_LATER,
    DecodedField,
    Doc,
    Endpoint,
    JsonType,
    QueryParameter,
    Request,
    Response,
    Schema,
    caller,
    changed,
    decoded,
    many,
    position_seen,
    ref,
    taken,
    unconfirmed_caller,
    writing,
)
from policy.errors import MalformedRequest
from policy.moments import Moment, as_of_from_text, moment_of
from policy.replicas import reading
from policy.values import canonical_id, whole_number

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
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def feed_from_query(request: Request) -> tuple[FeedRequest, float]:
    """Return the request for the change feed, and for how many seconds it may wait."""
    query, predicates = request.query_params, request.query_list("predicate")
    for each in predicates:
        wire.name_from_json(each, "predicate")
    limit, wait = _size(query.get("limit", "1000"), "limit"), query.get("wait", "0")
    if not _SECONDS.fullmatch(wait) or float(wait) > LONGEST_WAIT:
        raise MalformedRequest("wait", f"must be a number of seconds from 0 to {LONGEST_WAIT}")
    return FeedRequest(feed_position_from_text(query.get("after", "0")), limit, frozenset(predicates)), float(wait)


def _size(text: str, name: str) -> int:
    """Parse how many facts a response may have at most."""
    number = whole_number(text, MOST)
    if not number:
        raise MalformedRequest(name, f"must be an integer from 1 to {MOST:,}")
    return number


# ---- request and response of GET /history ----------------------------------------------------------------------
#
# A token continues the history of one pattern in one environment after the last fact that was sent, with the page size
# of the first request: later changes are newer than all following pages.

USUAL = 1_000  # facts on a page
_REFUSED = "is not a valid page token for this history; start again without `page_token`"


def _page_asked(query: Mapping[str, str], of: str) -> tuple[int, HistoryKey | None]:
    """Return how many facts the page may have, and where it begins; `of` identifies the history."""
    if not (token := query.get("page_token")):
        return _size(query.get("page_size") or str(USUAL), "page_size"), None
    cursor = cursor_of(token)
    if cursor is None or cursor.of != of:
        raise MalformedRequest("page_token", _REFUSED)
    return cursor.size, HistoryKey.of(cursor.key)


def _entry_to_json(entry: Entry) -> dict[str, object]:
    inserted, deleted = ([fact_to_json(each.fact) for each in some] for some in (entry.inserted, entry.deleted))
    version = entry.revision.policy_version
    return change_to_json(entry.revision, inserted, deleted, version.number if version else None)


# ---- endpoints -----------------------------------------------------------------------------------------------------


class Batch(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    body = CHANGES
    docs: ClassVar = {
        "POST": Doc(
            "Insert and delete facts",
            ref("ChangeMade"),
            "Steps are applied in order, in one transaction. Inserting a stored fact or deleting a missing one is "
            "not an error. `expires_at` sets when an inserted fact expires; inserting a stored fact again "
            "replaces its expiry. With a header `Idempotency-Key` (any text of your own), a batch that was applied is "
            f"not applied again, so it can be retried; the latest {store.KEYS_KEPT:,} keys are remembered, and another "
            "batch with one of them is refused.",
            parameters=(
                QueryParameter("dry_run", "With `true`, validate the batch, and do not apply it.", {"type": "boolean"}),
            ),
        )
    }

    def post(self, request: Request) -> Response:
        changes = self.body.decode(request.data, "")
        if request.headers.get("QUERY_STRING") and _is_dry_run(request.query_params):
            environment_id = caller(request).environment_id
            store.check(environment_id, changes)
            return changed("Batch is valid", current_offset(environment_id))
        if key := request.headers.get("HTTP_IDEMPOTENCY_KEY"):
            with writing(request) as who:
                apply_once = import_string("localsql.sync.outbox.apply_once")  # of an app above
                applied = apply_once(who.environment_id, key, request.body, changes, By(who.author, request.id))
            return changed("Batch applied", applied.offset)
        return _apply(request, changes, "Batch applied")


def _is_dry_run(query: Mapping[str, str]) -> bool:
    text = query.get("dry_run", "false")
    if text not in ("true", "false"):  # such as `True`: a batch that was to be validated must not be applied
        raise MalformedRequest("dry_run", "must be `true` or `false`")
    return text == "true"


class FactsEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.FACTS, "DELETE": Scope.FACTS}
    questions: ClassVar = {"GET"}
    docs: ClassVar = {
        "GET": Doc(
            "List stored facts",
            many(ref("StoredFact")),
            "Returns stored facts only, without derived and expired ones. Without parameters, returns all. "
            "Arguments are numbered from 0 to 4; those that are not given match any value.",
            parameters=(
                *PATTERN_PARAMETERS,
                QueryParameter(
                    "as_of", "A revision number or an RFC 3339 time. Returns the facts stored at that revision."
                ),
            ),
            statuses={400: "A query parameter is invalid."},
        ),
        "POST": Doc("Insert a fact", ref("StoredFact"), body=FACT, deprecated_for="POST /api/batch"),
        "DELETE": Doc("Delete matching facts", ref("Message"), body=PATTERN, deprecated_for="POST /api/batch"),
    }

    def get(self, request: Request) -> Response:
        facts, revision = reading.read(unconfirmed_caller(request), position_seen(request), partial(_found, request))
        # Published clients do not use expiries, and some of them fail on a member that they do not know.
        with_end = not request.is_of_published_client
        return Response([wire.fact_to_json(fact, with_end) for fact in facts], headers={OFFSET: str(revision)})

    def post(self, request: Request) -> Response:
        fact = FACT.decode(request.data, "")
        return _apply(request, [Inserts([fact], None)], fact=wire.fact_to_json(fact))

    def delete(self, request: Request) -> Response:
        return _apply(request, [Deletes([PATTERN.decode(request.data, "")])], "Matching facts deleted")


def _found(request: Request) -> reading.AttemptResult[read.FactsAt]:
    predicate, args = pattern_from_query(request.query_params)
    who = caller(request)
    found = read.found(who.environment_id, predicate, args, _moment_asked(request, who))
    return reading.AttemptResult(found, who.seen or NOTHING_SEEN)


def _moment_asked(request: Request, who: Caller) -> Moment | None:
    as_of = request.query_params.get("as_of")
    return moment_of(who.environment_id, as_of_from_text(as_of, "as_of") if as_of else None, needs_policy=False)


class HistoryEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {
        "GET": Doc(
            "List the history of facts",
            ref("History"),
            "Returns the revisions that inserted or deleted the facts that `GET /api/facts` selects with the same "
            "parameters, with their authors. `page_size` counts facts, so a large revision can continue on the "
            "next page.",
            parameters=(
                *PATTERN_PARAMETERS,
                QueryParameter(
                    "as_of", "A revision number or an RFC 3339 time. Returns the history up to that revision."
                ),
                QueryParameter(
                    "page_size",
                    f"Facts per page, from 1 to {MOST:,} (default: {USUAL:,}).",
                    {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
                ),
                QueryParameter(
                    "page_token", "The `next_page_token` of the previous page. All other parameters must be the same."
                ),
            ),
            statuses={400: "A query parameter is invalid."},
        )
    }

    def get(self, request: Request) -> Response:
        who = caller(request)
        predicate, args = pattern_from_query(request.query_params)
        of = digest_of("history", who.environment_id, predicate, [[arg.type, arg.id] for arg in args])
        size, after = _page_asked(request.query_params, of)
        moment = _moment_asked(request, who)
        to = None if moment is None else moment.revision
        found = history.of_pattern(who.environment_id, predicate, args, size, after, to)
        token = Cursor(of, found.more, size).token if found.more else None
        results = [_entry_to_json(entry) for entry in found.entries]
        return Response({"results": results, "next_page_token": token, "horizon": found.horizon})


class BulkChange(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    body = Bulk
    docs: ClassVar = {
        "POST": Doc(
            "Delete facts, then insert facts",
            ref("ChangeMade"),
            is_body_optional=True,
            deprecated_for="POST /api/batch",
        )
    }

    def post(self, request: Request) -> Response:
        body = decoded(self.body, request.data)
        changes: list[Change] = [Deletes(body["delete"]), Inserts(body["tell"], "tell")]
        return _apply(request, changes, "Changes applied")


class BulkLoad(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    body = FACTS
    docs: ClassVar = {"POST": Doc("Insert facts", ref("ChangeMade"), deprecated_for="POST /api/batch")}

    def post(self, request: Request) -> Response:
        with spans.lasting("load"):
            return _apply(request, [Inserts(self.body.decode(request.data, ""))], "Facts stored", is_load=True)


class BulkDelete(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    body = PATTERNS
    docs: ClassVar = {"POST": Doc("Delete matching facts", ref("Message"), deprecated_for="POST /api/batch")}

    def post(self, request: Request) -> Response:
        return _apply(request, [Deletes(self.body.decode(request.data, ""))], "Matching facts deleted")


class ClearData(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    docs: ClassVar = {
        "POST": Doc(
            "Delete all facts",
            ref("Message"),
            "Deletes all facts of the API key's environment. The policy is not changed.",
        )
    }

    def post(self, request: Request) -> Response:
        with writing(request) as who:
            applied = store.clear(who.environment_id, By(who.author, request.id))
        return changed("All facts deleted", applied.offset)


class StatsEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {"GET": Doc("Count stored facts", ref("Counts"), deprecated_for="GET /api/facts")}

    def get(self, request: Request) -> Response:
        return Response(read.stats(caller(request).environment_id))


class ChangesEndpoint(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {
        "GET": Doc(
            "Read the change feed",
            ref("Changes"),
            "Returns each committed change exactly once, complete and in order. Pass `next` as `after` to "
            "continue. `after=0` starts with all facts of the oldest available revision.",
            parameters=FEED_PARAMETERS,
            statuses={
                400: "A query parameter is invalid, or the revision does not exist yet.",
                410: "Changes after this revision are no longer available; `horizon` is the oldest available revision.",
            },
            refused_bodies={410: "BeforeHorizon"},
        )
    }

    def get(self, request: Request) -> Response:
        asked, seconds = feed_from_query(request)
        who, poll = unconfirmed_caller(request), request.headers.get(LONG_POLL)
        if poll is not None and poll.after is not None:
            asked = replace(asked, after=poll.after)
        thread_waits = 0.0 if LONG_POLL in request.headers else seconds  # it does under plain Django
        page = feed.found(who.environment_id, asked, thread_waits, who)
        is_empty = not (page.changes or page.more)
        if is_empty and poll is not None and poll.wait(request, who.environment_id, page.newest, seconds, page.after):
            return RESPONDS_LATER
        return Response(as_json(page))


def _apply(
    request: Request, changes: list[Change], message: str = "", fact: object = None, is_load: bool = False
) -> Response:
    """Make the changes, and respond with the message, or with the fact. Loads are timed, and do not wait for others."""
    if spans.is_on:
        entries = (len(change.facts) if isinstance(change, Inserts) else len(change.patterns) for change in changes)
        spans.note("change", entries=sum(entries))

    def responded(applied: Callable[[], Applied]) -> Response:
        made = applied()
        response = changed(message, made.offset)
        if warnings := _warnings(made.version_id, changes):
            response.headers[WARNING] = printable("; ".join(warnings))
            # Some published clients fail on a member that they do not know.
            if not request.is_of_published_client:
                response.data = {"message": message, "warnings": warnings}
        if fact is not None:  # as published clients expect: warnings are only in the header
            response.data = fact
        return response

    caller, later = unconfirmed_caller(request), request.respond_later
    if (
        later is not None
        and not is_load
        and together.apply_later(
            caller, changes, request.id, lambda applied: later(request, partial(responded, applied))
        )
    ):
        return RESPONDS_LATER
    return responded(partial(together.apply_alone, caller, changes, request.id))


def _warnings(version_id: int | None, changes: list[Change]) -> list[str]:
    """Return sentences about roles and relations in stored facts that the policy does not know."""
    program = program_of_version(version_id)
    facts = (change.facts for change in changes if isinstance(change, Inserts))
    return sentences([name for each in facts for name in unknown_names(program, each)])


endpoints = {
    "batch": Batch(),
    "facts": FactsEndpoint(),
    "history": HistoryEndpoint(),
    "bulk": BulkChange(),
    "bulk_load": BulkLoad(),
    "bulk_delete": BulkDelete(),
    "clear_data": ClearData(),
    "stats": StatsEndpoint(),
    "changes": ChangesEndpoint(),
}
