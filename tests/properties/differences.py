"""Where the service and the oracle disagree on a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from policy.language import parse
from policy.language.source import Source
from policy.rules import compile_source
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, Fact, PastLimit, PolicyRefused
from tests.properties.questions import Meaning, Question, expected, meaning, predicates_in, values_in
from tests.properties.random_policies import Case, smaller
from tests.reference import World, model_of

NewKey = Callable[[], str]
PATIENCE = 15  # seconds of trying to make a case smaller


@dataclass(frozen=True)
class Outcome:
    """One question's answer beside the oracle's."""

    case: Case
    question: Question
    wanted: Meaning
    said: object
    meant: Meaning

    @property
    def is_right(self) -> bool:
        return self.meant == self.wanted

    def __str__(self) -> str:
        facts = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.facts]
        context = [f"  with {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.context]
        asked = f"{self.question.ask}{' with the context facts' if self.question.with_context else ''}"
        result = [f"asked: {asked}", f"answer: {self.said}", f"wanted: {_shown(self.wanted)}"]
        return "\n".join([self.case.policy, *facts, *context, *result])


def _shown(wanted: Meaning) -> str:
    return str(sorted(wanted)) if isinstance(wanted, frozenset) else "a refusal: all but some"


def fitted(case: Case) -> Case:
    """Without the facts and the questions that the policy has no use for: the service would refuse them."""
    program = compile_source(Source(case.policy))

    def useful(facts: Iterable[Fact]) -> tuple[Fact, ...]:
        return tuple(fact for fact in facts if program.accepts(fact[0], tuple(value.type for value in fact[1])))

    known = program.predicates | {"allow", "has_permission", "has_role", "has_relation"}
    questions = tuple(question for question in case.questions if predicates_in(question.ask) <= known)
    return replace(case, facts=useful(case.facts), context=useful(case.context), questions=questions)


def outcomes(case: Case, new_key: NewKey) -> list[Outcome]:
    """Every question of the case, asked and answered. PolicyRefused where the service does not take the policy.

    The service is sent all context facts, and has to ignore those that the policy has no use for.
    """
    caller = Caller(new_key())
    ask_adapter.publish(caller, case.policy)
    useful = fitted(case)
    case = replace(useful, context=case.context)
    ask_adapter.store(caller, case.facts)
    found = []
    for with_context in (False, True):
        sent, context = (case.context, useful.context) if with_context else ((), ())
        questions = [question for question in case.questions if question.with_context == with_context]
        found += _answered(replace(case, questions=tuple(questions)), replace(caller, context=sent), context)
    return found


def _answered(case: Case, caller: Caller, context: tuple[Fact, ...]) -> list[Outcome]:
    policy = parse(Source(case.policy))
    mentioned = [value for question in case.questions for value in values_in(question.ask)]
    facts = [*case.facts, *context]
    world = World.of(policy, facts, mentioned, int(time.time()))
    model = model_of(policy, facts, world)
    found = []
    for question in case.questions:
        try:
            said = ask_adapter.ask(caller, question.ask)
        except PastLimit:
            continue
        wanted = expected(question.ask, model, world)
        found.append(Outcome(case, question, wanted, said, meaning(question.ask, said, world)))
    return found


def smallest(outcome: Outcome, new_key: NewKey) -> Outcome:
    """The same disagreement with as little policy and as few facts as possible."""
    best = replace(outcome, case=replace(outcome.case, questions=(outcome.question,)))
    until = time.monotonic() + PATIENCE
    while less := next((found for case in smaller(best.case) if (found := _still_wrong(case, new_key, until))), None):
        best = less
    return best


def _still_wrong(case: Case, new_key: NewKey, until: float) -> Outcome | None:
    if time.monotonic() > until:
        return None
    try:
        return next((outcome for outcome in outcomes(case, new_key) if not outcome.is_right), None)
    except (PolicyRefused, AssertionError):
        return None
