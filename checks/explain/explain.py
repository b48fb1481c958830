"""Why a question is answered as it is: the use case behind the endpoint, the command and the workbench.

The question has a value for each of its variables. What holds is proved (`proof`), what does not is looked into
(`obstacles`); all of it in one snapshot, with the decision that it explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from checks.asking.advice import advice
from checks.asking.askers import Asker
from checks.asking.question import Asked, Question, check_predicate
from checks.asking.snapshot import Snapshot, active_snapshot
from checks.explain.obstacles import obstacles_to
from checks.explain.proof import Goal, proof_of
from checks.explain.proof_tree import tree_of
from checks.explain.tree import Node, shown_atom
from facts.unused import ALL_USED, Unused
from policy.rules.program import Program
from policy.values import Value


@dataclass(frozen=True, slots=True)
class Explained:
    """One goal: its proof if it holds, else its obstacles.

    `note` says what it names that the policy has no word for, or that no rule is about it.
    """

    text: str
    holds: bool
    proof: Node | None = None
    obstacles: tuple[Node, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    version: int | None  # the policy version's number
    goals: tuple[Explained, ...]
    unused: Unused = ALL_USED  # of the context

    @property
    def allowed(self) -> bool:
        return all(goal.holds for goal in self.goals)


def explain(asker: Asker, question: Question) -> Explanation:
    """By the active policy."""
    with active_snapshot(asker, question.context, question.mentioned) as found:
        return Explanation(found.book.number, explained(found, question), found.unused)


def explained(found: Snapshot, question: Question) -> tuple[Explained, ...]:
    """Each call of a question without open variables."""
    values = {name: Value(asked.type, asked.one) for name, asked in question.variables.items()}
    goals = (Goal(predicate, tuple([values[name] for name in names])) for predicate, names in question.calls)
    return tuple([explained_goal(found, goal) for goal in goals])


def explained_goal(found: Snapshot, goal: Goal) -> Explained:
    text = shown_atom(goal.predicate, goal.args)
    missing = "; ".join(advice(found.program, goal.predicate, [(arg.type, arg.id) for arg in goal.args]))
    if not all(found.program.knows(arg.type) for arg in goal.args):
        return Explained(text, False, note=missing)
    check_predicate(found.program, goal.predicate)
    if found.holds(question_of(goal)):
        steps = proof_of(found, [goal])
        return Explained(text, True, tree_of(found.program, steps, goal, found.now))
    obstacles = obstacles_to(found, goal)
    return Explained(text, False, None, obstacles, missing or ("" if obstacles else _silence(found.program, goal)))


def question_of(goal: Goal) -> Question:
    names = tuple([f"argument{index}" for index in range(len(goal.args))])
    variables = {name: Asked(arg.type, (arg.id,)) for name, arg in zip(names, goal.args)}
    return Question(((goal.predicate, names),), variables)


def _silence(program: Program, goal: Goal) -> str:
    if program.accepts(goal.predicate, tuple([arg.type for arg in goal.args])):
        return "no rule grants this, and there is no such fact"
    return "no rule is about this"
