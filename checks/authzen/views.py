"""The endpoints of AuthZEN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar

from checks.asking import ask, by_rows, run
from checks.asking.ask import Answered, Asker, LiveSession, confirmed, settled
from checks.asking.paging import LARGEST, PageRequest, least_of, page_of
from checks.asking.question import NEW_SIGNATURE, Page, Question, allow, by_ids
from checks.authzen.requests import (
    DENY_ON_FIRST_DENY,
    PERMIT_ON_FIRST_PERMIT,
    ActionSearch,
    Evaluated,
    Evaluation,
    Evaluations,
    Options,
    RequestProperties,
    ResourceSearch,
    SubjectSearch,
    evaluated,
    facts_of,
    known_of,
    search_of,
    search_page_of,
)
from checks.compare.differences import AskedTogether
from checks.decisions.log import LogLine, Summary
from checks.errors import StatementTooLarge
from checks.explain.explain import Explanation, explain, explanation_to_json
from checks.views import Answering, Reply, moment_asked
from facts.wire import Fact
from policy.active import Caller, program_of_version
from policy.endpoint import Doc, Endpoint, Request, Response, decoded, public_url_of, ref
from policy.errors import AuthzError, MalformedRequest
from policy.models import PolicyVersion
from policy.moments import Moment, seen_since
from policy.rules.program import Program

# ---- From requests to questions: one decision or many, and searches -----------------------------------------------
# The policy decides which properties become facts, at first the one that was last seen active. The statements confirm
# that it still is; if not, everything is repeated with the next one. The same goes if signatures get numbers meanwhile.

T = TypeVar("T")


Placed = tuple[int, RequestProperties]  # the position in a request, and its evaluation
FactGroups = dict[frozenset[Fact], list[Placed]]  # by the facts that count for them
NO_GROUPS: list[tuple[frozenset[Fact], list[Placed]]] = [(frozenset(), [])]  # run all the same, to confirm the key


class Decision(NamedTuple):
    """The result of one evaluation: whether it is allowed; if it is invalid, also the error."""

    is_allowed: bool
    fault: MalformedRequest | None = None


def all_decided(asker: Asker, asked: Sequence[Evaluated], moment: Moment | None) -> tuple[list[Decision], Answered]:
    """Decide many evaluations as of one moment; those with the same facts share statements."""

    def by(session: LiveSession) -> tuple[tuple[list[Decision], Answered], int | None]:
        decisions, groups = _by_facts(asked, session)
        if len(groups) > 1:
            _compile(groups, session, moment)
        found = []
        with run.snapshot() if len(groups) > 1 else nullcontext():
            for facts, group in groups.items() or NO_GROUPS:
                checks = [(known.subject.asked, known.action.asked, known.resource.asked) for _, known in group]
                allowed, answered = by_rows.allowed_each(asker, checks, tuple(facts), moment)
                found.append(answered)
                for (place, _), is_allowed in zip(group, allowed):
                    decisions[place] = Decision(is_allowed)
        together, version = _together(found)
        return (decisions, together), version

    return _settled(asker, moment, by)


def explained(asker: Asker, known: RequestProperties, moment: Moment | None) -> Explanation:
    """Decide one evaluation, and explain the decision."""

    def by(session: LiveSession) -> tuple[Explanation, int | None]:
        found = explain(asker, question_of(known, facts_of(known, session.program)), moment)
        return found, found.version_id

    return _settled(asker, moment, by)


def ids_of(found: Answered) -> list[str | None]:
    """Return the sorted ids that a search found; None, which stands for every id, is first."""
    return [text for (text,) in sorted(found.of_one, key=by_ids)]


def _answered(
    asker: Asker, known: RequestProperties, moment: Moment | None, outs: tuple[str, ...] = (), page: Page | None = None
) -> Answered:
    """Decide one evaluation, or return the ids of a part for which it holds.

    Raises an error if a property that the policy uses has a value that no fact can have.
    """
    if not known.has_properties:  # the question does not depend on the policy
        return ask.answer(asker, question_of(known, (), outs), page, moment)

    def by(session: LiveSession) -> tuple[Answered, int | None]:
        question = question_of(known, facts_of(known, session.program), outs)
        found = ask.answer(asker, question, page, moment)
        return found, found.session.version

    return _settled(asker, moment, by)


def _by_facts(asked: Sequence[Evaluated], session: LiveSession) -> tuple[list[Decision], FactGroups]:
    """Return a decision for each evaluation, final for invalid ones only; and the valid ones, grouped by facts."""
    decisions = [Decision(False, each if isinstance(each, MalformedRequest) else None) for each in asked]
    groups: FactGroups = {}
    for index, each in enumerate(asked):
        if isinstance(each, RequestProperties):
            try:
                groups.setdefault(frozenset(facts_of(each, session.program)), []).append((index, each))
            except MalformedRequest as fault:
                decisions[index] = Decision(False, fault)
    return decisions, groups


def _compile(groups: FactGroups, session: LiveSession, moment: Moment | None) -> None:
    """Compile the groups' statements in advance: what is compiled within their snapshot is not cached."""
    for facts, group in groups.items():
        context = session.brought(tuple(facts)).facts
        questions = [question_of(known, context) for _, known in group]
        if moment is None and len(questions) > 1:
            with suppress(StatementTooLarge):
                by_rows.statements_for(session, questions, context)
        else:
            session.statements_for(questions, context)


def question_of(known: RequestProperties, facts: Sequence[Fact], outs: tuple[str, ...] = ()) -> Question:
    (subject, _), (action, _), (resource, _), _ = known
    return allow(subject, action, resource, outs, facts)


def _settled(asker: Asker, moment: Moment | None, by: Callable[[LiveSession], tuple[T, int | None]]) -> T:
    with run.question_time():
        return settled(asker, moment, by)


def _together(found: Sequence[Answered]) -> tuple[Answered, int | None]:
    """Merge several answers of one moment into one, and return it with the policy version of all.

    It may be cached only if each of them may. If their versions differ, everything has to be repeated.
    """
    last = found[-1]
    states = {each.valid_while for each in found}
    versions = {each.session.version for each in found}
    whole = last if len(states) == 1 else last._replace(valid_while=None)
    if any(each.is_doubtful for each in found):  # the warning is about the questions of all
        whole = whole._replace(questions=[one for each in found for one in each.questions], is_doubtful=True)
    return whole, last.session.version if len(versions) == 1 else NEW_SIGNATURE


# ---- lines --------------------------------------------------------------------------------------------------------
# Reads lines of the decision log about AuthZEN: the questions, and what was allowed or found.

_SEARCHES = {
    "/access/v1/search/subject": (SubjectSearch, "actor"),
    "/access/v1/search/resource": (ResourceSearch, "resource"),
    "/access/v1/search/action": (ActionSearch, "action"),
}


def is_of_authzen(line: LogLine) -> bool:
    return line.endpoint.startswith("/access/")


def program_of_then(line: LogLine) -> Program | None:
    version = PolicyVersion.objects.filter(environment=line.environment, number=line.policy_version or 0).first()
    return None if version is None else program_of_version(version.pk)


def given_for(line: LogLine, program: Program | None) -> AskedTogether:
    """Return the questions, with the properties that the program uses."""
    if line.endpoint in _SEARCHES:
        serializer, out = _SEARCHES[line.endpoint]
        return _given(program, [known_of(decoded(serializer, line.question))], (out,))
    raw: Any = line.question
    many = decoded(Evaluations, raw)["evaluations"] if line.endpoint.endswith("s") else None
    return _given(program, evaluated(raw, many) if many else [known_of(decoded(Evaluation, raw))])


def _given(program: Program | None, asked: list, outs: tuple[str, ...] = ()) -> AskedTogether:
    valid = [each for each in asked if isinstance(each, RequestProperties)]
    contexts = {frozenset(() if program is None else facts_of(each, program)) for each in valid}
    if len(valid) < len(asked) or len(contexts) != 1:
        raise AuthzError("its evaluations have different properties, or some are invalid")
    context = tuple(contexts.pop())
    return AskedTogether(tuple([question_of(each, context, outs) for each in asked]), context=context)


def answers_of(line: LogLine, answer: Summary) -> list[str | bool]:
    """Return for each question whether it is allowed; for a search, the names or ids that it found."""
    if "results" not in answer:
        return [answer["allowed"]]
    results: list[Any] = answer["results"]
    return [each if isinstance(each, bool) else each.get("id") or each["name"] for each in results]


# ---- The endpoints of AuthZEN, each a use case of /api under another name -----------------------------------------

JSON = "application/json"


class AuthZen(Answering):
    """Takes JSON alone, and says so, as the specification asks."""

    takes_context = takes_moment = False  # their bodies have members of their own for these

    def post(self, request: Request) -> Response:
        kind = request.headers.get("CONTENT_TYPE", "")
        if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:
            raise MalformedRequest("", f"the `Content-Type` header must be {JSON}")
        return super().post(request)


# ---- decisions -----------------------------------------------------------------------------------------------------


class AccessEvaluation(AuthZen):
    body: ClassVar[Any] = Evaluation
    docs: ClassVar = {
        "POST": Doc("Check access", ref("Evaluated"), "With `options.explain`, the response includes the explanation.")
    }

    def reply(self, request: Request, who: Caller) -> Reply:
        body, moment = decoded(Evaluation, request.data), moment_asked(request, who)
        if body["options"].explain:
            explanation = explained(who, known_of(body), moment)
            return _explanation_to_json(explanation), explanation
        found = _answered(who, known_of(body), moment)
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
    """Return the response to each, and the last explanation, whose revision and policy are those of all."""
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
    """Return the answers; if the request has an evaluation semantic, only up to the first one that decides."""
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
    out: ClassVar[str]  # the target of the search
    part: ClassVar[str]  # the member of the request about it

    def reply(self, request: Request, who: Caller) -> Reply:
        body = decoded(self.body, request.data)
        of = search_of(who.environment_id, self.out, request.data)
        asked, known, moment = search_page_of(body["page"], of), known_of(body), moment_asked(request, who)
        wanted = asked or PageRequest(LARGEST)
        page = page_of(
            who,
            lambda: of,
            wanted,
            lambda then: _answered(who, known, then or moment, (self.out,), wanted.page if asked else None),
            ids_of,
            moment,
        )
        results = [self.result(body, "*" if text is None else text) for text in page.ids]
        paged = {"page": {"next_token": page.token, "count": len(page.ids)}} if body["page"] is not None else {}
        return paged | {"results": results}, page.found  # the results last, as readers of long responses prefer

    def least(self, request: Request) -> int:
        asked = request.data.get("page")
        return least_of(asked.get("token")) if isinstance(asked, dict) else 0

    def result(self, body: dict, text: str) -> dict[str, str]:
        """Return one result as JSON; the text `*` stands for every id."""
        return {"type": body[self.part].asked.type, "id": text}


class SearchSubjects(AccessSearch):
    body, out, part = SubjectSearch, "actor", "subject"
    docs: ClassVar = {
        "POST": Doc("List subjects", ref("FoundEntities"), "Results are complete. The id `*` stands for every subject.")
    }


class SearchResources(AccessSearch):
    body, out, part = ResourceSearch, "resource", "resource"
    docs: ClassVar = {
        "POST": Doc(
            "List resources",
            ref("FoundEntities"),
            "Results are complete, in pages if `page` is given. The id `*` stands for every resource.",
        )
    }


class SearchActions(AccessSearch):
    body, out = ActionSearch, "action"
    docs: ClassVar = {"POST": Doc("List actions", ref("FoundActions"), "Results are complete.")}

    def result(self, body: dict, text: str) -> dict[str, str]:
        return {"name": text}


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
            headers={"Cache-Control": "no-store"},  # the URLs depend on the request
        )


endpoints: dict[str, Endpoint] = {
    "access/v1/evaluation": AccessEvaluation(),
    "access/v1/evaluations": EvaluateMany(),
    "access/v1/search/subject": SearchSubjects(),
    "access/v1/search/resource": SearchResources(),
    "access/v1/search/action": SearchActions(),
    ".well-known/authzen-configuration": Metadata(),
}
