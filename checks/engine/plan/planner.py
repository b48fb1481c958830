"""One question's plan, and all that it reads, each planned once.

A plan has one of four forms, by what exploring its branches shows:

    exits only      nothing recurses
    goals           a recursion reaches goals, each tested at its exits
    answers         a rule goes on from an answer (`"read" if "read" on "parent"` listed downwards)
    rounds          a rule takes two answers of its own recursion at once: no recursive statement may
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from checks.engine.errors import Sprawling
from checks.engine.plan.choose import Chooser
from checks.engine.plan.draft import Draft, Enclosing, fixed_in
from checks.engine.plan.explore import Explored, explore, goals_of
from checks.engine.plan.fixpoint import answering_plan
from checks.engine.plan.inline import in_place
from checks.engine.plan.open_values import Found, candidates_of
from checks.engine.plan.plan import Candidates, Condition, Exit, Jump, Plan, Twice
from checks.engine.plan.subqueries import Asked, Numbers, Subqueries
from checks.engine.plan.unfold import Unfolder
from checks.engine.rules.clauses import Call, Literal, Neg, Operand, Var
from checks.engine.rules.ruleset import TABLED, RuleSet
from policy.rules.program import Signature

MOST_DEEP = 18  # more than so many tables, each worked out from the next
MOST_NESTED = 12  # checks inside of checks, before what they share is tabled


@dataclass
class Planner:
    """Plans one root of a question.

    A question is planned anew, in another form, where its plan gets too large: `is_bounded` says that there is such a
    form left, so that `Sprawling` may be raised. The last form works out in rounds what the rules table.
    """

    rules: RuleSet
    places: Callable[[Signature], tuple[str, ...]]  # where facts of a signature are
    tables_in_rounds: bool = False  # the patterns that the rules table (`RuleSet.tabled`)
    is_bounded: bool = True
    _unfolder: Unfolder = field(init=False)
    _apart: set[int] = field(init=False)  # recursions that take two answers at once
    _names: Iterator[int] = field(default_factory=count)  # of plans: a plan is read by them
    _depth: int = 0
    _nested: int = 0

    def __post_init__(self) -> None:
        numbers = Numbers()
        self._apart = {TABLED} if self.tables_in_rounds else set()
        subqueries = Subqueries(self.rules, numbers, self._asked_inside)
        self._unfolder = Unfolder(self.rules, self.places, numbers, Chooser(self.rules, self._apart), subqueries)

    # ---- what a question needs ----------------------------------------------------------------------------------

    def plan(self, literals: tuple[Literal, ...], outs: tuple[Var, ...], fixed: frozenset[Operand]) -> Plan:
        """The plan of all branches that meet the literals, where `fixed` is given for the whole question."""
        return self._planned(Asked(Draft(literals, outs)), fixed)

    def tested(self, guard: Neg) -> Condition | bool:
        return self._unfolder.subqueries.tested(guard)

    def candidates_of(self, guards: Iterable[Neg], variable: Var) -> Found:
        return candidates_of(self.rules, guards, variable)

    def candidates(self, found: Found) -> Candidates:
        return self._unfolder.candidates(found)

    def new_source(self) -> int:
        return self._unfolder.numbers.source()

    # ---- plans ---------------------------------------------------------------------------------------------------

    def _asked_inside(self, asked: Asked) -> Plan:
        """A plan that another one reads, until there are too many of them."""
        if asked.as_set:
            return self._planned(asked, fixed_in(asked.start))
        self._depth += 1
        self._nested += self._depth > 1 and asked.table is None
        if max(self._nested, self._depth - MOST_DEEP) > MOST_NESTED and self.is_bounded:
            raise Sprawling
        plan = self._planned(asked, fixed_in(asked.start))
        self._depth -= 1
        return plan

    def _planned(self, asked: Asked, fixed: frozenset[Operand]) -> Plan:
        name = f"n{next(self._names)}"
        enclosing = Enclosing(fixed, rounds=asked.rounds, table=asked.table)
        while True:
            known, spent = frozenset(self._apart), (self._nested, self._depth, self._unfolder.steps)
            found = self._attempt(name, asked, enclosing)
            if isinstance(found, Plan):
                return found
            assert found.component not in known, "what is worked out in rounds takes any number of answers"
            self._apart.add(found.component)
            self._nested, self._depth, self._unfolder.steps = spent

    def _attempt(self, name: str, asked: Asked, enclosing: Enclosing) -> Plan | Twice:
        explored = self._explored(asked, enclosing)
        if explored.twice is None and (asked.rounds is not None or explored.goes_on_from_answers):
            return answering_plan(self._unfolder, name, len(asked.start.outs), explored, enclosing)
        if explored.twice is None:
            explored = self._inlined(asked, explored, enclosing)
        if explored.twice is not None:
            return explored.twice
        entry = [end for end in explored.entry if isinstance(end, Exit)]
        seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
        exits, moves = goals_of(explored)
        states = tuple(explored.arms)
        made = Plan(name, len(asked.start.outs), (*entry, *exits), seeds, tuple(moves), states, fixed=enclosing.fixed)
        return replace(made, is_set=asked.as_set)

    def _explored(self, asked: Asked, enclosing: Enclosing) -> Explored:
        starts = iter((asked.start,))
        if asked.as_set:
            (call,) = asked.start.pending
            assert isinstance(call, Call), "what is looked up in a set is one call"
            starts = self._unfolder.subqueries.joined(Draft((), ()), call)
        return explore(self._unfolder, starts, enclosing)

    def _inlined(self, asked: Asked, explored: Explored, enclosing: Enclosing) -> Explored:
        """With the states written in place that need not be: what is met then may be met in another order."""
        states = in_place(explored)
        if not states:
            return explored
        inlined = self._explored(asked, replace(enclosing, in_place=states))
        return explored if inlined.goes_on_from_answers or inlined.twice is not None else inlined
