"""From requests to questions: decisions, one or many, and searches.

The policy decides which properties become facts. They are made by the policy that was active when last seen. The
statements confirm that it still is; if it is not, all is done once more by the next one. So it is if signatures are
given numbers meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple, TypeVar

from checks.asking import ask, by_rows, run
from checks.asking.ask import Answered
from checks.asking.askers import Asker, settled
from checks.asking.question import Check, Page, Question, allow, by_ids
from checks.asking.session import NEW_SIGNATURE, LiveSession
from checks.authzen.requests import Evaluated, RequestProperties, facts_of
from checks.errors import StatementTooLarge
from checks.explain.explain import Explanation, explain
from facts.wire import Fact
from policy.errors import MalformedRequest
from policy.moments import Moment

T = TypeVar("T")


Placed = tuple[int, RequestProperties]  # the place in a request, and what stands there
FactGroups = dict[frozenset[Fact], list[Placed]]  # by the facts that count for them
NO_GROUPS: list[tuple[frozenset[Fact], list[Placed]]] = [(frozenset(), [])]  # asked all the same, to confirm the key


class Decision(NamedTuple):
    """What is answered to one evaluation: whether it is allowed; if it is invalid, also what is wrong."""

    is_allowed: bool
    fault: MalformedRequest | None = None


def decided(asker: Asker, known: RequestProperties, moment: Moment | None) -> Answered:
    """Decide one evaluation. It is refused if a property that the policy asks for has a value that no fact can have."""
    return _answered(asker, known, (), None, moment)


def all_decided(asker: Asker, asked: Sequence[Evaluated], moment: Moment | None) -> tuple[list[Decision], Answered]:
    """Decide many evaluations as of one moment; those with the same facts are asked together."""

    def by(session: LiveSession) -> tuple[tuple[list[Decision], Answered], int | None]:
        decisions, groups = _by_facts(asked, session)
        if len(groups) > 1:
            _compile(groups, session, moment)
        found = []
        with run.snapshot() if len(groups) > 1 else nullcontext():
            for facts, group in groups.items() or NO_GROUPS:
                checks = [check_of(known) for _, known in group]
                allowed, answered = ask.allowed_each(asker, checks, tuple(facts), moment)
                found.append(answered)
                for (place, _), is_allowed in zip(group, allowed):
                    decisions[place] = Decision(is_allowed)
        together, version = _together(found)
        return (decisions, together), version

    return _settled(asker, moment, by)


def explained(asker: Asker, known: RequestProperties, moment: Moment | None) -> Explanation:
    """Decide one evaluation, and say why."""

    def by(session: LiveSession) -> tuple[Explanation, int | None]:
        found = explain(asker, question_of(known, facts_of(known, session.program)), moment)
        return found, found.version_id

    return _settled(asker, moment, by)


def searched(asker: Asker, known: RequestProperties, out: str, page: Page | None, moment: Moment | None) -> Answered:
    """Ask for the ids of the part `out` that make the question true."""
    return _answered(asker, known, (out,), page, moment)


def ids_of(found: Answered) -> list[str | None]:
    """Return the ids that a search found, in order; None, which stands for every id, is first."""
    return [text for (text,) in sorted(found.of_one, key=by_ids)]


def _answered(
    asker: Asker, known: RequestProperties, outs: tuple[str, ...], page: Page | None, moment: Moment | None
) -> Answered:
    if not known.has_properties:  # then what to ask does not depend on the policy
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
    """Compile the groups' statements beforehand: what is compiled within their snapshot is not remembered."""
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


def check_of(known: RequestProperties) -> Check:
    return known.subject.asked, known.action.asked, known.resource.asked


def _settled(asker: Asker, moment: Moment | None, by: Callable[[LiveSession], tuple[T, int | None]]) -> T:
    with run.question_time():
        return settled(asker, moment, by)


def _together(found: Sequence[Answered]) -> tuple[Answered, int | None]:
    """Return how several answers of one moment were found, as one, with the policy version of all.

    It may be kept only if each of them may. If they are by several versions, all is to be asked again.
    """
    last = found[-1]
    states = {each.valid_while for each in found}
    versions = {each.session.version for each in found}
    whole = last if len(states) == 1 else last._replace(valid_while=None)
    return whole, last.session.version if len(versions) == 1 else NEW_SIGNATURE
