"""The endpoints of AuthZEN, each a use case of /api under another name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from checks.asking import run
from checks.asking.askers import confirmed
from checks.asking.paging import as_of_first_page, moment_to_token, not_cached
from checks.authzen.asking import Decision, all_decided, decided, explained, ids_of, searched
from checks.authzen.requests import (
    DENY_ON_FIRST_DENY,
    PERMIT_ON_FIRST_PERMIT,
    ActionSearch,
    Evaluated,
    Evaluation,
    Evaluations,
    Options,
    RequestPart,
    ResourceSearch,
    SubjectSearch,
    digest_of,
    evaluated,
    known_of,
    least_of,
    page_of,
    search_page_of,
)
from checks.explain.explain import Explanation, explanation_to_json
from checks.views import Answering, Reply, moment_asked
from policy.active import Caller
from policy.endpoint import Doc, Endpoint, Request, Response, public_url_of, ref
from policy.errors import MalformedRequest
from policy.moments import Moment, seen_since
from policy.serializers import decoded

JSON = "application/json"


class AuthZen(Answering):
    """Takes JSON alone, and says so, as the specification asks."""

    takes_context = takes_moment = False  # their bodies say it in words of their own

    def post(self, request: Request) -> Response:
        kind = request.headers.get("CONTENT_TYPE", "")
        if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:
            raise MalformedRequest("", f"the `Content-Type` header must be {JSON}")
        return super().post(request)


# ---- decisions -----------------------------------------------------------------------------------------------------


class AccessEvaluation(AuthZen):
    body: ClassVar[Any] = Evaluation
    docs: ClassVar = {
        "POST": Doc(
            "Check access",
            ref("Evaluated"),
            "With `options.explain`, the response includes the explanation.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body, moment = decoded(Evaluation, request.data), moment_asked(request, who)
        if body["options"].explain:
            explanation = explained(who, known_of(body), moment)
            return _explanation_to_json(explanation), explanation
        found = decided(who, known_of(body), moment)
        return {"decision": found.holds}, found


class EvaluateMany(AccessEvaluation):
    """Answers like `AccessEvaluation` where nothing is listed."""

    body = Evaluations
    docs: ClassVar = {
        "POST": Doc(
            "Check access in bulk",
            {"anyOf": [ref("Evaluated"), ref("EvaluatedMany")]},
            "Members next to `evaluations` are the defaults of each evaluation. An invalid evaluation is denied, "
            "and its `context` has the error. Without `evaluations`, the request is a single evaluation.",
        )
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(Evaluations, request.data)
        if not body["evaluations"]:
            return super().reply(request, who)
        options, moment = body["options"], moment_asked(request, who)
        asked = evaluated(request.data, body["evaluations"])
        if options.explain:
            shown, explanation = _each_explained(who, asked, moment)
            return {"evaluations": _until_decided(shown, options)}, explanation
        decisions, found = all_decided(who, asked, moment)
        return {"evaluations": _until_decided(map(_decision_to_json, decisions), options)}, found


def _each_explained(
    who: Caller, asked: Sequence[Evaluated], moment: Moment | None
) -> tuple[list[dict[str, object]], Explanation]:
    """Return what is answered to each, and the last explanation, whose revision and policy are those of all."""
    if len(asked) > MOST_EXPLAINED:
        raise MalformedRequest("options.explain", f"can explain at most {MOST_EXPLAINED} evaluations in one request")
    shown: list[dict[str, object]] = []
    with run.question_time(), run.snapshot():
        state = confirmed(who)
        found = Explanation(None, (), revision=state.offset, version_id=state.version, seen=state.seen)
        if moment is not None:
            seen = seen_since(moment, state.seen)
            found = replace(found, revision=moment.revision, version_id=moment.version, seen=seen)
        for each in asked:
            try:
                if isinstance(each, MalformedRequest):
                    raise each
                found = explained(who, each, moment)
                shown.append(_explanation_to_json(found))
            except MalformedRequest as fault:
                shown.append(_decision_to_json(Decision(False, fault)))
    return shown, found


MOST_EXPLAINED = 100


def _until_decided(answers: Iterable[dict[str, object]], options: Options) -> list[dict[str, object]]:
    """Return the answers; if the request says what decides, only up to the first one that does."""
    stops = {DENY_ON_FIRST_DENY: False, PERMIT_ON_FIRST_PERMIT: True}.get(options.semantic)
    shown = []
    for each in answers:
        shown.append(each)
        if each["decision"] is stops:
            break
    return shown


def _decision_to_json(decision: Decision) -> dict[str, object]:
    if decision.fault is None:
        return {"decision": decision.is_allowed}
    return {"decision": False, "context": {"error": {"status": 400, "message": decision.fault.message}}}


def _explanation_to_json(found: Explanation) -> dict[str, object]:
    return {"decision": found.allowed, "context": {"explanation": explanation_to_json(found, False)}}


# ---- searches ------------------------------------------------------------------------------------------------------


class AccessSearch(AuthZen):
    out: ClassVar[str]  # what is asked for

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        digest = digest_of(who.environment_id, self.out, request.data)
        wanted = search_page_of(body["page"], digest)
        known, moment, page_asked = known_of(body), moment_asked(request, who), wanted.page if wanted else None
        found, first = as_of_first_page(
            who,
            wanted.first if wanted else None,
            lambda then: searched(who, known, self.out, page_asked, then or moment),
        )
        shown, page = page_of(wanted, ids_of(found), digest, lambda: moment_to_token(found, first or moment))
        results = [self.result(body, "*" if text is None else text) for text in shown]
        paged = {"page": page} if body["page"] is not None else {}  # first, as readers of long answers want it
        return paged | {"results": results}, not_cached(found) if page["next_token"] and moment is None else found

    def least(self, request: Request) -> int:
        return least_of(request.data.get("page"))

    @abstractmethod
    def result(self, body: dict, text: str) -> dict[str, str]:
        """Return one result as JSON; the text `*` stands for every id."""


class SearchSubjects(AccessSearch):
    body, out = SubjectSearch, "actor"
    docs: ClassVar = {
        "POST": Doc(
            "List subjects",
            ref("FoundEntities"),
            "Results are complete. The id `*` stands for every subject.",
        )
    }

    def result(self, body: dict, text: str) -> dict[str, str]:
        return _entity_to_json(body["subject"], text)


class SearchResources(AccessSearch):
    body, out = ResourceSearch, "resource"
    docs: ClassVar = {
        "POST": Doc(
            "List resources",
            ref("FoundEntities"),
            "Results are complete, in pages if `page` is given. The id `*` stands for every resource.",
        )
    }

    def result(self, body: dict, text: str) -> dict[str, str]:
        return _entity_to_json(body["resource"], text)


class SearchActions(AccessSearch):
    body, out = ActionSearch, "action"
    docs: ClassVar = {"POST": Doc("List actions", ref("FoundActions"), "Results are complete.")}

    def result(self, body: dict, text: str) -> dict[str, str]:
        return {"name": text}


def _entity_to_json(searched_for: RequestPart, text: str) -> dict[str, str]:
    return {"type": searched_for.asked.type, "id": text}


# ---- discovery ------------------------------------------------------------------------------------------------------


class Metadata(Endpoint):
    """Says where the endpoints of AuthZEN are, for clients that look it up. Needs no key."""

    needs_key = False
    docs: ClassVar = {
        "GET": Doc(
            "Get the AuthZEN metadata",
            ref("AuthZenMetadata"),
            "The URLs are based on `PUBLIC_URL`, or on the URL of the request.",
        )
    }

    def get(self, request: Request) -> Response:
        base = public_url_of(request.headers)
        return Response(
            {
                "policy_decision_point": base,
                "access_evaluation_endpoint": f"{base}/access/v1/evaluation",
                "access_evaluations_endpoint": f"{base}/access/v1/evaluations",
                "search_subject_endpoint": f"{base}/access/v1/search/subject",
                "search_resource_endpoint": f"{base}/access/v1/search/resource",
                "search_action_endpoint": f"{base}/access/v1/search/action",
            },
            headers={"Cache-Control": "no-store"},  # the address is of this request
        )
