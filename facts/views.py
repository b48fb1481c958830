"""The endpoints about facts."""

from functools import partial
from typing import ClassVar

from django.conf import settings

from facts import feed, group_commit, history, read, store, wire
from facts.feed import as_json
from facts.history import history_query, history_to_json
from facts.serializers import CHANGES, FACT, FACTS, PATTERN, PATTERNS, Bulk, feed_from_query, pattern_from_query
from facts.store import Change, Deletes, Inserts
from policy.active import NOTHING_SEEN, Caller
from policy.errors import TooLarge
from policy.ground import spans
from policy.ground.endpoint import (
    MAY_WAIT,
    OFFSET,
    Endpoint,
    Request,
    Response,
    caller,
    changed,
    is_published_client,
    position_seen,
    unconfirmed_caller,
    writing,
)
from policy.ground.journal import By
from policy.moments import Moment, as_of_from_text, moment_of
from policy.replicas import reading
from policy.scopes import Scope
from policy.serializers import decoded


class Batch(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}

    def post(self, request: Request) -> Response:
        return _apply(request, CHANGES.decode(request.data, ""), "the batch is applied")


class Facts(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ, "POST": Scope.FACTS, "DELETE": Scope.FACTS}
    questions: ClassVar = {"GET"}

    def get(self, request: Request) -> Response:
        facts, revision = reading.read(unconfirmed_caller(request), position_seen(request), partial(_found, request))
        # Published clients do not use ends, and some of them fail on a member that they do not know.
        with_end = not is_published_client(request)
        return Response([wire.fact_to_json(fact, with_end) for fact in facts], headers={OFFSET: str(revision)})

    def post(self, request: Request) -> Response:
        fact = FACT.decode(request.data, "")
        response = _apply(request, [Inserts([fact], None)], "")
        response.data = wire.fact_to_json(fact)
        return response

    def delete(self, request: Request) -> Response:
        return _apply(request, [Deletes([PATTERN.decode(request.data, "")])], "matching facts are deleted")


def _found(request: Request) -> reading.AttemptResult[read.FactsAt]:
    predicate, args = pattern_from_query(request.query_params)
    who = caller(request)
    found = read.found(who.environment_id, predicate, args, _moment_asked(request, who))
    return reading.AttemptResult(found, who.seen or NOTHING_SEEN)


def _moment_asked(request: Request, who: Caller) -> Moment | None:
    as_of = request.query_params.get("as_of")
    return moment_of(who.environment_id, as_of_from_text(as_of, "as_of") if as_of else None, needs_policy=False)


class History(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}

    def get(self, request: Request) -> Response:
        who = caller(request)
        asked, moment = history_query(who.environment_id, request.query_params), _moment_asked(request, who)
        to = None if moment is None else moment.revision
        found = history.of_pattern(asked.environment_id, asked.predicate, asked.args, asked.size, asked.after, to)
        return Response(history_to_json(asked, found))


class BulkChange(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}

    def post(self, request: Request) -> Response:
        body = decoded(Bulk, request.data)
        changes: list[Change] = [Deletes(body["delete"]), Inserts(body["tell"], "tell")]
        return _apply(request, changes, "the changes are applied")


class BulkLoad(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}

    def post(self, request: Request) -> Response:
        with spans.lasting("load"):
            return _apply(request, [Inserts(FACTS.decode(request.data, ""))], "the facts are stored")


class BulkDelete(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}

    def post(self, request: Request) -> Response:
        return _apply(request, [Deletes(PATTERNS.decode(request.data, ""))], "matching facts are deleted")


class ClearData(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}

    def post(self, request: Request) -> Response:
        with writing(request) as who:
            applied = store.clear(who.environment_id, By(who.author, request.id))
        return changed("all facts are deleted", applied.offset)


class Stats(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}

    def get(self, request: Request) -> Response:
        counted = read.stats(caller(request).environment_id)
        return Response({"num_roles": counted.roles, "num_relations": counted.relations, "num_facts": counted.facts})


class Changes(Endpoint):
    scopes: ClassVar = {"GET": Scope.READ}

    def get(self, request: Request) -> Response:
        asked, wait = feed_from_query(request)
        patience = wait if request.headers.get(MAY_WAIT, True) else 0
        return Response(as_json(feed.found(unconfirmed_caller(request), asked, patience)))


def _apply(request: Request, changes: list[Change], message: str) -> Response:
    _check_entries(changes)
    return changed(message, group_commit.apply(unconfirmed_caller(request), changes, request.id))


def _check_entries(changes: list[Change]) -> None:
    entries = sum(len(change.facts) if isinstance(change, Inserts) else len(change.patterns) for change in changes)
    if spans.is_on:
        spans.note("change", entries=entries)
    if settings.MAX_BATCH_ENTRIES and entries > settings.MAX_BATCH_ENTRIES:
        raise TooLarge(f"{entries} entries are more than {settings.MAX_BATCH_ENTRIES}, the limit of MAX_BATCH_ENTRIES")
