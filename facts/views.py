"""The endpoints about facts."""

from functools import partial
from typing import ClassVar

from facts import feed, history, read, store, wire
from facts.accept import WARNING, printable, sentences, unknown_names
from facts.feed import as_json
from facts.serializers import (
    CHANGES,
    FACT,
    FACTS,
    FEED_PARAMETERS,
    LARGEST,
    PATTERN,
    PATTERN_PARAMETERS,
    PATTERNS,
    USUAL,
    Bulk,
    feed_from_query,
    history_query,
    history_to_json,
    pattern_from_query,
)
from facts.store import Change, Deletes, Inserts
from policy.active import NOTHING_SEEN, Caller, program_of_version
from policy.core import spans
from policy.core.journal import By
from policy.endpoint import (
    MAY_WAIT,
    OFFSET,
    Doc,
    Endpoint,
    QueryParameter,
    Request,
    Response,
    caller,
    changed,
    decoded,
    is_published_client,
    many,
    position_seen,
    ref,
    unconfirmed_caller,
    writing,
)
from policy.moments import Moment, as_of_from_text, moment_of
from policy.replicas import reading
from policy.scopes import Scope


class Batch(Endpoint):
    scopes: ClassVar = {"POST": Scope.FACTS}
    body = CHANGES
    docs: ClassVar = {
        "POST": Doc(
            "Insert and delete facts",
            ref("ChangeMade"),
            "Steps are applied in order, in one transaction. Inserting a stored fact or deleting a missing one is "
            "not an error. `expires_at` sets when an inserted fact expires; inserting a stored fact again "
            "replaces its expiry.",
        )
    }

    def post(self, request: Request) -> Response:
        return _apply(request, self.body.decode(request.data, ""), "Batch applied")


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
        with_end = not is_published_client(request)
        return Response([wire.fact_to_json(fact, with_end) for fact in facts], headers={OFFSET: str(revision)})

    def post(self, request: Request) -> Response:
        fact = FACT.decode(request.data, "")
        response = _apply(request, [Inserts([fact], None)], "")
        response.data = wire.fact_to_json(fact)  # warnings are only in the header: the response is the fact
        return response

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
                    f"Facts per page, from 1 to {LARGEST:,} (default: {USUAL:,}).",
                    {"type": "integer", "minimum": 1, "maximum": LARGEST, "default": USUAL},
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
        asked, moment = history_query(who.environment_id, request.query_params), _moment_asked(request, who)
        to = None if moment is None else moment.revision
        found = history.of_pattern(asked.environment_id, asked.predicate, asked.args, asked.size, asked.after, to)
        return Response(history_to_json(asked, found))


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
            return _apply(request, [Inserts(self.body.decode(request.data, ""))], "Facts stored")


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
        counted = read.stats(caller(request).environment_id)
        return Response({"num_roles": counted.roles, "num_relations": counted.relations, "num_facts": counted.facts})


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
        asked, wait = feed_from_query(request)
        patience = wait if request.headers.get(MAY_WAIT, True) else 0
        return Response(as_json(feed.found(unconfirmed_caller(request), asked, patience)))


def _apply(request: Request, changes: list[Change], message: str) -> Response:
    if spans.is_on:
        entries = (len(change.facts) if isinstance(change, Inserts) else len(change.patterns) for change in changes)
        spans.note("change", entries=sum(entries))
    applied = store.apply_as(unconfirmed_caller(request), changes, request.id)
    response = changed(message, applied.offset)
    if warnings := _warnings(applied.version_id, changes):
        response.headers[WARNING] = printable("; ".join(warnings))
        # Some published clients fail on a member that they do not know.
        if not is_published_client(request):
            response.data = {"message": message, "warnings": warnings}
    return response


def _warnings(version_id: int | None, changes: list[Change]) -> list[str]:
    """Return sentences about roles and relations in stored facts that the policy does not know."""
    program = program_of_version(version_id)
    facts = (change.facts for change in changes if isinstance(change, Inserts))
    return sentences([name for each in facts for name in unknown_names(program, each)])
