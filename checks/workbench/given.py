"""Questions that a user gives, and where the answers of two policies to them differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from checks.asking.fact_patterns import questions_of
from checks.asking.question import Question, by_ids, is_known
from checks.asking.snapshot import Snapshot
from checks.engine.answers import Row
from checks.explain.cases import ANY, Goal
from checks.explain.explain import question_of_goal
from checks.explain.tree import shown_atom
from checks.workbench.differences import Tally
from facts.wire import Fact, FactPattern
from policy.values import Value

MOST_SHOWN = 20  # answers of one question that differ, in each direction
MOST_NAMED = 3  # questions of those that were asked together


@dataclass(frozen=True)
class Given:
    """Questions that were asked together, or a pattern of facts, of which each policy makes its own questions."""

    questions: tuple[Question, ...] = ()
    pattern: FactPattern | None = None
    context: Sequence[Fact] = ()

    @classmethod
    def of_goal(cls, goal: Goal) -> Given:
        return cls((question_of_goal(goal),))

    def of(self, session: Snapshot) -> Sequence[Question]:
        """Return the questions for the session, without those about predicates that its policy does not have.

        Such a predicate holds for nothing.
        """
        questions = self.questions
        if self.pattern is not None and is_known(session.program, self.pattern.predicate):
            any_session: Any = session  # of which `questions_of` uses only the program and the environment
            questions = tuple(questions_of(any_session, self.pattern, self.context))
        return [each for each in questions if all(is_known(session.program, name) for name, _ in each.calls)]

    def __str__(self) -> str:
        if self.pattern is not None:
            args = [None if arg.type is None else Value(arg.type, arg.id or ANY) for arg in self.pattern.args]
            return shown_atom(self.pattern.predicate, tuple(args))
        texts = [shown_question(question) for question in self.questions[:MOST_NAMED]]
        more = len(self.questions) - len(texts)
        return "; ".join([*texts, *([f"and {more:,} more"] if more else [])])

    @property
    def types(self) -> set[str]:
        """Return the types that the questions, the pattern and the context mention."""
        named = {arg.type for arg in self.pattern.args if arg.type} if self.pattern else set()
        facts = {arg.type for fact in self.context for arg in fact.args}
        return named.union(facts, *(question.types for question in self.questions))


class GivenToBoth(NamedTuple):
    """What each of two policies is asked: the same, but a policy says which properties of AuthZEN are context facts."""

    before: Given
    after: Given

    @property
    def contexts(self) -> tuple[Sequence[Fact], Sequence[Fact]]:
        return self.before.context, self.after.context


def differing(sides: tuple[Snapshot, Snapshot], given: Given) -> list[tuple[Goal, bool]]:
    """Return goals that hold on one side only, each with whether that is the new one; of many, only some."""
    found: dict[tuple, tuple[Question, tuple[set[Row], set[Row]]]] = {}
    for is_new, session in enumerate(sides):
        for question in given.of(session):
            rows = found.setdefault(_key(question), (question, (set(), set())))[1]
            rows[is_new].update(session.answers(question))
    differ = []
    for question, rows in found.values():
        tally = Tally(MOST_SHOWN)
        tally.count(*rows)
        for examples, is_new in zip(tally.examples, (False, True)):
            for row in sorted(examples, key=by_ids):
                goals = goals_of(question, row)
                differ += [(goal, is_new) for goal in goals if len(goals) == 1 or _differs(sides, goal)]
    return differ


def _differs(sides: tuple[Snapshot, Snapshot], goal: Goal) -> bool:
    before, after = (is_known(each.program, goal.predicate) and each.holds(question_of_goal(goal)) for each in sides)
    return before != after


def _key(question: Question) -> tuple:
    """Return what tells questions apart; the context is the same for all."""
    return question.calls, tuple(question.variables.items()), question.outs


def shown_question(question: Question) -> str:
    """Return the question as people write it: `allow(User:ann, "read", Repo:_)`."""
    rows: Row = tuple([None] * len(question.outs))
    return " and ".join(shown_atom(goal.predicate, goal.args) for goal in goals_of(question, rows))


def goals_of(question: Question, row: Row) -> list[Goal]:
    """Return what a row of the answer says that holds: a goal for each call."""
    texts = {name: asked.ids[0] if asked.ids else None for name, asked in question.variables.items()}
    texts |= dict(zip(question.outs, row))
    values = {name: Value(asked.type, texts[name] or ANY) for name, asked in question.variables.items()}
    return [Goal(predicate, tuple([values[name] for name in names])) for predicate, names in question.calls]
