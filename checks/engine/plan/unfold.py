"""Unfold drafts: resolve literals until only facts and conditions are left, and plan what those read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from checks.engine.plan.draft import (
    Choice,
    Chooser,
    Draft,
    Resolution,
    bind,
    comparison,
    guards_for,
    is_anchored,
    is_backward,
    is_compared,
    is_one_path,
    outward,
    prefix_key,
    read,
    variant_of,
    without_prefix,
)
from checks.engine.plan.open_values import Domains, RelevantIds, candidates_of
from checks.engine.plan.plan import (
    Active,
    Branch,
    Candidates,
    Condition,
    Continuation,
    DerivedTable,
    Domain,
    End,
    Exit,
    FactScan,
    Holds,
    Ids,
    Jump,
    NonlinearRecursion,
    Plan,
    PlanSource,
    Same,
    State,
    Variant,
    before,
    state_of,
)
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
    spend,
    stand_in,
    substituted,
    substituted_terms,
    terms_of,
    tick,
    variables_of,
)
from checks.engine.rules.rewrite import unified
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.errors import CannotEnumerate, TooManyInliningSteps, TooManySteps, UnboundVariable
from policy.errors import AuthzError
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER

# ---- subqueries -----------------------------------------------------------------------------------------------------
# Nested plans that a branch reads, to test whether literals hold or to join with answers.
#
#     … and not blocked(:actor, s1.a0)      ->   a condition: no answer of the plan of blocked(:actor, s1.a0)
#     … and path(:actor, t) and has_role(t, "reader", :doc)
#                                           ->   a source: the plan of path(:actor, t), read as t
#
# Each is planned once, and read by all branches with the same call, however they number its variables.


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


# ---- unfold -------------------------------------------------------------------------------------------------------
# Drafts -> the ends of the branches that they become: resolution, once per plan.
#
# Each step resolves the next literal of a draft (see `Chooser`): a fact becomes a source, a test becomes a condition, a
# call is resolved as chosen. A step returns drafts and ends that have, together, the rows that the draft stands for,
# whatever the facts. Each kind of step is a method with an example. A branch ends in an exit, in a jump to a state of
# the plan, or in a continuation from a state's answers.
#
#     has_permission(:actor, "read", :doc)
#         ->  exit   <- stored has_permission(:actor, "read", :doc)
#         ->  jump to has_role(:actor, n, c0) with (s1.a2) <- stored has_relation(:doc, "folder", s1.a2)

MOST_STEPS = 15_000  # per plan: common questions take tens or hundreds
MANY_STEPS = 1_200  # for a plan with an alternative form that may take fewer
FEWEST_STEPS = 150  # for such a plan, however many others took too many steps

Outcome = Draft | End | NonlinearRecursion


def many_steps(sprawling: int) -> int:
    """Return the step limit for a plan with an alternative form: halved for each root that exceeded it before."""
    return min(MANY_STEPS, max(MANY_STEPS >> sprawling, FEWEST_STEPS))


@dataclass(frozen=True)
class Grounding:
    """Binds each variable that only tests mention to all ids that they can tell apart, so that no exit has guards.

    In a list, other than of names, Integers are left unbound: rules may compare their size with values that nothing
    mentions, and those would be among the answers.
    """

    domains: Callable[[], Domains]
    is_list: bool

    def source(self, number: int, type_name: str) -> Domain:
        if not type_name or (self.is_list and type_name == INTEGER):
            raise CannotEnumerate("all values except some")
        return self.domains().of(number, type_name)


@dataclass
class Unfolder:
    rules: RuleSet
    stores: Callable[[Signature], tuple[str, ...]]  # where a signature has facts: stored, inline, …
    numbers: Numbers
    chooser: Chooser
    subqueries: Subqueries
    most: int | None = None  # steps until `TooManyInliningSteps` is raised; None if there is no alternative form
    with_values: bool = True  # whether plans in rounds take the question's values as keys, so as not to depend on them
    grounding: Grounding | None = None
    steps: int = 0

    def ends(self, drafts: Iterable[Draft]) -> Iterator[End | NonlinearRecursion]:
        """Yield the ends of all branches that start as the drafts, depth first."""
        waiting: list[Outcome] = [*drafts]
        waiting.reverse()
        while waiting:
            each = waiting.pop()
            if isinstance(each, Draft):
                waiting += reversed(self.step(each))
            else:
                yield each

    def step(self, draft: Draft) -> Sequence[Outcome]:
        """Resolve the draft's next literal and return the resulting drafts and ends; empty if a test always fails."""
        self.count()
        settled = self.subqueries.with_tests(draft)
        if settled is None:
            return ()
        literal = self.chooser.next_literal(settled)
        if literal is None:
            return self.finished(settled)
        rest = settled.without(literal)
        match literal:
            case Scan():
                return self.scanned(literal, rest)
            case Given():
                return self.given(literal, rest)
            case Member(Var() as variable, ids):
                return self.listed(variable, ids, rest)
            case Call():
                return self.resolved_call(literal, self.chooser.chosen(literal, rest), rest)
        raise AssertionError(f"{literal} is a test: it waits until it is ready")

    def count(self) -> None:
        """Count one step of planning; raise if there are too many."""
        self.steps += 1
        if self.most is not None and self.steps > self.most:
            raise TooManyInliningSteps
        if self.steps > MOST_STEPS:
            raise TooManySteps(MOST_STEPS)
        tick()

    # ---- values and facts ------------------------------------------------------------------------------------

    def given(self, given: Given, rest: Draft) -> list[Draft]:
        """Read the values of the question. If the variable is already bound, test that it is one of them.

        (x) of x among :v0 and p(x)   ->   (s1.v) of p(s1.v) <- s1 <- :v0
        """
        source = Ids(self.numbers.source(), given.slot, given.are_many)
        column = Col(source.number, "v", given.type)
        if isinstance(given.variable, Var):
            return [read(rest, source, {given.variable: column})]
        return [read(rest, source, {}, [Same(column, given.variable)])]

    def listed(self, variable: Var, ids: tuple[str, ...], rest: Draft) -> list[Draft]:
        """Bind the variable to each value of a list.

        (x) of x in ["a", "b"] and p(x)   ->   ("a") of p("a")
                                               ("b") of p("b")
        """
        return [bind(rest, {variable: Const(text)}) for text in ids]

    def scanned(self, scan: Scan, rest: Draft) -> list[Draft]:
        """Read the fact from each store of its signature: stored facts, or context facts.

        (x) of fact s("a", x) and p(x)   ->   (s1.a1) of p(s1.a1) <- s1 <- stored s; s1.a0 = "a"
                                              (s2.a1) of p(s2.a1) <- s2 <- inline s; s2.a0 = "a"
        """
        return [self._read_at(store, scan, rest) for store in self.stores(scan.signature)]

    def _read_at(self, store: str, scan: Scan, rest: Draft) -> Draft:
        source = FactScan(self.numbers.source(), scan.signature, store)
        bound: dict[Var, Col] = {}
        conditions: list[Condition] = []
        for index, arg in enumerate(scan.args):
            column = Col(source.number, f"a{index}", scan.signature.types[index])
            if not isinstance(arg, Var):
                conditions.append(Same(column, arg))
            elif bound.setdefault(arg, column) is not column:
                conditions.append(Same(column, bound[arg]))
        return read(rest, source, bound, conditions)

    # ---- calls -------------------------------------------------------------------------------------------------

    def resolved_call(self, call: Call, choice: Choice, rest: Draft) -> Sequence[Outcome]:
        """Resolve the call in the chosen way."""
        match choice.resolution:
            case Resolution.IN_PLACE:
                return self.in_place(call, rest)
            case Resolution.EMPTY_PATH:
                return self.empty_path(call, rest)
            case Resolution.TESTED:
                return self.tested(call, rest)
            case Resolution.JOINED:
                fixed = rest.inside.fixed if choice.is_fixed else frozenset()
                return list(self.subqueries.joined(rest, call, fixed, choice.rounds, choice.table))
            case Resolution.AFTER_PREFIX:
                assert choice.prefix is not None and choice.known is not None, "something leads there"
                return list(self.subqueries.after_prefix(rest, choice.prefix, call, choice.known))
            case Resolution.ENTERED:
                return self.entered(call, choice, rest)
            case Resolution.JOINED_TO_STATE:
                return [self.joined_to_state(call, choice, rest)]
            case Resolution.NONLINEAR:
                return [NonlinearRecursion(choice.component)]

    def in_place(self, call: Call, rest: Draft) -> list[Draft]:
        """Replace the call by each of its clauses.

        (y) of p("a", y) and q(y)   ->   (y) of fact s("a", y) and q(y)
                                         (y) of p("b", y) and q(y)

        where `p(x, y) if fact s(x, y)` and `p("a", y) if p("b", y)`.
        """
        spend((call.predicate, len(call.args)))
        found = []
        for clause in self.rules.alternatives(pattern_of(call), is_backward(call)):
            body, bound, others = unified(clause, call.args, self.numbers.fresh)
            verdicts = [comparison("=", *pair) for pair in others]
            if any(each is False for each in verdicts):
                continue
            draft = bind(rest, bound)
            conditions = (*draft.conditions, *(each for each in verdicts if not isinstance(each, bool)))
            found.append(Draft((*body, *draft.pending), draft.outs, draft.sources, conditions, draft.inside))
        return found

    def empty_path(self, path: Call, rest: Draft) -> list[Draft]:
        """Make both ends of a path the same value, by no hops, since nothing else uses one of them.

        (x) of path 0(x, y) and p(x)   ->   (x) of p(x)
        """
        start, end = path.args
        assert isinstance(end, Var), "such a path is open at both ends"
        return [bind(rest, {end: start})]

    def tested(self, call: Call, rest: Draft) -> list[Draft]:
        """Turn the call into a condition, tested by a nested plan.

        (x) of p("a", y) and q(x)   ->   (x) of q(x) <- answer of plan n1
        """
        held = self.subqueries.holds(call, rest.sources if rest.outs else ())
        if isinstance(held, Holds) and held not in rest.conditions:
            rest = rest.testing([held])
        return [rest] if held is not False else []

    def entered(self, call: Call, choice: Choice, rest: Draft) -> Sequence[Outcome]:
        """Jump to a state. If the state is to be in place, inline its clauses here, but not again inside of them.

        (y) of p(s1.a0, x) and q(x, y) <- s1 <- stored s   ->   jump to (y) of p(c0, x) and q(x, y) with (s1.a0)
        """
        state, keys = self._state_of(call, rest.pending, rest.outs, choice, rest)
        if state not in rest.inside.in_place:
            return [Jump(rest.branch, state, keys)]
        inside = replace(rest.inside, active=state.active, in_place=rest.inside.in_place - {state})
        return self.in_place(call, replace(rest, inside=inside))

    def joined_to_state(self, call: Call, choice: Choice, rest: Draft) -> Continuation:
        """Continue from each answer of a state.

        (y) of p(s1.a0, x) and q(x, y) <- s1 <- stored s   ->   (x) of p(c0, x) with (s1.a0), then q(x, y)
        """
        needed = rest.needed
        results = tuple(dict.fromkeys(arg for arg in call.args if isinstance(arg, Var) and arg in needed))
        state, keys = self._state_of(call, (), results, choice, rest)
        return Continuation(rest.branch, state, keys, results, rest.pending, rest.outs)

    def _state_of(
        self, call: Call, pending: tuple[Literal, ...], outs: tuple[Term, ...], choice: Choice, rest: Draft
    ) -> tuple[State, tuple[Operand, ...]]:
        with_values = self.with_values and rest.inside.rounds == TABLED
        return state_of(call, pending, outs, _active(choice, rest), rest.inside.fixed, with_values)

    # ---- the end of a branch -----------------------------------------------------------------------------------

    def finished(self, draft: Draft) -> list[Exit] | list[Draft]:
        """End the branch: unbound variables now stand for every value, except those that a negation excludes.

        (x, s1.a0) of not p(x) <- s1 <- stored s   ->   exit (x, s1.a0) unless p(x) <- s1 <- stored s
        (s1.a0) of not p(x, s1.a0) <- …            ->   (s1.a0) of not p(s2.v, s1.a0) <- …; s2 <- ids at …

        In the second example x is not an answer, so it is bound to some value first (see `_with_some`). A Boolean is
        bound to both of its values, as there are no others.
        """
        variables = sorted(variables_of(draft.pending), key=lambda variable: variable.number)
        truth = next((each for each in variables if _type_in(draft.pending, each) == BOOLEAN), None)
        if truth:
            return self.listed(truth, ("false", "true"), draft)
        unmet: list[Neg] = []
        for literal in draft.pending:
            if isinstance(literal, Cmp):
                if self.grounding and not self.grounding.is_list:
                    return [self._with_each(draft, next(t for t in terms_of(literal) if isinstance(t, Var)))]
                raise UnboundVariable(next(t.name for t in terms_of(literal) if isinstance(t, Var)))
            assert isinstance(literal, Neg), "all else is resolved before a branch ends"
            unmet.append(literal)
        asked = {out for out in draft.outs if isinstance(out, Var)}
        free = [each for each in variables if each not in asked]
        if free:
            return [self._with_some(draft, free[0], len(free) - 1)]
        if unmet and self.grounding:
            return [self._with_each(draft, next(out for out in draft.outs if out in variables_of(unmet)))]
        columns: dict[Var, Var] = {}
        for index, out in enumerate(draft.outs):
            if isinstance(out, Var):
                columns.setdefault(out, out.numbered(index))  # two columns of one value have the first one's number
        guards = tuple(substituted(literal, columns) for literal in unmet)
        return [Exit(draft.branch, substituted_terms(draft.outs, columns), guards)]

    def _with_some(self, draft: Draft, variable: Var, others: int) -> Draft:
        """Bind a variable that only negations mention, so that they hold for some value of it.

        A single id that nothing mentions is enough if facts about an id can only make them false. As a rule may except
        two equal ids, it is not that of one of the `others`, nor in a domain. Otherwise, all ids are tried for which
        they may have other results (see `RelevantIds`).
        """
        if self.grounding and not self.grounding.is_list:
            return self._with_each(draft, variable)
        found = candidates_of(self.rules, draft.pending, variable)
        if found.is_monotone:
            taken = others + (self.grounding.domains().most_stand_ins if self.grounding else 0)
            return bind(draft, {variable: Const(stand_in(taken))})
        if not found.is_complete:
            if self.grounding:
                return self._with_each(draft, variable)
            raise CannotEnumerate("whether there is any other value that a rule compares")
        source = self.candidates(found)
        return read(draft, source, {variable: Col(source.number, "v", variable.type)})

    def _with_each(self, draft: Draft, variable: Var) -> Draft:
        """Bind a variable that only tests mention to each id of its domain (see `Grounding`)."""
        assert self.grounding is not None, "only then tests are not kept as guards"
        source = self.grounding.source(self.numbers.source(), _type_in(draft.pending, variable))
        return read(draft, source, {variable: Col(source.number, "v", source.type)})

    def candidates(self, found: RelevantIds) -> Candidates:
        return Candidates(self.numbers.source(), found.positions, found.ids)


def _type_in(literals: Iterable[Literal], variable: Var) -> str:
    """Return the variable's type, or the one that a negation gives it; empty if there is none."""
    if variable.type:
        return variable.type
    calls = [each.call for each in literals if isinstance(each, Neg)]
    return next((kind for call in calls for arg, kind in zip(call.args, call.types) if arg == variable), "")


def _active(choice: Choice, rest: Draft) -> Active:
    """Return the recursions that the state is in, with its own as the last one."""
    return (*before(rest.inside.active, choice.component), (choice.component, choice.left))
