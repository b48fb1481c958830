"""Subqueries: nested plans that a branch reads, to test whether literals hold or to join with answers.

    … and not blocked(:actor, s1.a0)      ->   a condition: no answer of the plan of blocked(:actor, s1.a0)
    … and path(:actor, t) and has_role(t, "reader", :doc)
                                          ->   a source: the plan of path(:actor, t), read as t

Each is planned once, and read by all branches with the same call, however they number its variables.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from checks.engine.plan.draft import (
    Draft,
    comparison,
    guards_for,
    is_anchored,
    is_compared,
    is_one_path,
    outward,
    prefix_key,
    read,
    variant_of,
    without_prefix,
)
from checks.engine.plan.plan import Branch, Condition, DerivedTable, Holds, Ids, Plan, PlanSource, Same, Variant
from checks.engine.rules.clauses import (
    Call,
    Cmp,
    Col,
    Const,
    Given,
    Literal,
    Member,
    Neg,
    Operand,
    Other,
    Path,
    Pattern,
    Scan,
    Term,
    Var,
    mapped,
    pattern_of,
    substituted,
    terms_of,
    variables_of,
)
from checks.engine.rules.ruleset import RuleSet
from checks.errors import CannotEnumerate, UnboundVariable
from policy.errors import AuthzError


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for a plan: `rounds` is the recursion to evaluate in rounds, `table` the pattern to table."""

    start: Draft
    rounds: int | None = None
    table: Pattern | None = None
    as_set: bool = False  # whether to look columns up in the set of all answers, evaluated once
    is_path: bool = False  # a path with one known end


@dataclass
class Numbers:
    """Generates unique numbers for sources and variables."""

    counter: Iterator[int] = field(default_factory=lambda: count(1))

    def source(self) -> int:
        return next(self.counter)

    def fresh(self, like: Var | Col) -> Var:
        """Return a new variable of the same type."""
        return Var(1000 + next(self.counter), like.name if isinstance(like, Var) else "", like.type)


@dataclass
class Subqueries:
    rules: RuleSet
    numbers: Numbers
    planned: Callable[[PlanRequest], Plan]
    by_set: bool = True  # whether columns may be looked up in the set of all answers (see `holds`)
    made: dict[Hashable, Plan] = field(default_factory=dict)
    refused: dict[Hashable, AuthzError] = field(default_factory=dict)

    # ---- tests ---------------------------------------------------------------------------------------------------

    def with_tests(self, draft: Draft) -> Draft | None:
        """Turn the draft's tests without variables into conditions; None if one is always false."""
        waiting: list[Literal] = []
        conditions = list(draft.conditions)
        for literal in draft.pending:
            if isinstance(literal, (Call, Scan, Given)) or any(isinstance(term, Var) for term in terms_of(literal)):
                waiting.append(literal)
                continue
            verdict = self.tested(literal, draft.sources if draft.outs else ())
            if verdict is False:
                return None
            if verdict is not True and verdict not in conditions:
                conditions.append(verdict)
        if len(waiting) == len(draft.pending):
            return draft
        return Draft(tuple(waiting), draft.outs, draft.sources, tuple(conditions), draft.inside)

    def tested(self, literal: Literal, among: tuple[PlanSource, ...] = ()) -> Condition | bool:
        """Return the condition for the test, or its outcome if that is certain.

        `among` are the sources whose rows are tested (see `holds`).
        """
        match literal:
            case Cmp(operator, left, right) if not isinstance(left, Var) and not isinstance(right, Var):
                return comparison(operator, left, right)
            case Member(Const(text), ids):
                return text in ids
            case Member(Other(), _):
                return False
            case Member(operand, ids) if not isinstance(operand, Var):
                return Member(operand, ids)
            case Neg(call):
                held = self.holds(outward(call), among)
                return not held if isinstance(held, bool) else Holds(held.plan, negated=True)
        raise AssertionError(f"{literal} is no test, or not ready")

    def holds(self, call: Call, among: tuple[PlanSource, ...] = ()) -> Holds | bool:
        """Return the condition that the call holds for some values of its variables, or the outcome if certain.

        For rows of facts in `among`, all answers may be evaluated once as a set, in which each row is looked up.
        """
        as_set = self.by_set and _is_better_as_set(self.rules, call, among)
        if as_set:
            with suppress(CannotEnumerate, UnboundVariable):  # the answers cannot be listed: test each row
                return self._held(call, as_set)
        return self._held(call)

    def _held(self, call: Call, as_set: bool = False) -> Holds | bool:
        plan = self._planned((call, as_set), PlanRequest(Draft((call,), ()), as_set=as_set))
        if any(not exit.branch.sources and not exit.branch.conditions for exit in plan.exits):
            return True
        return Holds(plan) if plan.exits else False

    # ---- joins -----------------------------------------------------------------------------------------------------

    def joined(
        self,
        rest: Draft,
        call: Call,
        fixed: frozenset[Operand] = frozenset(),
        rounds: int | None = None,
        table: Pattern | None = None,
    ) -> Iterator[Draft]:
        """Return the draft joined with the answers of the call: a draft for each variant of them.

            (x) of p(s1.a0, x) <- s1 <- stored s
            ->  (s2.o1) of true <- s1 <- stored s; s2 <- the plan of p(y, x); s2.o0 = s1.a0

        Columns of this branch, except those in `fixed`, become answers of the plan and are joined here, so that other
        branches can read the same plan.
        """
        needed = rest.needed
        joins: dict[Var, Operand] = {}

        def opened(term: Term) -> Term:
            if not isinstance(term, Col) or term in fixed:
                return term
            known = next((variable for variable, operand in joins.items() if operand == term), None)
            variable = known or self.numbers.fresh(term)
            joins[variable] = term
            return variable

        asked = mapped(call, opened)
        free = (arg for arg in asked.args if isinstance(arg, Var))
        results = tuple(dict.fromkeys(arg for arg in free if arg in needed or arg in joins))
        plan = self._answers_of(asked, results, rounds, table)
        return self._with_each_variant(rest, plan, results, joins)

    def after_prefix(self, rest: Draft, prefix: Branch, call: Call, known: Col) -> Iterator[Draft]:
        """Return the draft joined with what the prefix and then the path lead to; equal prefixes share a plan.

        `known` is the end of the path that the prefix leads to. If the other end is a column, it is looked up.
        """
        assert isinstance(call.subset, Path), "a prefix leads to a path"
        (other,) = (arg for arg in call.args if arg != known)
        joins: dict[Var, Operand] = {}
        if isinstance(other, Var):
            end = other
        else:
            assert isinstance(other, Col), "the end of a path that a column is compared with"
            end = self.numbers.fresh(other)
            joins[end] = other
        asked = mapped(call, lambda term: end if term == other else term)
        key = (prefix_key(prefix, known), call.predicate, call.subset, call.types, asked.args.index(end))
        request = PlanRequest(Draft((asked,), (end,), prefix.sources, prefix.conditions), is_path=True)
        plan = self._planned(key, request)
        return self._with_each_variant(without_prefix(rest, prefix), plan, (end,), joins)

    def _answers_of(self, call: Call, results: tuple[Var, ...], rounds: int | None, table: Pattern | None) -> Plan:
        """Return the plan of the call's answers; calls that only number their variables differently share it."""
        others = sorted(variables_of((call,)) - set(results), key=lambda variable: variable.number)
        names = {variable: variable.numbered(k) for k, variable in enumerate((*results, *others))}
        asked, outs = substituted(call, names), tuple(names[variable] for variable in results)
        key = (asked, outs, rounds)
        return self._planned(key, PlanRequest(Draft((asked,), outs), rounds, table, is_path=is_one_path(asked)))

    def _planned(self, key: Hashable, request: PlanRequest) -> Plan:
        if key in self.refused:
            raise self.refused[key].with_traceback(None)
        if key not in self.made:
            try:
                self.made[key] = self.planned(request)
            except (CannotEnumerate, UnboundVariable) as refusal:
                self.refused[key] = refusal
                raise
        return self.made[key]

    def _with_each_variant(
        self, rest: Draft, plan: Plan, results: tuple[Var, ...], joins: dict[Var, Operand]
    ) -> Iterator[Draft]:
        for variant in dict.fromkeys(variant_of(end, plan.fixed) for end in plan.exits):
            yield _with_answers(rest, DerivedTable(self.numbers.source(), plan, variant), results, joins)


def _with_answers(rest: Draft, source: DerivedTable, results: tuple[Var, ...], joins: dict[Var, Operand]) -> Draft:
    """Return the draft joined with the answers of one variant. Wild columns bind nothing; guards are added."""
    variant: Variant = source.variant
    columns = {
        variable: Col(source.number, source.plan.column(index), variable.type)
        for index, variable in enumerate(results)
        if index not in variant.wild
    }
    conditions: list[Condition] = [Same(columns[v], operand) for v, operand in joins.items() if v in columns]
    known: dict[Var, Term] = {**columns, **{v: o for v, o in joins.items() if v not in columns}}
    for first, second in variant.same:
        left, right = (known.get(results[index], results[index]) for index in (first, second))
        if isinstance(right, Var):
            known[right] = left
        elif isinstance(left, Var):
            known[left] = right
        else:
            conditions.append(Same(left, right))
    draft = replace(rest, pending=(*rest.pending, *guards_for(variant, results, known)))
    return read(draft, source, known, conditions)


# ---- as a set, or row by row ----------------------------------------------------------------------------------------


def _is_better_as_set(rules: RuleSet, call: Call, among: tuple[PlanSource, ...]) -> bool:
    """Return whether to look columns of rows up in the set of all answers of the call.

    True if there may be many rows, if the call takes more than one lookup for each, and if values of the question limit
    the set.
    """
    numbers = {source.number for source in among if not isinstance(source, Ids)}
    columns = [arg for arg in call.args if isinstance(arg, Col)]
    if not columns or not all(column.source in numbers for column in columns):
        return False
    takes_long = rules.calls.is_deep(pattern_of(call)) or _reads_several(rules, call)
    return takes_long and is_anchored(call) and not is_compared(rules, call, Col)


def _reads_several(rules: RuleSet, call: Call) -> bool:
    """Return whether the clauses of the call look up several facts."""
    clauses = rules.alternatives(pattern_of(call))
    return sum(isinstance(literal, Scan) for clause in clauses for literal in clause.body) > 1
