"""Why a question is answered as it is: the use case behind the endpoint, the command and the workbench.

The question has a value for each of its variables. A call that holds is proved (`search`); for a call that does not,
the failure of each rule is found (`failures`). Decision and explanation are made in one session, over the same facts.

Explaining may take three times as long as deciding, and some more. Then the explanation ends with what was found: it
says that it is not complete, and nothing of what was not looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from checks.asking.advice import advice
from checks.asking.askers import Asker
from checks.asking.question import Asked, Question, check_predicate, question_about
from checks.asking.snapshot import Snapshot, active_snapshot
from checks.explain.cases import Goal
from checks.explain.failures import failures_of, with_periods
from checks.explain.search import proof_of
from checks.explain.tree import Reason, shown_atom, tree_of
from facts.accept import ALL_USED, Unused
from policy.active import NOTHING_SEEN, Seen
from policy.moments import Moment
from policy.rules.program import Program
from policy.values import Value

TIMES = 3  # as long as the decision an explanation may take, the decision included,
MORE = 0.2  # and so many seconds of processor time more


@dataclass(frozen=True, slots=True)
class ExplainedGoal:
    """One goal with its proof if it holds, else with the failures of the rules that could have granted it.

    `note` says which words of the goal the policy does not have, or that no rule is about it.
    """

    text: str
    holds: bool
    proof: Reason | None = None
    failures: tuple[Reason, ...] = ()
    note: str = ""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return (self.proof,) if self.proof else self.failures

    @property
    def gap(self) -> str:
        return gap_of((self,))


@dataclass(frozen=True, slots=True)
class Explanation:
    version: int | None  # the policy version's number
    goals: tuple[ExplainedGoal, ...]
    unused: Unused = ALL_USED  # of the context
    revision: int = 0  # of the facts
    version_id: int | None = None  # the key of the same version
    seen: Seen = NOTHING_SEEN  # how far the environment was then
    valid_while: None = None  # an explanation is not kept for the next request

    @property
    def allowed(self) -> bool:
        return all(goal.holds for goal in self.goals)

    @property
    def gap(self) -> str:
        return gap_of(self.goals)


def gap_of(goals: Sequence[ExplainedGoal]) -> str:
    """Return a sentence on why the explanation of the goals is not complete; nothing if it is."""
    every = (each for goal in goals for reason in goal.reasons for _, each in reason.lines())
    notes = dict.fromkeys([each.note for each in every if each.kind == "unexplained"])
    return f"the explanation is not complete: {'; '.join(notes)}" if notes else ""


def explain(asker: Asker, question: Question, moment: Moment | None = None) -> Explanation:
    """Explain the answer by the active policy; as of a moment, by the policy of then."""
    with active_snapshot(asker, question.context, question.mentioned, moment) as session:
        goals = explain_calls(session, question)
        version_id = session.policy if isinstance(session.policy, int) else None
        return Explanation(session.cases.number, goals, session.unused, session.revision, version_id, session.seen)


def explain_calls(session: Snapshot, question: Question) -> tuple[ExplainedGoal, ...]:
    """Explain each call of a question that has a value for each variable."""
    values = {name: Value(asked.type, asked.one) for name, asked in question.variables.items()}
    goals = [Goal(predicate, tuple([values[name] for name in names])) for predicate, names in question.calls]
    return _explained(session, goals)


def explain_goal(session: Snapshot, goal: Goal) -> ExplainedGoal:
    (explained,) = _explained(session, [goal])
    return explained


def _explained(session: Snapshot, goals: Sequence[Goal]) -> tuple[ExplainedGoal, ...]:
    """Decide all goals, then explain each, within a time that depends on how long the decisions took."""
    began = session.spent
    decisions = [_decided(session, goal) for goal in goals]
    with session.within((TIMES - 1) * (session.spent - began) + MORE):
        found = [_with_reasons(session, goal, each) for goal, each in zip(goals, decisions)]
    return _with_periods(session, found)


def _with_periods(session: Snapshot, goals: Sequence[ExplainedGoal]) -> tuple[ExplainedGoal, ...]:
    """Return the goals with the times at which their facts were stored, looked up for all of them together."""
    known = iter(with_periods(session, [reason for goal in goals for reason in goal.reasons]))
    return tuple(
        [
            replace(goal, proof=next(known) if goal.proof else None, failures=tuple(islice(known, len(goal.failures))))
            for goal in goals
        ]
    )


def _decided(session: Snapshot, goal: Goal) -> ExplainedGoal:
    """Decide the goal; `note` says which words of it the policy does not have."""
    text, program = shown_atom(goal.predicate, goal.args), session.program
    unknown = "; ".join(advice(program, goal.predicate, [(arg.type, arg.id) for arg in goal.args]))
    if not all(program.knows(arg.type) for arg in goal.args):
        return ExplainedGoal(text, False, note=unknown)
    check_predicate(program, goal.predicate)
    holds = session.holds(question_of_goal(goal))
    return ExplainedGoal(text, holds, note="" if holds else unknown)


def _with_reasons(session: Snapshot, goal: Goal, decided: ExplainedGoal) -> ExplainedGoal:
    program = session.program
    if decided.holds:
        return replace(decided, proof=tree_of(program, proof_of(session, [goal]), goal, session.now))
    if not all(program.knows(arg.type) for arg in goal.args):
        return decided
    failures = failures_of(session, goal)
    return replace(decided, failures=failures, note=decided.note or ("" if failures else _no_rule(program, goal)))


def question_of_goal(goal: Goal) -> Question:
    return question_about(goal.predicate, [Asked(arg.type, (arg.id,)) for arg in goal.args])


def _no_rule(program: Program, goal: Goal) -> str:
    if program.accepts(goal.predicate, tuple([arg.type for arg in goal.args])):
        return "no rule grants this, and there is no such fact"
    return "no rule is about this"
