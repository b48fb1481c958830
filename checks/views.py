"""Endpoints that answer questions, explain answers, or accept expected ones; and the cache of answers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from functools import cached_property, partial
from itertools import count
from threading import Lock
from time import monotonic
from typing import ClassVar, NamedTuple, Protocol

import orjson

from checks import serializers
from checks.asking import ask, by_rows, paging, run
from checks.asking.ask import confirmed
from checks.asking.question import Asked, Cache, Query, Question, SnapshotState, allow, by_ids
from checks.compare.preview import preview, preview_to_json
from checks.compare.review_page import review_to_json
from checks.decisions.log import note, record
from checks.engine.compile import AnswerRow
from checks.explain import explain
from checks.explain.explain import explanation_to_json
from facts.accept import HEADER, WARNING, Unused, line_of
from policy.active import Caller, Scope, Seen
from policy.core import spans
from policy.core.config import settings
from policy.core.journal import current_offset
from policy.core.memory import compact
from policy.core.spaces import here
from policy.endpoint import (
    OFFSET,
    RESPONDS_LATER,
    Doc,
    Endpoint,
    QueryParameter,
    Request,
    Response,
    caller,
    changed,
    decoded,
    many,
    position_seen,
    ref,
    unconfirmed_caller,
)
from policy.errors import MalformedRequest, Unavailable
from policy.moments import Moment, moment_of
from policy.replicas.reading import AttemptResult, read
from policy.values import STRING
from policy.views import PolicyBody, publishing_refusal

log = logging.getLogger("authz.request")

# ---- answers ------------------------------------------------------------------------------------------------------


class AnswerSource(Protocol):
    """An answer and where it comes from."""

    @property
    def unused(self) -> Unused: ...  # of the question's context
    @property
    def warning(self) -> str: ...  # about words of the question that the policy does not have
    @property
    def revision(self) -> int: ...  # of the facts
    @property
    def version_id(self) -> int | None: ...  # of the policy that answered
    @property
    def valid_while(self) -> SnapshotState | None: ...  # the answer holds as long as this does; None: do not cache it
    @property
    def seen(self) -> Seen: ...  # the environment's position then


# ---- endpoints ----------------------------------------------------------------------------------------------------


class Asking(Endpoint):
    """An endpoint whose statements confirm the caller's key, with the scope for questions, whatever it names."""

    scopes: ClassVar = {"POST": Scope.READ}


Reply = tuple[object, AnswerSource]  # the response body, perhaps as JSON, and the answer it was made from


class Answering(Asking, ABC):
    """Answers a question; a request that comes again, from the cache, if the database confirms that nothing changed."""

    questions: ClassVar = {"POST"}
    takes_context = takes_moment = True
    is_of_now = False  # whether it answers as of now only

    def post(self, request: Request) -> Response:
        who = unconfirmed_caller(request)
        key = cache_key(who, self._what(request), request.body)
        cached = lookup(who, key) if key else None
        if cached is not None and request.answer_again is not None:
            respond = partial(self._respond, request, who, cached.body, cached)
            if confirm_together(who, cached, request, respond):
                return RESPONDS_LATER
        replied = self._replica_reply if settings.REPLICAS else self._reply
        return self._respond(request, who, *replied(request, who, key, cached))

    def _respond(self, request: Request, who: Caller, body: object, found: AnswerSource) -> Response:
        note(request, who, body, found.revision, found.version_id)
        headers = {OFFSET: str(found.revision)}
        if found.unused.kinds:
            headers[HEADER] = line_of(found.unused)
            log.info("request %s: context facts %s", request.id, headers[HEADER])
        if warning := found.warning:
            headers[WARNING] = warning
        return Response(body, headers=headers)

    def _replica_reply(self, request: Request, who: Caller, key: CacheKey | None, cached: CachedAnswer | None) -> Reply:
        """Return a replica's answer, or the primary's if the replica fails or may be stale."""

        def attempt() -> AttemptResult[Reply]:
            reply = self._reply(request, who, key, cached)
            return AttemptResult(reply, reply[1].seen, self.least(request))

        return read(who, position_seen(request), attempt)

    def _reply(self, request: Request, who: Caller, key: CacheKey | None, cached: CachedAnswer | None) -> Reply:
        if cached is not None and is_confirmed(who, cached):
            return cached.body, cached
        body, found = self.reply(request, who)
        return store(who, key, found, body), found

    def least(self, request: Request) -> int:
        """Return the minimum revision of the answer: that of the page which a request continues, or 0."""
        return 0

    def _what(self, request: Request) -> bytes:
        """Return the part of the cache key that identifies the endpoint, and whether a published client asks."""
        return self._names[request.is_of_published_client]

    @cached_property
    def _names(self) -> tuple[bytes, bytes]:
        return b"%d" % next(_numbers), b"%d" % next(_numbers)

    @abstractmethod
    def reply(self, request: Request, who: Caller) -> Reply:
        """Answer the request, using only its body and whether a published client sent it: the cache key has no more."""


# ---- the cache ----------------------------------------------------------------------------------------------------
# An exact cache of answers to repeated requests: the database confirms each answer before it is used again.
#
# An answer is stored with the state of its snapshot: the policy version, and the moment, a random number that changes
# with every change of the environment. When the request is repeated, one small statement checks the key and reads the
# current state. If that is the same, the cached answer is sent. All else that an answer depends on is in the request:
# the cache key is the whole request.
#
# A process remembers the latest moment that its statements saw. An answer of another moment is not worth confirming:
# the question is run at once. So a question that is new, or new since a change, costs one statement, as without a
# cache. The answer to a request's first occurrence is not stored, since most requests are never repeated.

CacheKey = bytes  # environment, endpoint, and request body
_numbers = count()  # of endpoints, once for published clients
_OVERHEAD = 300  # bytes of the smallest answer, including its entries in tables
_SMALL = 100  # bytes of a body; many answers have the same small one
_MOST_SMALL = 1_000
_OF_UNUSED = 12_000  # maximum size in bytes of a description of unused context facts
_CONFIRMED: spans.Noted = ("kept", 0.0, 0.0, {})
_SHARE = 8  # answers larger than 1/_SHARE of the cache are not stored
_MOST_ENVIRONMENTS = 10_000
_MOST_SEEN = 1 << 16


class CachedAnswer(NamedTuple):
    """An answer as JSON, its unused context facts, and the state in which it was computed."""

    body: bytes
    unused: Unused
    valid_while: SnapshotState
    warning: str = ""

    @property
    def revision(self) -> int:
        return self.valid_while.offset

    @property
    def version_id(self) -> int | None:
        return self.valid_while.version

    @property
    def seen(self) -> Seen:
        return self.valid_while.seen


def _bytes_of(key: CacheKey, answer: CachedAnswer) -> int:
    return len(key) + len(answer.body) + len(answer.warning) + _OVERHEAD + _OF_UNUSED * len(answer.unused.kinds)


_answers: Cache[CacheKey, CachedAnswer] = Cache(settings.ANSWER_CACHE, _bytes_of)
_small: dict[CachedAnswer, CachedAnswer] = {}  # each small answer, once
_latest: dict[int, SnapshotState] = {}  # by environment, as far as this process knows
# Hashes of requests; a new one overwrites whichever has its place.
_seen = array("q", [0]) * _MOST_SEEN


def cache_key(who: Caller, what: bytes, body: bytes) -> CacheKey | None:
    """Return the cache key of the request; None if the cache is off, or the request occurs for the first time."""
    if not settings.ANSWER_CACHE:
        return None
    key = b"%d %s %s" % (who.environment_id, what, body)
    number = hash(key)
    place = number % _MOST_SEEN
    if _seen[place] != number:
        _seen[place] = number
        return None
    return key


def lookup(who: Caller, key: CacheKey) -> CachedAnswer | None:
    """Return the cached answer to the same request, unless this process knows of a later state."""
    found = _answers.get(key)
    return None if found is None or found.valid_while != _latest.get(who.environment_id) else found


def is_confirmed(who: Caller, cached: CachedAnswer) -> bool:
    """Return whether nothing has changed since, by one statement, which also checks the key."""
    now = _noted(who.environment_id, confirmed(who))
    if cached.valid_while != now:
        return False
    if spans.is_on:
        spans.add(_CONFIRMED)
    return True


def store(who: Caller, key: CacheKey | None, found: AnswerSource, body: object) -> object:
    """Record the state that an answer was computed in, and cache the answer if it has a key. Return the body to send.

    An answer is not cached if it has no `valid_while`, is too large, or was computed within a transaction. A
    transaction makes several changes under one moment, which others see only after the commit. An answer from in
    between would be wrong for that moment.
    """
    if found.valid_while is None:
        return body
    state = _noted(who.environment_id, found.valid_while)  # one object for all answers of a state
    if key is None or run.in_transaction():
        return body
    text = orjson.dumps(body)
    answer = CachedAnswer(compact(text), found.unused, state, found.warning)
    if len(text) <= _SMALL and not found.unused.kinds:
        if len(_small) >= _MOST_SMALL:
            _small.clear()
        answer = _small.setdefault(answer, answer)
    if _bytes_of(key, answer) <= settings.ANSWER_CACHE / _SHARE:
        _answers.store(key, answer)
    return text


def _noted(environment_id: int, state: SnapshotState) -> SnapshotState:
    """Record the state, and return it, as the object that the last answers of this state share."""
    latest = _latest.get(environment_id)
    if latest == state:
        return latest
    if len(_latest) >= _MOST_ENVIRONMENTS:
        _latest.clear()
    _latest[environment_id] = state
    return state


# ---- one statement for all that wait for it -----------------------------------------------------------------------
# While a thread waits for PostgreSQL to confirm answers, other threads leave theirs to it and take the next request. It
# confirms all of them by its next statement, which begins after they arrived, and sends them.

_MOST_TOGETHER = 100  # answers; further ones keep their threads, so that an overload shows
_LONGEST = 0.1  # seconds for which one thread confirms answers of others


class _WaitingRequest(NamedTuple):
    request: Request
    valid_while: SnapshotState
    respond: Callable[[], Response]
    parts: spans.Parts | None
    since: float  # when it was left to another thread, by `spans.now`; 0.0 for the thread's own


_KeyInSpace = tuple[str, int, str]  # a space, an environment and a key
_together: dict[_KeyInSpace, list[_WaitingRequest]] = {}  # where a thread confirms answers
_joining = Lock()


def confirm_together(who: Caller, cached: CachedAnswer, request: Request, respond: Callable[[], Response]) -> bool:
    """Respond later: with the cached answer if nothing has changed since, else as if there was none.

    Return False, without doing so, if too many wait already.
    """
    waiting = _WaitingRequest(request, cached.valid_while, respond, spans.parts(), 0.0)
    place = here.name, who.environment_id, who.key_hash
    with _joining:
        others = _together.get(place)
        if others is None:
            _together[place] = [waiting]
        elif len(others) < _MOST_TOGETHER:
            others.append(waiting._replace(since=spans.now()) if spans.is_on else waiting)
        else:
            return False
    if others is None:
        _confirm_all(who, place)
    return True


def _confirm_all(who: Caller, place: _KeyInSpace) -> None:
    """Confirm the answers that wait in a place until there is none."""
    until = monotonic() + _LONGEST
    try:
        while monotonic() < until and (group := _taken(place)):
            try:
                now = _noted(who.environment_id, spans.of_request(group[0].parts, partial(confirmed, who)))
            except Exception:  # each meets it again, and reports it
                now = None
            while group:
                _finish(group.pop(), now)
    finally:
        with _joining:
            rest = _together.pop(place, [])
        while rest:
            _finish(rest.pop(), None)


def _taken(place: _KeyInSpace) -> list[_WaitingRequest]:
    with _joining:
        group, _together[place] = _together[place], []
    return group


def _finish(waiting: _WaitingRequest, now: SnapshotState | None) -> None:
    """Send the answer if `now` is still its state; otherwise, the request is answered again from its start."""
    request, later, again = waiting.request, waiting.request.respond_later, waiting.request.answer_again
    assert later is not None and again is not None
    try:
        if waiting.valid_while == now:
            spans.of_request(waiting.parts, partial(later, request, partial(_confirmed, waiting)))
        else:
            again()
    except Exception:
        log.exception("request %s failed", request.id)


def _confirmed(waiting: _WaitingRequest) -> Response:
    if spans.is_on:
        if waiting.since:
            spans.note("wait", waiting.since, of="confirmation")
        spans.add(_CONFIRMED)
    return waiting.respond()


A_MOMENT = "a revision number or an RFC 3339 time"
REFUSED_REVIEW = (
    "A parameter is malformed or unknown to the policy, or a moment has no policy or is no longer available."
)
PREVIEW_SECONDS = 4.0
MOST_DIFFERENCES = 20  # of each kind of question

# ---- endpoints for each kind of question ----------------------------------------------------------------------------

ANY_ACTION = Asked(STRING)


class Authorize(Answering):
    body = serializers.AuthorizeQuery
    docs: ClassVar = {"POST": Doc("Check access", ref("Decision"))}

    def reply(self, request: Request, who: Caller) -> Reply:
        found = ask.answer(who, check_question(decoded(self.body, request.data)), moment=moment_asked(request, who))
        return {"allowed": found.holds}, found


class Actions(Answering):
    body = serializers.ActionsQuery
    docs: ClassVar = {"POST": Doc("List actions", ref("Actions"))}

    def reply(self, request: Request, who: Caller) -> Reply:
        question = actions_question(decoded(self.body, request.data))
        found = ask.answer(who, question, moment=moment_asked(request, who))
        return {"results": names(found.of_one)}, found


class List(Answering):
    body = serializers.ListQuery
    docs: ClassVar = {
        "POST": Doc(
            "List resources",
            ref("Listing"),
            "Results are complete, in pages. A page token continues the same query after the last id of the "
            "previous page.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        question = list_question(body)
        of, moment = partial(paging.list_of, who.environment_id, question), moment_asked(request, who)
        wanted = paging.page_request_from_json(
            body["page_size"], body["page_token"], of, request.is_of_published_client, moment,
            is_as_of=request.data.get("as_of") is not None,
        )  # fmt: skip
        page = paging.page_of(
            who,
            of,
            wanted,
            lambda then: ask.answer(who, question, wanted.page, then or wanted.moment),
            lambda found: [row[0] for row in found.of_one],
        )
        return paging.page_to_json(page, wanted), page.found

    def least(self, request: Request) -> int:
        return paging.least_of(request.data.get("page_token"))


class AuthorizeResources(Answering):
    body = serializers.AuthorizeResourcesQuery
    docs: ClassVar = {
        "POST": Doc(
            "Filter resources",
            ref("Allowed"),
            "Returns the resources on which the actor may perform the action, in the order of the request and "
            "with its duplicates.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        asked = (body["actor"], body["action"], body["resources"], body["context_facts"])
        allowed, found = ask.allowed_among(who, *asked, moment_asked(request, who))
        return {"results": [{"type": value.type, "id": value.id} for value in allowed]}, found


class AuthorizeEach(Answering):
    body = serializers.AuthorizeEachQuery
    docs: ClassVar = {
        "POST": Doc(
            "Check access in bulk",
            ref("Decisions"),
            "Checks for any actors, actions and resources, evaluated at the same revision. If one check is "
            "invalid or too complex, the whole request is rejected.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        moment = moment_asked(request, who)
        allowed, found = by_rows.allowed_each(who, body["checks"], body["context_facts"], moment)
        return {"results": allowed}, found


class Evaluate(Answering):
    body = serializers.EvaluateQuery
    docs: ClassVar = {
        "POST": Doc(
            "Query the policy",
            ref("Solutions"),
            "Calls are joined on the variables they share. Every variable has a constraint, which gives its type "
            "and, optionally, its values.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        query = query_asked(request.data)
        found = ask.answer(who, query.question, moment=moment_asked(request, who))
        return {"results": query.results(found.of_one)}, found


class QueryEndpoint(Answering):
    """The first version of the query."""

    body = serializers.FactQuery
    docs: ClassVar = {
        "POST": Doc("Query stored and derived facts", ref("FoundFacts"), deprecated_for="POST /api/evaluate_query")
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        moment = moment_asked(request, who)
        found = by_rows.find_facts(who, body["fact"], body["context_facts"], moment)
        return {"results": by_rows.facts_to_json(body["fact"], found)}, found


class BulkActions(Answering):
    """Context facts and the moment come with the first element, and count for all."""

    body = serializers.ACTIONS_QUERIES
    docs: ClassVar = {
        "POST": Doc(
            "List actions in bulk",
            many(ref("Actions")),
            "The context facts, `as_of` and `policy_version` of the first query apply to all; no other query may have "
            "different ones.",
            deprecated_for="POST /api/actions",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        bodies = self.body.decode(request.data, "")
        context = bodies[0]["context_facts"] if bodies else ()
        moment = moment_of_many(request.data, who)
        found = by_rows.answered_each(who, [actions_question(body) for body in bodies], context, moment)
        return [{"results": names(rows)} for rows in found.of_each], found


class Explain(Answering):
    """Why one answer is as it is: the body of /authorize, or of /evaluate_query with one value for each variable."""

    body: ClassVar = {"allOf": [ref("ExplainQuery"), ref("Moment")]}
    docs: ClassVar = {
        "POST": Doc(
            "Explain a decision",
            ref("Explanation"),
            "Returns why access is allowed (a proof of rules and facts), or why it is denied: for each rule that "
            "could have granted access, how far it matched and what is missing. Stored facts include when they "
            "were stored and by whom; missing facts that were stored before include when they were deleted and by "
            "whom. All statements read one snapshot. An explanation takes up to about three times as long as the "
            "decision; if it needs more, `complete` is false and the rest is marked `unexplained`. In a query, "
            "every variable must have one id, or null for any.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        is_query = isinstance(request.data, dict) and "predicate" in request.data
        question, moment = explained_question(request.data), moment_asked(request, who)
        with_ways = not is_query and request.data.get("would_allow", False)
        if with_ways and moment:
            raise MalformedRequest("would_allow", "not supported with `as_of` and `policy_version`")
        explanation = explain.explain(who, question, moment, with_ways)
        return explanation_to_json(explanation, is_query), explanation


class PreviewPolicy(Endpoint):
    """What a policy would change, without publishing it. It takes seconds, so a process runs one at a time."""

    scopes: ClassVar = {"POST": Scope.POLICY}
    body = PolicyBody
    docs: ClassVar = {
        "POST": Doc(
            "Preview a policy",
            ref("PolicyPreview"),
            "Compiles the policy, runs its tests, and compares decisions over the stored facts with those of the "
            "active policy, for up to 4 seconds. Nothing is stored.",
            statuses={503: "Another preview is running, or the database is unreachable or overloaded. Try again."},
            refused_body="PolicyRefused",
            has_offset=True,
        )
    }
    _running = Lock()

    def post(self, request: Request) -> Response:
        who = caller(request)
        body = PolicyBody(data=request.data)
        body.is_valid(raise_exception=True)
        if not self._running.acquire(blocking=False):
            raise Unavailable("another preview is running; try again")
        try:
            offset = current_offset(who.environment_id)
            found = preview(
                who.environment_id, body.validated_data["src"], body.validated_data["filename"] or "",
                seconds=PREVIEW_SECONDS, most=MOST_DIFFERENCES, explains=False,
            )  # fmt: skip
        finally:
            self._running.release()
        return Response(preview_to_json(found), headers={OFFSET: str(offset)})

    def refusal(self, request: Request, status: int, body: dict[str, object]) -> dict[str, object]:
        return publishing_refusal(status, body)


class ReviewAccess(Endpoint):
    """Who gained and lost access between two moments, or who has it at one. Each page takes about a second."""

    scopes: ClassVar = {"GET": Scope.READ}
    docs: ClassVar = {
        "GET": Doc(
            "Review access",
            ref("AccessReview"),
            "Complete, in pages, some of which may be empty. Each moment uses the policy that was active then.",
            parameters=(
                QueryParameter("from", f"The start of a comparison: {A_MOMENT}."),
                QueryParameter("to", f"Its end: {A_MOMENT} (default: now)."),
                QueryParameter("at", f"The moment to list: {A_MOMENT}."),
                QueryParameter("actor", "Only this actor, such as `User:ann`, or actors of this type, such as `User`."),
                QueryParameter("action", "Only this action."),
                QueryParameter("resource_type", "Only resources of this type."),
                QueryParameter("page_token", "The `next_page_token` of the previous page."),
            ),
            statuses={400: REFUSED_REVIEW},
            has_offset=True,
        )
    }

    def get(self, request: Request) -> Response:
        who = caller(request)
        names = {"start": "from", "end": "to", "actor_type": "actor", "after": "page_token"}
        names |= {name: name for name in ("at", "action", "resource_type")}
        sent = {field: request.query_params.get(name, "") for field, name in names.items()} | {"filter": ""}
        body, revision = review_to_json(who.environment_id, sent)
        return Response(body, headers={OFFSET: str(revision)})


class Expect(Asking):
    """What a caller expected of an answer. Nothing is kept, and an unknown answer is fine."""

    body = serializers.Expectation
    docs: ClassVar = {
        "POST": Doc(
            "Record an expected result",
            ref("Message"),
            "`request_id` is the `X-Request-ID` of the response. Accepted for compatibility; nothing is stored.",
            has_offset=True,
        )
    }

    def post(self, request: Request) -> Response:
        decoded(self.body, request.data)
        return changed("noted", current_offset(caller(request).environment_id))


class RecordEvent(Asking):
    """Stores what an agent does in the decision log, as the published clients send it."""

    body = serializers.AgentEvent
    docs: ClassVar = {
        "POST": Doc(
            "Record an event of an agent",
            ref("Message"),
            "Stored in the decision log. If there is none, nothing is stored, and the message says so.",
            has_offset=True,
        )
    }

    def post(self, request: Request) -> Response:
        decoded(self.body, request.data)
        who = caller(request)
        offset = current_offset(who.environment_id)
        has_log = record(request, who, offset)
        return changed("recorded" if has_log else "not recorded: DECISION_LOG is not set", offset)


def moment_asked(request: Request, who: Caller) -> Moment | None:
    """Return the moment in the body; None for now, which is usual."""
    body = request.data
    return _moment_in(body, who, "") if isinstance(body, dict) else None


def moment_of_many(bodies: list[dict], who: Caller) -> Moment | None:
    """Return the moment of all questions of a request: that of the first, from which no other may differ.

    Nor may it bring other context facts: without them, a `not` could hold.
    """
    for index, body in enumerate(bodies):
        for name in (*serializers.MOMENT, "context_facts"):
            if body.get(name) not in (None, [], bodies[0].get(name)):
                raise MalformedRequest(f"[{index}].{name}", "must be the same as in the first query")
    return _moment_in(bodies[0], who, "[0]") if bodies else None


def _moment_in(body: dict, who: Caller, path: str) -> Moment | None:
    if body.keys().isdisjoint(serializers.MOMENT):
        return None
    asked = decoded(serializers.MomentQuery, body, path)
    return moment_of(who.environment_id, asked["as_of"], asked["policy_version"])


# ---- helpers -------------------------------------------------------------------------------------------------


def check_question(body: dict) -> Question:
    return allow(body["actor"], body["action"], body["resource"], (), body["context_facts"])


def actions_question(body: dict) -> Question:
    return allow(body["actor"], ANY_ACTION, body["resource"], ("action",), body["context_facts"])


def list_question(body: dict) -> Question:
    return allow(body["actor"], body["action"], Asked(body["resource_type"]), ("resource",), body["context_facts"])


def query_asked(raw: object) -> Query:
    body = decoded(serializers.EvaluateQuery, raw)
    return Query.of((body["predicate"], *body["calls"]), body["constraints"], body["context_facts"])


def explained_question(raw: object) -> Question:
    if isinstance(raw, dict) and "predicate" in raw:
        return solution(query_asked(raw).question)
    return check_question(decoded(serializers.ExplainQuery, raw))


def solution(question: Question) -> Question:
    """Return the question with one value for each variable; null stands for any value. Several ids are an error."""
    variables = {}
    for name, asked in question.variables.items():
        path = f"constraints.{question.called(name)}"
        if asked.ids is not None and len(asked.ids) != 1:
            raise MalformedRequest(f"{path}.ids", "must be one id, or null for any")
        variables[name] = asked if asked.ids else serializers.any_value(asked.type, path)
    return question._replace(variables=variables, outs=())


def names(rows: list[AnswerRow]) -> list[str]:
    return ["*" if name is None else name for (name,) in sorted(rows, key=by_ids)]
