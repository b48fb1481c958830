"""Reads lines of the decision log about AuthZEN: what they asked, and what was allowed or found."""

from __future__ import annotations

from typing import Any

from checks.authzen.asking import question_of
from checks.authzen.requests import (
    ActionSearch,
    Evaluation,
    Evaluations,
    RequestProperties,
    ResourceSearch,
    SubjectSearch,
    evaluated,
    facts_of,
    known_of,
)
from checks.compare.differences import AskedTogether
from checks.decisions.lines import LogLine
from checks.decisions.log import Summary
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.models import PolicyVersion
from policy.rules.program import Program
from policy.serializers import decoded

_SEARCHES = {
    "/access/v1/search/subject": (SubjectSearch, "actor"),
    "/access/v1/search/resource": (ResourceSearch, "resource"),
    "/access/v1/search/action": (ActionSearch, "action"),
}


class Apart(AuthzError):
    """Evaluations that were asked with different facts cannot be asked again together."""

    def __init__(self) -> None:
        super().__init__("its evaluations have different properties, or some are invalid")


def is_of_authzen(line: LogLine) -> bool:
    return line.endpoint.startswith("/access/")


def program_of_then(line: LogLine) -> Program | None:
    version = PolicyVersion.objects.filter(environment=line.environment, number=line.policy_version or 0).first()
    return None if version is None else program_of_version(version.pk)


def given_for(line: LogLine, program: Program | None) -> AskedTogether:
    """Return what was asked, with the properties that the program asks for."""
    if line.endpoint in _SEARCHES:
        serializer, out = _SEARCHES[line.endpoint]
        return _given(program, [known_of(decoded(serializer, line.question))], (out,))
    raw: Any = line.question
    many = decoded(Evaluations, raw)["evaluations"] if line.endpoint.endswith("s") else None
    return _given(program, evaluated(raw, many) if many else [known_of(decoded(Evaluation, raw))])


def _given(program: Program | None, asked: list, outs: tuple[str, ...] = ()) -> AskedTogether:
    if not all(isinstance(each, RequestProperties) for each in asked):
        raise Apart
    contexts = {frozenset(() if program is None else facts_of(each, program)) for each in asked}
    if len(contexts) != 1:
        raise Apart
    context = tuple(contexts.pop())
    return AskedTogether(tuple([question_of(each, context, outs) for each in asked]), context=context)


def answers_of(line: LogLine, answer: Summary) -> list[str | bool]:
    """Return for each question whether it is allowed; or the names or ids that a search found."""
    if "results" not in answer:
        return [answer["allowed"]]
    results: list[Any] = answer["results"]
    return [each if isinstance(each, bool) else each.get("id") or each["name"] for each in results]
