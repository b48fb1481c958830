"""Replay the decision log: run its checks again, as of their time or of now."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from checks import serializers, views
from checks.asking.ask import Trusted
from checks.asking.question import Asked, Question, allow
from checks.authzen import views as authzen
from checks.compare.differences import AskedTogether
from checks.decisions.log import LogLine, Summary, summary_of
from checks.engine.compile import AnswerRow
from checks.explain.cases import Goal
from checks.explain.explain import Explanation, explain, goals_of, question_of_goal
from checks.explain.tree import shown_atom
from facts.wire import fact_from_json
from policy.active import program_of_version
from policy.core.clock import text_of, timeline
from policy.core.journal import current_offset
from policy.endpoint import Endpoint, Request, decoded
from policy.errors import AuthzError
from policy.models import Environment, Revision
from policy.moments import Moment, as_of_from_text, moment_of
from policy.publishing import active_version
from policy.rules.program import Program

# ---- questions ----------------------------------------------------------------------------------------------------
# Reads a line of the log: the questions that it asked, and the goals that hold according to its answer.


class NoQuestion(AuthzError):
    """The endpoint returns SQL, so the decision is made elsewhere."""

    def __init__(self, endpoint: str):
        super().__init__(f"the result of `{endpoint}` depends on the caller's database")


def given_by(line: LogLine) -> AskedTogether:
    """Return the questions for the policy at that time; raise an `AuthzError` if the endpoint rejects the body."""
    return given_for(line, authzen.program_of_then(line) if authzen.is_of_authzen(line) else None)


def given_for(line: LogLine, program: Program | None) -> AskedTogether:
    """Return the questions for a program, which determines the properties of AuthZEN that count (None: none do)."""
    if authzen.is_of_authzen(line):
        return authzen.given_for(line, program)
    read = _READERS.get(line.endpoint)
    if read is None:
        raise NoQuestion(line.endpoint)
    return read(line.question)


def _one(question: Question) -> AskedTogether:
    return AskedTogether((question,), context=question.context)


def _authorize_resources(raw: object) -> AskedTogether:
    body = decoded(serializers.AuthorizeResourcesQuery, raw)
    resources = dict.fromkeys(body["resources"])
    context = body["context_facts"]
    asked = [allow(body["actor"], body["action"], Asked(each.type, (each.id,)), (), context) for each in resources]
    return AskedTogether(tuple(asked), context=context)


def _authorize_each(raw: object) -> AskedTogether:
    body = decoded(serializers.AuthorizeEachQuery, raw)
    context = body["context_facts"]
    asked = [allow(actor, action, resource, (), context) for actor, action, resource in body["checks"]]
    return AskedTogether(tuple(asked), context=context)


def _query(raw: object) -> AskedTogether:
    body = decoded(serializers.FactQuery, raw)
    return AskedTogether((), body["fact"], body["context_facts"])


def _bulk_actions(raw: object) -> AskedTogether:
    bodies = serializers.ACTIONS_QUERIES.decode(raw, "")
    context = bodies[0]["context_facts"] if bodies else ()
    return AskedTogether(
        tuple([views.actions_question(body)._replace(context=context) for body in bodies]), context=context
    )


_READERS: dict[str, Callable[[object], AskedTogether]] = {
    "authorize": lambda raw: _one(views.check_question(decoded(serializers.AuthorizeQuery, raw))),
    "actions": lambda raw: _one(views.actions_question(decoded(serializers.ActionsQuery, raw))),
    "list": lambda raw: _one(views.list_question(decoded(serializers.ListQuery, raw))),
    "authorize_resources": _authorize_resources,
    "authorize_each": _authorize_each,
    "evaluate_query": lambda raw: _one(views.query_asked(raw).question),
    "query": _query,
    "bulk_actions": _bulk_actions,
    "explain": lambda raw: _one(views.explained_question(raw)),
}


# ---- answers -------------------------------------------------------------------------------------------------------


def claims_of(line: LogLine, given: AskedTogether, answer: Summary) -> set[Goal]:
    """Return the goals that hold according to the answer, as far as the log keeps it."""
    if line.endpoint == "query":
        facts = [fact_from_json(each, "") for each in answer["results"] if all(arg["id"] for arg in each["args"])]
        return {Goal(fact.predicate, fact.args) for fact in facts}
    found = ((question, row) for question, rows in _rows(line, given, answer) for row in rows)
    return {goal for question, row in found for goal in goals_of(question, row)}


def _rows(line: LogLine, given: AskedTogether, answer: Summary) -> list[tuple[Question, list[AnswerRow]]]:
    questions = given.questions
    results: list[Any] = answer.get("results", [])
    if authzen.is_of_authzen(line):
        found = authzen.answers_of(line, answer)
        if questions[0].outs:
            return [(questions[0], [_row(str(text)) for text in found])]
        return [(question, [()]) for question, is_allowed in zip(questions, found) if is_allowed]
    match line.endpoint:
        case "authorize" | "explain":
            return [(questions[0], [()])] if answer["allowed"] else []
        case "actions" | "list":
            return [(questions[0], [_row(text) for text in results])]
        case "authorize_resources":
            allowed = {(each["type"], each["id"]) for each in results}
            return [(each, [()]) for each in questions if _resource(each) in allowed]
        case "authorize_each":
            return [(question, [()]) for question, is_allowed in zip(questions, results) if is_allowed]
        case "bulk_actions":
            return [(question, [_row(text) for text in texts]) for question, texts in zip(questions, results)]
        case "evaluate_query":
            (question,) = questions
            names = [question.called(name) for name in question.outs]
            return [(question, [tuple([each[name] for name in names]) for each in results])]
    raise NoQuestion(line.endpoint)


def _row(text: str) -> AnswerRow:
    return (None if text == "*" else text,)


def _resource(question: Question) -> tuple[str, str]:
    asked = question.variables["resource"]
    return asked.type, asked.one


# ---- replay -------------------------------------------------------------------------------------------------------
# Replays a line of the log: as of its revision, by the policy that was active then; or as of now.
#
# The line's body goes to its endpoint, like that of a request. A moment is a revision and a time. The time is that of
# the line, clamped to the lifetime of the revision: from its commit until that of the next one.

Endpoints = Mapping[str, Endpoint]


class NotAsked(Exception):
    """The line cannot be replayed, for the reason given."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A line, and its answer now, or why it is rejected."""

    line: LogLine
    answer: Summary | None
    refusal: str = ""

    @property
    def differs(self) -> bool:
        return self.answer != self.line.answer


def replayed(line: LogLine, endpoints: Endpoints, is_now: bool = False) -> Replayed:
    """Replay the line; raise `NotAsked` if the log or the database lacks what that needs."""
    endpoint: Any = endpoints.get(line.endpoint)
    if not isinstance(endpoint, views.Answering):
        raise NotAsked(f"endpoint `{line.endpoint}` is not a check and cannot be replayed")
    _check_can_be_asked(line, is_now)
    try:
        if is_now:
            return Replayed(line, _answer(line, endpoint, line.question)[0])
        return _if_nothing_changed(line, endpoint) if endpoint.is_of_now else _as_of_then(line, endpoint)
    except AuthzError as reason:
        return Replayed(line, None, reason.message)


def _check_can_be_asked(line: LogLine, is_now: bool) -> None:
    if line.context_facts_left_out:
        raise NotAsked("the log entry has no context facts")
    horizon = Environment.objects.filter(pk=line.environment).values_list("horizon", flat=True).first()
    if horizon is None:
        raise NotAsked(f"environment {line.environment} does not exist")
    if not is_now and line.revision is not None and line.revision < horizon:
        raise NotAsked(f"it is older than revision {horizon}, the oldest available")


def _as_of_then(line: LogLine, endpoint: Any) -> Replayed:
    """Replay as of the request's end and, if the answer differs from the log's, as of its start.

    The facts were read at some time in between, so the line is confirmed if either answer is the same. Nothing is
    replayed as of a time without a policy.
    """
    if line.policy_version is None:
        raise NotAsked("no policy was active then")
    found = Replayed(line, None)
    for at in (line.at, line.at - line.microseconds):
        answer, revision = _answer(line, endpoint, as_of(line.question, moment_text(line, at)))
        if line.revision is not None and revision != line.revision:
            raise NotAsked("not supported with `as_of`")
        found = Replayed(line, answer)
        if not found.differs:
            break
    return found


def _if_nothing_changed(line: LogLine, endpoint: Any) -> Replayed:
    """Replay a request for SQL, which is only generated for now; raise `NotAsked` if anything has changed since."""
    if line.revision is None or current_offset(line.environment) != line.revision:
        raise NotAsked("local SQL is not supported with `as_of`")
    answer, _ = _answer(line, endpoint, line.question)
    if current_offset(line.environment) != line.revision:
        raise NotAsked("local SQL is not supported with `as_of`")
    return Replayed(line, answer)


def _answer(line: LogLine, endpoint: Any, question: Any) -> tuple[Summary, int]:
    if isinstance(question, dict):  # what would allow a denial, which takes seconds to find, is not logged
        question = {name: member for name, member in question.items() if name != "would_allow"}
    try:
        text = orjson.dumps(question)
    except orjson.JSONEncodeError:
        raise NotAsked("its request is nested too deeply") from None
    headers = {"HTTP_X_OSOAPIVERSION": "0"} if line.is_published_client else {}
    request = Request("POST", headers, lambda: text, line.request_id, 0.0)
    body, found = endpoint.reply(request, Trusted(line.environment))
    return summary_of(orjson.loads(orjson.dumps(body))), found.revision


# ---- moments -------------------------------------------------------------------------------------------------------


def as_of(question: Any, moment: str | int) -> Any:
    """Return the body with the moment added, unless it has `as_of` itself, or continues a list by a token."""
    if isinstance(question, list):  # the first one determines it for all
        return [as_of(each, moment) for each in question[:1]] + question[1:]
    if not isinstance(question, dict) or question.get("as_of") is not None or question.get("page_token") is not None:
        return question
    page = question.get("page")  # of AuthZEN
    if isinstance(page, dict) and page.get("token"):
        return question
    return question | {"as_of": moment}


def _moment_of_line(line: LogLine) -> Moment | None:
    """Return the moment that the line was asked as of, with that moment's policy."""
    first = line.question[0] if isinstance(line.question, list) and line.question else line.question
    named = first if isinstance(first, dict) else {}
    when = named.get("as_of")
    when = moment_text(line, line.at) if when is None else when
    return moment_of(line.environment, as_of_from_text(str(when), "as_of"), line.policy_version, needs_policy=False)


def moment_text(line: LogLine, at: int) -> str | int:
    """Return the time nearest to `at` in the lifetime of the line's revision; its number if it has no such time."""
    if line.revision is None:
        return text_of(at)
    begun, ended = _lifetime(line.environment, line.revision)
    if begun is None or (ended is not None and ended <= begun):
        return line.revision
    return text_of(max(begun, at if ended is None else min(at, ended - 1)))


def _lifetime(environment_id: int, number: int) -> tuple[int | None, int | None]:
    """Return when the revision was committed (None: unknown), and when the next one was (None: it is the latest)."""
    if not Revision.objects.filter(environment=environment_id, number__gt=number).exists():
        return _begun(environment_id, number), None
    return _past_lifetime(environment_id, number)


@lru_cache(maxsize=10_000)
def _past_lifetime(environment_id: int, number: int) -> tuple[int | None, int | None]:
    later = Revision.objects.filter(environment=environment_id, number__gt=number).order_by("number")
    return _begun(environment_id, number), later.values_list("at", flat=True).first()


timeline.forgets(_past_lifetime.cache_clear)


def _begun(environment_id: int, number: int) -> int | None:
    return Revision.objects.filter(environment=environment_id, number=number).values_list("at", flat=True).first()


# ---- why -----------------------------------------------------------------------------------------------------------


def explained(found: Replayed, is_now: bool = False) -> Iterator[Explanation]:
    """Yield an explanation of each goal that holds by only one of the two answers, as far as the log keeps them."""
    line = found.line
    given = given_by(line)
    was, now = (claims_of(line, given, answer) if answer else set() for answer in (line.answer, found.answer))
    context = given_for(line, _program_of_now(line)).context if is_now else given.context
    differ = was ^ now
    if len(given.questions) == 1 and given.questions[0].outs:  # a list, of which the log may have only the beginning
        for answer, claims in ((line.answer, was), (found.answer, now)):
            if answer and claims and "digest" in answer:
                last = max(map(_ids, claims))
                differ = {goal for goal in differ if _ids(goal) <= last}
    for goal in sorted(differ, key=lambda goal: shown_atom(goal.predicate, goal.args)):
        question = question_of_goal(goal)._replace(context=context)
        yield explain(Trusted(line.environment), question, None if is_now else _moment_of_line(line))


def _ids(goal: Goal) -> list[str]:
    return [arg.id for arg in goal.args]


def _program_of_now(line: LogLine) -> Program | None:
    active = active_version(line.environment)
    return program_of_version(active.pk) if active else None
