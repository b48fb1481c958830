"""Arms of a union that differ only in numbers, of signatures and of tags, become one arm over a table of these.

A rule over values of many types has a clause for each combination of types, and each clause is an arm:

    SELECT 1, 7, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 3 AND t1.tag = 12 AND …
    SELECT 1, 8, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 4 AND t1.tag = 15 AND …
    ->  SELECT 1, n.column1, … FROM (VALUES (7, 3, 12), (8, 4, 15), …) n
        CROSS JOIN all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = n.column2 AND t1.tag = n.column3 AND …

An `Outline` holds all that an arm's text depends on, except these numbers: the texts of arms with equal outlines differ
in nothing else. A part that is not looked into, such as a recursive plan, is in the outline unchanged, and nothing
inside of it is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from checks.engine.plan.plan import (
    Among,
    Answers,
    Branch,
    Candidates,
    Comparison,
    Condition,
    Fact,
    Form,
    Goals,
    Holds,
    Ids,
    Plan,
    Relation,
    Same,
    Source,
    Tagged,
)
from checks.engine.rules.clauses import Col, Term, Var
from policy.rules.program import Signature


@dataclass(frozen=True, slots=True)
class Outline:
    """All that an arm's text depends on, and its numbers.

    `numbers` are the arm's own; the first one is the tag that it selects. `marks` says, by a source's number, which of
    them is that source's: its signature or its tag.
    """

    key: Hashable
    numbers: tuple[int, ...]
    marks: Mapping[int, int]


@dataclass(slots=True)
class Outliner:
    """Makes the outline of one arm. `ends` says whether a fact may have an end: then its text has one more test."""

    number_of: Callable[[Signature], int]
    ends: Callable[[Fact], bool]
    numbers: list[int]
    marks: dict[int, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)  # by a source's number, its place in the order of mention

    def branch(self, branch: Branch) -> Hashable:
        sources = tuple([self._source(each) for each in branch.sources])
        return sources, tuple([self._condition(each) for each in branch.conditions])

    def _source(self, source: Source) -> Hashable:
        self.places.setdefault(source.number, len(self.places))
        match source:
            case Fact(number, signature, place):
                shared = self.marks.get(number)
                if shared is None:
                    self._mark(number, self.number_of(signature))
                return place, len(signature.types), self.ends(source), shared
            case Goals() | Answers():
                return type(source).__name__
            case Ids(_, slot, are_many):
                return slot, are_many
            case Relation(_, plan, variant) if not plan.outer_columns:
                return plan, variant
            case Candidates(_, places, ids):
                return places, ids
        return source

    def _condition(self, condition: Condition) -> Hashable:
        match condition:
            case Same(left, right):
                return self.term(left), self.term(right)
            case Tagged(source, tag):
                if source in self.marks:
                    return condition
                self._mark(source, tag)
                return Tagged, self.places.get(source)
            case Among(operand, ids):
                return Among, self.term(operand), ids
            case Comparison(operator, left, right):
                return operator, self.term(left), self.term(right)
            case Holds(plan, negated):
                return negated, frozenset(map(self.term, plan.fixed)), self._plan(plan)
        return condition

    def _plan(self, plan: Plan) -> Hashable:
        if is_looked_into(plan):
            return tuple([self.branch(end.branch) for end in plan.exits])
        return plan, tuple(self.places.items())

    def _mark(self, source: int, number: int) -> None:
        self.marks[source] = len(self.numbers)
        self.numbers.append(number)

    def term(self, term: Term | None) -> Hashable:
        if isinstance(term, Col):
            return self.places.get(term.source, term), term.name
        return None if isinstance(term, Var) else term


def is_looked_into(plan: Plan) -> bool:
    """Say whether a nested plan is outlined with the arm that tests it, so that its numbers are the arm's."""
    return plan.form is Form.EXITS
