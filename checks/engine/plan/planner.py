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
    a recursion that is evaluated in rounds               ROUNDS
    a nonlinear one                                       `NonlinearRecursion`: planned again, with that one in rounds
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count

from checks.engine.errors import Sprawling
from checks.engine.plan.choose import Chooser
from checks.engine.plan.draft import Draft, Enclosing, fixed_in
from checks.engine.plan.explore import Explored, explore, goals_plan
from checks.engine.plan.fixpoint import answering_plan
from checks.engine.plan.inline import inlined
from checks.engine.plan.open_values import candidates_of, domains_of
from checks.engine.plan.plan import Candidates, Condition, Form, NonlinearRecursion, Plan
from checks.engine.plan.subqueries import Numbers, PlanRequest, Subqueries
from checks.engine.plan.unfold import Grounding, Unfolder, many_steps
from checks.engine.rules.clauses import Call, Literal, Neg, Var
from checks.engine.rules.ruleset import TABLED, RuleSet
from policy.rules.program import Signature
from policy.values import STRING

MOST_DEEP = 30  # levels of plans that read plans
MOST_INSIDE = 12  # plans below the first such level, in all; with more, what they share is tabled


@dataclass
class Planner:
    """Plans one root of a question.

    Where a plan gets too large, `Sprawling` is raised, and the question is planned again in another form;
    `has_other_form` says that there is another form left. With rules of `RuleSet.asking`, which is the last form, all
    that they table is evaluated in rounds.
    """

    rules: RuleSet
    stores: Callable[[Signature], tuple[str, ...]]  # of a signature's facts: stored, inline, …
    has_other_form: bool = True
    with_values: bool = True  # see `Unfolder`
    sprawling: int = 0  # other roots of the question that took too many steps
    is_grounded: bool = False  # see `Grounding`
    _unfolder: Unfolder = field(init=False)
    _nonlinear: set[int] = field(init=False)  # recursions that need rounds
    _names: Iterator[int] = field(default_factory=count)  # of plans: n0, n1, …
    _depth: int = 0  # levels of plans that are being planned
    _inside: int = 0  # plans below the first level

    def __post_init__(self) -> None:
        numbers = Numbers()
        self._nonlinear = {TABLED} if self.rules.question else set()
        subqueries = Subqueries(self.rules, numbers, self._planned_inside, by_set=not self.is_grounded)
        chooser = Chooser(self.rules, self._nonlinear)
        most = many_steps(self.sprawling) if self.has_other_form else None
        self._unfolder = Unfolder(self.rules, self.stores, numbers, chooser, subqueries, most, self.with_values)

    # ---- what a question needs ----------------------------------------------------------------------------------

    def plan(self, literals: tuple[Literal, ...], outs: tuple[Var, ...]) -> Plan:
        """Return the plan of all branches that meet the literals."""
        if self.is_grounded:
            domains = cache(lambda: domains_of(self.rules, literals))
            self._unfolder.grounding = Grounding(domains, is_list=not are_names(literals, outs))
        return self._planned(PlanRequest(Draft(literals, outs)))

    def tested(self, guard: Neg) -> Condition | bool:
        return self._unfolder.subqueries.tested(guard)

    def candidates(self, guards: Iterable[Neg], variable: Var) -> Candidates | None:
        """Return the ids that the guards can tell apart; None where a rule compares the variable with another one."""
        found = candidates_of(self.rules, guards, variable)
        return self._unfolder.candidates(found) if found.is_complete else None

    def new_source(self) -> int:
        return self._unfolder.numbers.source()

    # ---- plans ---------------------------------------------------------------------------------------------------

    def _planned_inside(self, request: PlanRequest) -> Plan:
        """Return a plan that another one reads. Raise `Sprawling` if there are too many, and another form is left."""
        if request.as_set:
            return self._planned(request)
        self._depth += 1
        self._inside += self._depth > 1 and request.table is None
        are_many = self._inside > MOST_INSIDE or self._depth > MOST_DEEP
        if are_many and self.has_other_form and not self.rules.is_tabling:
            raise Sprawling
        try:
            return self._planned(request)
        finally:
            self._depth -= 1

    def _planned(self, request: PlanRequest) -> Plan:
        name = f"n{next(self._names)}"
        enclosing = Enclosing(fixed_in(request.start), rounds=request.rounds, table=request.table)
        while True:  # once more for each recursion that turns out to need rounds
            known, spent = frozenset(self._nonlinear), (self._inside, self._depth)
            found = self._attempt(name, request, enclosing)
            if isinstance(found, Plan):
                return found
            assert found.component not in known, "what is evaluated in rounds joins any number of answers"
            self._nonlinear.add(found.component)
            self._inside, self._depth = spent

    def _attempt(self, name: str, request: PlanRequest, enclosing: Enclosing) -> Plan | NonlinearRecursion:
        width, explored = len(request.start.outs), self._explored(request, enclosing)
        if form_of(request, explored) in (Form.GOALS, Form.PATH):
            explored = inlined(explored, lambda states: self._explored(request, replace(enclosing, in_place=states)))
        match form_of(request, explored):
            case NonlinearRecursion() as nonlinear:
                return nonlinear
            case Form.ANSWERS | Form.ROUNDS:
                return answering_plan(self._unfolder, name, width, explored, enclosing)
            case form:
                return goals_plan(name, width, explored, enclosing.fixed, form)

    def _explored(self, request: PlanRequest, enclosing: Enclosing) -> Explored:
        given = request.start
        start = Draft(given.pending, given.outs, given.sources, given.conditions, enclosing)
        if not request.as_set:
            return explore(self._unfolder, [start], enclosing)
        (call,) = start.pending
        assert isinstance(call, Call), "what is looked up in a set is one call"
        return explore(self._unfolder, self._unfolder.subqueries.joined(replace(start, pending=()), call), enclosing)


def are_names(literals: Iterable[Literal], outs: Iterable[Var]) -> bool:
    """Say whether all answer columns are Strings, such as the action of `actions`."""
    calls = [each for each in literals if isinstance(each, Call)]
    kinds = {arg: kind for call in calls for arg, kind in zip(call.args, call.types)}
    return all(kinds.get(out) == STRING for out in outs)


def form_of(request: PlanRequest, explored: Explored) -> Form | NonlinearRecursion:
    """Return the form of the plan; or the `NonlinearRecursion` that must be evaluated in rounds first."""
    if explored.nonlinear is not None:
        return explored.nonlinear
    if request.rounds is not None:
        return Form.ROUNDS
    if explored.goes_on_from_answers:
        return Form.ANSWERS
    if request.as_set:
        return Form.SET
    if request.is_path:
        return Form.PATH
    return Form.GOALS if explored.arms else Form.EXITS
