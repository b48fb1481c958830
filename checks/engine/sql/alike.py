"""Arms of a union that differ only in numbers, of signatures and of tags, become one arm over a table of these.

A rule over values of many types has a clause for each combination of types, and each clause is an arm:

    SELECT 1, 7, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 3 AND t1.tag = 12 AND …
    SELECT 1, 8, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 4 AND t1.tag = 15 AND …
    ->  SELECT 1, n.column1, … FROM (VALUES (7, 3, 12), (8, 4, 15), …) n
        CROSS JOIN all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = n.column2 AND t1.tag = n.column3 AND …

An `ArmKey` holds all that an arm's text depends on, except these numbers: the texts of arms with equal keys differ in
nothing else. Of such arms one is rendered, with a hole for each number. What is not looked into, such as a recursive
plan, is in the key unchanged, and has no holes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace

from checks.engine.plan.plan import (
    Among,
    Answers,
    Branch,
    Candidates,
    Comparison,
    Condition,
    DerivedTable,
    Domain,
    FactScan,
    Form,
    Goals,
    Holds,
    Ids,
    Plan,
    Same,
    Source,
    Tagged,
)
from checks.engine.rules.clauses import Col, Term, Var
from checks.engine.values import value
from policy.rules.program import Signature


@value
class ArmKey:
    """All that an arm's text depends on, and its numbers.

    `numbers` are the arm's own; the first one is the tag that it selects. `holes` says, by a source's number, which of
    them is that source's: its signature or its tag.
    """

    key: Hashable
    numbers: tuple[int, ...]
    holes: Mapping[int, int]


@dataclass(slots=True)
class ArmKeyMaker:
    """Makes the key of one arm. `ends` says whether a fact may have an end: then its text has one more test."""

    number_of: Callable[[Signature], int]
    ends: Callable[[FactScan], bool]
    numbers: list[int]
    holes: dict[int, int] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)  # by a source's number, its rank in the order of mention

    def branch(self, branch: Branch) -> Hashable:
        sources = tuple([self._source(each) for each in branch.sources])
        return sources, tuple([self._condition(each) for each in branch.conditions])

    def _source(self, source: Source) -> Hashable:
        self.ranks.setdefault(source.number, len(self.ranks))
        match source:
            case FactScan(number, signature, store):
                shared = self.holes.get(number)
                if shared is None:
                    self._add_hole(number, self.number_of(signature))
                return store, len(signature.types), self.ends(source), shared
            case Goals() | Answers():
                return type(source).__name__
            case Ids(_, slot, are_many):
                return slot, are_many
            case DerivedTable(_, plan, variant) if not plan.outer_columns:
                return plan, variant
            case Candidates(_, positions, ids):
                return positions, ids
            case Domain():
                return replace(source, number=0)
        return source

    def _condition(self, condition: Condition) -> Hashable:
        match condition:
            case Same(left, right):
                return self.term(left), self.term(right)
            case Tagged(source, tag):
                if source in self.holes:
                    return condition
                self._add_hole(source, tag)
                return Tagged, self.ranks.get(source)
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
        return plan, tuple(self.ranks.items())

    def _add_hole(self, source: int, number: int) -> None:
        self.holes[source] = len(self.numbers)
        self.numbers.append(number)

    def term(self, term: Term | None) -> Hashable:
        if isinstance(term, Col):
            return self.ranks.get(term.source, term), term.name
        return None if isinstance(term, Var) else term


def is_looked_into(plan: Plan) -> bool:
    """Say whether a nested plan is part of the key of the arm that tests it, so that its numbers are the arm's."""
    return plan.form is Form.EXITS
