"""The endpoints of AuthZEN, each a use case of /api under another name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

from rest_framework import serializers

from checks.asking import run
from checks.asking.askers import confirmed
from checks.authzen.asking import Decision, all_decided, decided, explained, searched
from checks.authzen.entities import (
    DENY_ON_FIRST_DENY,
    PERMIT_ON_FIRST_PERMIT,
    ActionSearch,
    Entity,
    Evaluations,
    Options,
    ResourceSearch,
    SubjectSearch,
    options_from_json,
)
from checks.authzen.evaluations import Evaluated, evaluated, known_of, known_of_search
from checks.authzen.pages import cut_of, digest_of, least_of, page_of
from checks.decisions.log import note
from checks.explain.explain import Explanation
from checks.explain.output import explanation_to_json
from checks.views import Answering, Said, moment_asked
from facts.context_header import answer
from policy.active import Caller
from policy.endpoint import Request, Response, position_seen, unconfirmed_caller
from policy.errors import MalformedRequest
from policy.moments import seen_since
from policy.replicas.reading import Found, read
from policy.serializers import decoded

JSON = "application/json"


class AuthZen(Answering):
    """Takes JSON alone, and says so, as the specification asks."""

    def post(self, request: Request) -> Response:
        kind = request.headers.get("CONTENT_TYPE", "")
        if kind != JSON and kind.partition(";")[0].strip().lower() != JSON:
            raise MalformedRequest("", f"the header Content-Type must be {JSON}")
        return super().post(request)


# ---- decisions -----------------------------------------------------------------------------------------------------


class Evaluate(AuthZen):
    def post(self, request: Request) -> Response:
        return self._explained(request) if _options(request.data).explain else super().post(request)

    def said(self, request: Request, who: Caller) -> Said:
        found = decided(who, known_of(request.data), moment_asked(request, who))
        return {"decision": found.holds}, found

    def _explained(self, request: Request) -> Response:
        """Decide, and say why. Nothing of it is kept."""
        who = unconfirmed_caller(request)

        def attempt() -> Found[tuple[object, Explanation]]:
            explained = self.explained(request, who)
            return Found(explained, explained[1].seen)

        body, found = read(who, position_seen(request), attempt)
        note(request, who, body, found.revision, found.version_id)
        return answer(request, body, found.unused, found.revision)

    def explained(self, request: Request, who: Caller) -> tuple[object, Explanation]:
        found = explained(who, known_of(request.data), moment_asked(request, who))
        return _explanation_to_json(found), found


class EvaluateMany(Evaluate):
    """Answers like `Evaluate` where nothing is listed."""

    def said(self, request: Request, who: Caller) -> Said:
        asked, options = _asked_and_options(request.data)
        if not asked:
            return super().said(request, who)
        decisions, found = all_decided(who, asked, moment_asked(request, who))
        return {"evaluations": _until_decided(map(_decision_to_json, decisions), options)}, found

    def explained(self, request: Request, who: Caller) -> tuple[object, Explanation]:
        asked, options = _asked_and_options(request.data)
        if not asked:
            return super().explained(request, who)
        if len(asked) > MOST_EXPLAINED:
            raise MalformedRequest("options.explain", f"explains at most {MOST_EXPLAINED} evaluations at once")
        moment, shown = moment_asked(request, who), []
        with run.question_time(), run.snapshot():
            holding = confirmed(who)
            found = Explanation(None, (), revision=holding.offset, version_id=holding.version, seen=holding.seen)
            if moment is not None:
                seen = seen_since(moment, holding.seen)
                found = replace(found, revision=moment.revision, version_id=moment.version, seen=seen)
            for each in asked:
                try:
                    if isinstance(each, MalformedRequest):
                        raise each
                    found = explained(who, each, moment)
                    shown.append(_explanation_to_json(found))
                except MalformedRequest as fault:
                    shown.append(_decision_to_json(Decision(False, fault)))
        return {"evaluations": _until_decided(shown, options)}, found


MOST_EXPLAINED = 100


def _options(raw: object) -> Options:
    found = raw.get("options") if isinstance(raw, dict) else None
    return Options() if found is None else options_from_json(found, "options")


def _asked_and_options(raw: Any) -> tuple[list[Evaluated], Options]:
    body = decoded(Evaluations, raw)
    return evaluated(raw, body["evaluations"] or ()), body["options"]


def _until_decided(answers: Iterable[dict[str, object]], options: Options) -> list[dict[str, object]]:
    """Return the answers, up to the one that decides, where the request says what does."""
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


class Search(AuthZen):
    serializer: ClassVar[type[serializers.Serializer]]
    out: ClassVar[str]  # what is asked for

    def said(self, request: Request, who: Caller) -> Said:
        body = decoded(self.serializer, request.data)
        digest = digest_of(who.environment_id, self.out, request.data)
        cut = cut_of(body["page"], digest)
        known = known_of_search(body)
        ids, found = searched(who, known, self.out, cut.page if cut else None, moment_asked(request, who))
        shown, page = page_of(cut, ids, digest, found.held.offset)
        results = [self.result(body, "*" if text is None else text) for text in shown]
        return {"results": results} | ({"page": page} if body["page"] is not None else {}), found

    def least(self, request: Request) -> int:
        return least_of(request.data.get("page"))

    @abstractmethod
    def result(self, body: dict, text: str) -> dict[str, str]:
        """Return one result as JSON; of all ids at once, the text is `*`."""


class SearchSubjects(Search):
    serializer, out = SubjectSearch, "actor"

    def result(self, body: dict, text: str) -> dict[str, str]:
        return _entity_to_json(body["subject"], text)


class SearchResources(Search):
    serializer, out = ResourceSearch, "resource"

    def result(self, body: dict, text: str) -> dict[str, str]:
        return _entity_to_json(body["resource"], text)


class SearchActions(Search):
    serializer, out = ActionSearch, "action"

    def result(self, body: dict, text: str) -> dict[str, str]:
        return {"name": text}


def _entity_to_json(searched_for: Entity, text: str) -> dict[str, str]:
    return {"type": searched_for.type, "id": text}
