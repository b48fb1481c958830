"""The plan of one question, and the plans that it reads, each planned once.

explore     the question's branches, and the states that they lead to
inlined     the same, with states written in place that need not stay
form_of     how they recurse
then the plan of that form; or, where a recursion turns out to need rounds of its own, once more from the start

    exits only                                            EXITS: nothing recurses
    exits only, each a look-up in all answers of a call   SET
    jumps to states                                       GOALS, each tested at the exits of its state
    the same, to follow one path                          PATH
    a branch that goes on from each answer of a state     ANSWERS to the goals
    a recursion that is worked out in rounds              ROUNDS
    one that takes two of its answers at once             `Twice`: that one in rounds, and the question planned again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from checks.engine.errors import Sprawling
from checks.engine.plan.choose import Chooser
from checks.engine.plan.draft import Draft, Enclosing, fixed_in
from checks.engine.plan.explore import Explored, explore, goals_plan
from checks.engine.plan.fixpoint import answering_plan
from checks.engine.plan.inline import inlined
from checks.engine.plan.open_values import candidates_of
from checks.engine.plan.plan import Candidates, Condition, Form, Plan, Twice
from checks.engine.plan.subqueries import Asked, Numbers, Subqueries
from checks.engine.plan.unfold import Unfolder, many_steps
from checks.engine.rules.clauses import Call, Literal, Neg, Var
from checks.engine.rules.ruleset import TABLED, RuleSet
from policy.rules.program import Signature

MOST_DEEP = 30  # levels of plans that read plans
MOST_INSIDE = 12  # plans below the first such level, in all; with more, what they share is tabled


@dataclass
class Planner:
    """Plans one root of a question.

    Where a plan gets too large, `Sprawling` is raised, and the question is planned again in another form; `is_bounded`
    says that there is another form left. With rules of `RuleSet.asking`, which is the last form, all that they table is
    worked out in rounds.
    """

    rules: RuleSet
    places: Callable[[Signature], tuple[str, ...]]  # where facts of a signature are
    is_bounded: bool = True
    with_values: bool = True  # see `Unfolder`
    sprawling: int = 0  # other roots of the question that took too many steps
    _unfolder: Unfolder = field(init=False)
    _apart: set[int] = field(init=False)  # recursions that take two answers at once
    _names: Iterator[int] = field(default_factory=count)  # of plans: n0, n1, …
    _depth: int = 0  # levels of plans that are being planned
    _inside: int = 0  # plans below the first level

    def __post_init__(self) -> None:
        numbers = Numbers()
        self._apart = {TABLED} if self.rules.question else set()
        subqueries = Subqueries(self.rules, numbers, self._asked_inside)
        chooser = Chooser(self.rules, self._apart)
        most = many_steps(self.sprawling) if self.is_bounded else None
        self._unfolder = Unfolder(
            self.rules, self.places, numbers, chooser, subqueries, most, self.with_values
        )

    # ---- what a question needs ----------------------------------------------------------------------------------

    def plan(self, literals: tuple[Literal, ...], outs: tuple[Var, ...]) -> Plan:
        """Return the plan of all branches that meet the literals."""
        return self._planned(Asked(Draft(literals, outs)))

    def tested(self, guard: Neg) -> Condition | bool:
        return self._unfolder.subqueries.tested(guard)

    def candidates(self, guards: Iterable[Neg], variable: Var) -> Candidates | None:
        """Return the ids that the guards can tell apart; None where a rule compares the variable with another one."""
        found = candidates_of(self.rules, guards, variable)
        return self._unfolder.candidates(found) if found.is_complete else None

    def new_source(self) -> int:
        return self._unfolder.numbers.source()

    # ---- plans ---------------------------------------------------------------------------------------------------

    def _asked_inside(self, asked: Asked) -> Plan:
        """Return a plan that another one reads. Raise `Sprawling` if there are too many, and another form is left."""
        if asked.as_set:
            return self._planned(asked)
        self._depth += 1
        self._inside += self._depth > 1 and asked.table is None
        are_many = self._inside > MOST_INSIDE or self._depth > MOST_DEEP
        if are_many and self.is_bounded and not self.rules.is_tabling:
            raise Sprawling
        plan = self._planned(asked)
        self._depth -= 1
        return plan

    def _planned(self, asked: Asked) -> Plan:
        name = f"n{next(self._names)}"
        enclosing = Enclosing(fixed_in(asked.start), rounds=asked.rounds, table=asked.table)
        while True:  # once more for each recursion that turns out to need rounds
            known, spent = frozenset(self._apart), (self._inside, self._depth)
            found = self._attempt(name, asked, enclosing)
            if isinstance(found, Plan):
                return found
            assert found.component not in known, "what is worked out in rounds takes any number of answers"
            self._apart.add(found.component)
            self._inside, self._depth = spent

    def _attempt(self, name: str, asked: Asked, enclosing: Enclosing) -> Plan | Twice:
        width, explored = len(asked.start.outs), self._explored(asked, enclosing)
        if form_of(asked, explored) in (Form.GOALS, Form.PATH):
            explored = inlined(explored, lambda states: self._explored(asked, replace(enclosing, in_place=states)))
        match form_of(asked, explored):
            case Twice() as twice:
                return twice
            case Form.ANSWERS | Form.ROUNDS:
                return answering_plan(self._unfolder, name, width, explored, enclosing)
            case form:
                return goals_plan(name, width, explored, enclosing.fixed, form)

    def _explored(self, asked: Asked, enclosing: Enclosing) -> Explored:
        given = asked.start
        start = Draft(given.pending, given.outs, given.sources, given.conditions, enclosing)
        if not asked.as_set:
            return explore(self._unfolder, [start], enclosing)
        (call,) = start.pending
        assert isinstance(call, Call), "what is looked up in a set is one call"
        return explore(self._unfolder, self._unfolder.subqueries.joined(replace(start, pending=()), call), enclosing)


def form_of(asked: Asked, explored: Explored) -> Form | Twice:
    """Return the form of the plan; or `Twice`, where a recursion must be worked out in rounds first."""
    if explored.twice is not None:
        return explored.twice
    if asked.rounds is not None:
        return Form.ROUNDS
    if explored.goes_on_from_answers:
        return Form.ANSWERS
    if asked.as_set:
        return Form.SET
    if asked.is_path:
        return Form.PATH
    return Form.GOALS if explored.arms else Form.EXITS
