"""Asks a line of the log again: as of its revision, by the policy that was active then; or about now.

The line's body goes through its endpoint, like that of a request. A moment is a revision and a time. The time is that
of the line, moved, if it has to be, into the lifetime of the revision: from its commit until that of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from checks.asking.askers import Trusted
from checks.decisions.answers import Summary, summary_of
from checks.decisions.lines import Line
from checks.decisions.questions import claims_of, given_by, given_for
from checks.explain.explain import Explanation, explain, question_of_goal
from checks.explain.tree import shown_atom
from checks.views import Asking
from policy.active import program_of_version
from policy.clock import text_of
from policy.endpoint import Endpoint, Request
from policy.errors import AuthzError
from policy.models import Environment, Revision
from policy.moments import Moment, as_of_from_text, moment_of
from policy.offsets import current_offset
from policy.publishing import active_version
from policy.rules.program import Program

Endpoints = Mapping[str, Endpoint]


class NotAsked(Exception):
    """The line cannot be asked again, for the reason given."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A line, and what is answered to it now; or why it is refused."""

    line: Line
    answer: Summary | None
    refusal: str = ""

    @property
    def differs(self) -> bool:
        return self.answer != self.line.answer


def replayed(line: Line, endpoints: Endpoints, is_now: bool = False) -> Replayed:
    """Ask the line again; raise `NotAsked` if the log or the database lacks what that needs."""
    endpoint: Any = endpoints.get(line.endpoint)
    if not hasattr(endpoint, "reply"):
        raise NotAsked(f"there is no endpoint `{line.endpoint}` that is asked")
    check_can_be_asked(line, is_now)
    try:
        if is_now:
            return Replayed(line, _answer(line, endpoint, line.question)[0])
        return _as_of_then(line, endpoint) if isinstance(endpoint, Asking) else _if_nothing_changed(line, endpoint)
    except AuthzError as reason:
        return Replayed(line, None, reason.message)


def check_can_be_asked(line: Line, is_now: bool) -> None:
    if line.context_facts_left_out:
        raise NotAsked("its context facts were left out of the log")
    horizon = Environment.objects.filter(pk=line.environment).values_list("horizon", flat=True).first()
    if horizon is None:
        raise NotAsked(f"there is no environment {line.environment}")
    if not is_now and line.revision is not None and line.revision < horizon:
        raise NotAsked(f"it is older than the horizon, which is revision {horizon}")


def _as_of_then(line: Line, endpoint: Any) -> Replayed:
    """Ask as of the request's end, and if the answer differs from the log's, as of its beginning.

    The facts were read at some time in between, so the line is confirmed if either answer is the same. Nothing is asked
    as of a time without a policy.
    """
    if line.policy_version is None:
        raise NotAsked("there was no policy then")
    found = Replayed(line, None)
    for at in (line.at, line.at - line.microseconds):
        answer, revision = _answer(line, endpoint, as_of(line.question, moment_text(line, at)))
        if line.revision is not None and revision != line.revision:
            raise NotAsked("such a question is not asked as of an earlier revision")
        found = Replayed(line, answer)
        if not found.differs:
            break
    return found


def _if_nothing_changed(line: Line, endpoint: Any) -> Replayed:
    """Ask again for SQL, which is made for now only; raise `NotAsked` if anything has changed since."""
    if line.revision is None or current_offset(line.environment) != line.revision:
        raise NotAsked("SQL is not made as of an earlier revision")
    answer, _ = _answer(line, endpoint, line.question)
    if current_offset(line.environment) != line.revision:
        raise NotAsked("SQL is not made as of an earlier revision")
    return Replayed(line, answer)


def _answer(line: Line, endpoint: Any, question: object) -> tuple[Summary, int]:
    try:
        text = orjson.dumps(question)
    except orjson.JSONEncodeError:
        raise NotAsked("its question nests too deep") from None
    headers = {"HTTP_X_OSOAPIVERSION": "0"} if line.is_published_client else {}
    request = Request("POST", headers, lambda: text, orjson.loads, line.request_id, 0.0)
    body, found = endpoint.reply(request, Trusted(line.environment))
    return summary_of(orjson.loads(orjson.dumps(body))), found.revision


# ---- moments -------------------------------------------------------------------------------------------------------


def as_of(question: Any, moment: str | int) -> Any:
    """Return the body with the moment in it, unless it names one itself, or continues a list by a token."""
    if isinstance(question, list):  # the first one names it for all
        return [as_of(each, moment) for each in question[:1]] + question[1:]
    if not isinstance(question, dict) or question.get("as_of") is not None or question.get("page_token") is not None:
        return question
    page = question.get("page")  # of AuthZEN
    if isinstance(page, dict) and page.get("token"):
        return question
    return question | {"as_of": moment}


def moment_of_line(line: Line) -> Moment | None:
    """Return the moment that the line was asked of, by the policy of then."""
    first = line.question[0] if isinstance(line.question, list) and line.question else line.question
    named = first if isinstance(first, dict) else {}
    when = named.get("as_of")
    when = moment_text(line, line.at) if when is None else when
    return moment_of(line.environment, as_of_from_text(str(when), "as_of"), line.policy_version, needs_policy=False)


def moment_text(line: Line, at: int) -> str | int:
    """Return the time nearest to `at` in the lifetime of the line's revision; its number if it has no such time."""
    if line.revision is None:
        return text_of(at)
    begun, ended = _lifetime(line.environment, line.revision)
    if begun is None or (ended is not None and ended <= begun):
        return line.revision
    return text_of(max(begun, at if ended is None else min(at, ended - 1)))


def _lifetime(environment_id: int, number: int) -> tuple[int | None, int | None]:
    """Return when the revision was committed (None: not known), and when the next one was (None: there is none yet)."""
    if _is_latest(environment_id, number):
        return _begun(environment_id, number), None
    return _past_lifetime(environment_id, number)


def _is_latest(environment_id: int, number: int) -> bool:
    return not Revision.objects.filter(environment=environment_id, number__gt=number).exists()


@lru_cache(maxsize=10_000)
def _past_lifetime(environment_id: int, number: int) -> tuple[int | None, int | None]:
    later = Revision.objects.filter(environment=environment_id, number__gt=number).order_by("number")
    return _begun(environment_id, number), later.values_list("at", flat=True).first()


def _begun(environment_id: int, number: int) -> int | None:
    return Revision.objects.filter(environment=environment_id, number=number).values_list("at", flat=True).first()


# ---- why -----------------------------------------------------------------------------------------------------------


def explained(found: Replayed, is_now: bool = False) -> Iterator[Explanation]:
    """Yield an explanation of each goal that holds by only one of the two answers, as far as the log keeps them."""
    line = found.line
    given = given_by(line)
    was, now = (claims_of(line, given, answer) if answer else set() for answer in (line.answer, found.answer))
    context = given_for(line, _program_of_now(line)).context if is_now else given.context
    for goal in sorted(was ^ now, key=lambda goal: shown_atom(goal.predicate, goal.args)):
        question = question_of_goal(goal)._replace(context=context)
        yield explain(Trusted(line.environment), question, None if is_now else moment_of_line(line))


def _program_of_now(line: Line) -> Program | None:
    active = active_version(line.environment)
    return program_of_version(active.pk) if active else None
