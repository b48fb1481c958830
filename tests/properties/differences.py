"""Where the service and the oracle disagree on a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from policy.language import parse
from policy.language.source import Source
from policy.rules import compile_source
from tests.checks.proofs import Truth, clauses_by_line, faults_of
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, Fact, PastLimit, PolicyRefused
from tests.properties.questions import (
    Ask,
    Explain,
    Meaning,
    Question,
    Refused,
    expected,
    is_given,
    meaning,
    predicates_in,
    values_in,
)
from tests.properties.random_policies import RESTRICTED, Case, smaller
from tests.reference import World, model_of

NewKey = Callable[[], str]
Asking = Callable[[Caller, Ask], Any]
MODEST = (
    "cannot list the values of",
    "any other value that a rule compares",
    "cannot list the results: they are every value with itself",
    "cannot list the results: they are all values except some",
    "got all values except some",  # of a test in a policy
)
PATIENCE = 15  # seconds of trying to make a case smaller


@dataclass(frozen=True)
class Outcome:
    """One question's answer beside the oracle's."""

    case: Case
    question: Question
    wanted: Meaning
    said: object
    meant: Meaning
    faults: tuple[str, ...] = ()  # of a proof

    @property
    def is_right(self) -> bool:
        return (self.meant == self.wanted or self.is_modest) and not self.faults

    @property
    def is_modest(self) -> bool:
        """Refused by what one rule says, though another one grants it all: no list, and no wrong answer.

        A question about given values is never refused, nor a list of what facts bind in every rule.
        """
        if not isinstance(self.said, Refused) or isinstance(self.wanted, Refused):
            return False
        if is_given(self.question.ask) or RESTRICTED in self.case.features:
            return False
        is_compared = any(words in self.said.message for words in MODEST)
        return is_compared and self.said.status == 400

    def __str__(self) -> str:
        facts = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.facts]
        context = [f"  with {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.context]
        asked = f"{self.question.ask}{' with the context facts' if self.question.with_context else ''}"
        result = [f"asked: {asked}", f"answer: {self.said}", f"wanted: {_shown(self.wanted)}", *self.faults]
        return "\n".join([self.case.policy, *facts, *context, *result])


def _shown(wanted: Meaning) -> str:
    return str(sorted(wanted)) if isinstance(wanted, frozenset) else "a refusal: all values except some"


def fitted(case: Case) -> Case:
    """Without the facts and the questions that the policy has no use for: the service would refuse them."""
    program = compile_source(Source(case.policy))

    def useful(facts: Iterable[Fact]) -> tuple[Fact, ...]:
        return tuple(fact for fact in facts if program.accepts(fact[0], tuple(value.type for value in fact[1])))

    known = program.predicates | {"allow", "has_permission", "has_role", "has_relation"}
    questions = tuple(question for question in case.questions if predicates_in(question.ask) <= known)
    return replace(case, facts=useful(case.facts), context=useful(case.context), questions=questions)


def outcomes(case: Case, new_key: NewKey, asking: Asking = ask_adapter.ask) -> list[Outcome]:
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
        found += _answered(replace(case, questions=tuple(questions)), replace(caller, context=sent), context, asking)
    return found


def _answered(case: Case, caller: Caller, context: tuple[Fact, ...], asking: Asking) -> list[Outcome]:
    if not case.questions:
        return []
    policy = parse(Source(case.policy))
    mentioned = [value for question in case.questions for value in values_in(question.ask)]
    facts = [*case.facts, *context]
    world = World.of(policy, facts, mentioned, int(time.time()))
    model = model_of(policy, facts, world)
    by_line = clauses_by_line(policy, case.policy)
    known = Truth(world, model, frozenset(case.facts), frozenset(context), by_line)
    found = []
    for question in case.questions:
        try:
            said = asking(caller, question.ask)
        except PastLimit:
            continue
        found.append(_outcome(case, question, said, known))
    return found


def _outcome(case: Case, question: Question, said: object, known: Truth) -> Outcome:
    ask, faults = question.ask, []
    wanted, meant = expected(ask, known.model, known.world), meaning(ask, said, known.world)
    if isinstance(ask, Explain) and meant == wanted:
        faults = faults_of(said, (ask.predicate, ask.row), known)
    return Outcome(case, question, wanted, said, meant, tuple(faults))


def smallest(
    outcome: Outcome, new_key: NewKey, asking: Asking = ask_adapter.ask, patience: float = PATIENCE
) -> Outcome:
    """The same disagreement with as little policy and as few facts as possible."""
    best = replace(outcome, case=replace(outcome.case, questions=(outcome.question,)))
    until = time.monotonic() + patience
    while less := next(_less(best, new_key, asking, until), None):
        best = less
    return best


def _less(best: Outcome, new_key: NewKey, asking: Asking, until: float) -> Iterator[Outcome]:
    for case in smaller(best.case):
        if time.monotonic() > until:
            return
        with suppress(PolicyRefused, AssertionError):
            yield from (outcome for outcome in outcomes(case, new_key, asking) if not outcome.is_right)
