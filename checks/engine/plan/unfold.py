"""Drafts -> the ends of the branches that they become: resolution, done once, when a question is planned.

Each step resolves the next literal of a draft (see `order`): a fact becomes a source, a test becomes a condition, a
call is resolved as `choose` says. A step returns drafts and ends that have, together, the rows that
the draft stands for, whatever the facts. Each kind of step is a method with an example. A branch ends in an exit, in a
jump to a state of the plan, or in going on from a state's answers.

    has_permission(:actor, "read", :doc)
        ->  exit   <- stored has_permission(:actor, "read", :doc)
        ->  jump to has_role(:actor, n, c0) with (s1.a2) <- stored has_relation(:doc, "folder", s1.a2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from checks.engine.errors import CannotEnumerate, SprawlingSteps, TooManySteps, UnboundVariable
from checks.engine.plan.choose import Choice, Chooser, Resolution
from checks.engine.plan.draft import Draft, bind, comparison, read
from checks.engine.plan.open_values import Domains, RelevantIds, candidates_of
from checks.engine.plan.order import next_literal
from checks.engine.plan.paths import is_backward
from checks.engine.plan.plan import (
    Candidates,
    Condition,
    Continuation,
    Domain,
    End,
    Exit,
    FactScan,
    Holds,
    Ids,
    Jump,
    NonlinearRecursion,
    Same,
)
from checks.engine.plan.states import Active, State, before, state_of
from checks.engine.plan.subqueries import Numbers, Subqueries
from checks.engine.rules.clauses import (
    FRESH,
    Call,
    Clause,
    Cmp,
    Col,
    Const,
    Given,
    Literal,
    Member,
    Neg,
    Operand,
    Scan,
    Term,
    Var,
    pattern_of,
    renumbered,
    substituted,
    substituted_terms,
    terms_of,
    variables_of,
)
from checks.engine.rules.limits import spend, tick
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.engine.rules.unify import plain_bindings, resolved
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER

MOST_STEPS = 15_000  # of one plan: common questions take tens or hundreds
MANY_STEPS = 1_200  # of a plan, if there is another form of it that takes fewer
FEWEST_STEPS = 150  # of such a plan, however many others took too many steps

Outcome = Draft | End | NonlinearRecursion


def many_steps(sprawling: int) -> int:
    """Return the limit of steps for a plan that has another form: halved for each root that took too many before."""
    return min(MANY_STEPS, max(MANY_STEPS >> sprawling, FEWEST_STEPS))


@dataclass(frozen=True)
class Grounding:
    """Binds each variable that only tests mention to all ids that they can tell apart, so that no exit has guards.

    In a list, other than of names, Integers are left unbound: rules may compare them by size with values that nothing
    mentions, and those would be among the answers.
    """

    domains: Callable[[], Domains]
    is_list: bool

    def source(self, number: int, type_name: str) -> Domain:
        if not type_name or (self.is_list and type_name == INTEGER):
            raise CannotEnumerate("all but some")
        return self.domains().of(number, type_name)


@dataclass
class Unfolder:
    rules: RuleSet
    stores: Callable[[Signature], tuple[str, ...]]  # of a signature's facts: stored, inline, …
    numbers: Numbers
    chooser: Chooser
    subqueries: Subqueries
    most: int | None = None  # steps before `SprawlingSteps` is raised; None if there is no other form to plan in
    with_values: bool = True  # whether plans in rounds have the question's values as keys, to be the same for any
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
        """Return what the draft becomes when its next literal is resolved; nothing where a test is always false."""
        self.count()
        settled = self.subqueries.with_tests(draft)
        if settled is None:
            return ()
        literal = next_literal(settled, self.rules)
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
            raise SprawlingSteps
        if self.steps > MOST_STEPS:
            raise TooManySteps(MOST_STEPS)
        tick()

    # ---- values and facts ------------------------------------------------------------------------------------

    def given(self, given: Given, rest: Draft) -> list[Draft]:
        """Read the values that the question gives. If the variable is bound already, test that it is one of them.

        (x) of x among :v0 and p(x)   ->   (s1.v) of p(s1.v) <- s1 <- :v0
        """
        source = Ids(self.numbers.source(), given.slot, given.are_many)
        column = Col(source.number, "v", given.type)
        if isinstance(given.variable, Var):
            return [read(rest, source, {given.variable: column})]
        return [read(rest, source, {}, [Same(column, given.variable)])]

    def listed(self, variable: Var, ids: tuple[str, ...], rest: Draft) -> list[Draft]:
        """Take each value of a list in turn.

        (x) of x in ["a", "b"] and p(x)   ->   ("a") of p("a")
                                               ("b") of p("b")
        """
        return [bind(rest, {variable: Const(text)}) for text in ids]

    def scanned(self, scan: Scan, rest: Draft) -> list[Draft]:
        """Read the fact from each store of its signature: the stored facts, or those of the request.

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
        """Resolve the call in the way that was chosen."""
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
                assert choice.prefix is not None, "something leads there"
                return list(self.subqueries.after_prefix(rest, choice.prefix, call))
            case Resolution.ENTERED:
                return self.entered(call, choice, rest)
            case Resolution.JOINED_TO_STATE:
                return [self.joined_to_state(call, choice, rest)]
            case Resolution.NONLINEAR:
                return [NonlinearRecursion(choice.component)]

    def in_place(self, call: Call, rest: Draft) -> list[Draft]:
        """Write each clause of the call where it stands.

        (y) of p("a", y) and q(y)   ->   (y) of fact s("a", y) and q(y)
                                         (y) of p("b", y) and q(y)

        where `p(x, y) if fact s(x, y)` and `p("a", y) if p("b", y)`.
        """
        spend((call.predicate, len(call.args)))
        found = []
        for clause in self.rules.alternatives(pattern_of(call), is_backward(call)):
            opened = self._opened(clause, call.args)
            if opened is not None:
                body, bound, conditions = opened
                draft = bind(rest, bound)
                pending, tests = (*body, *draft.pending), (*draft.conditions, *conditions)
                found.append(Draft(pending, draft.outs, draft.sources, tests, draft.inside))
        return found

    def _opened(
        self, clause: Clause, args: tuple[Term, ...]
    ) -> tuple[tuple[Literal, ...], dict[Var, Term], list[Condition]] | None:
        """Return the clause's body for these arguments, what it binds of their variables, and conditions on the others.

        None where a constant differs.
        """
        bound = plain_bindings(clause.params, args)
        if bound is not None:
            terms = {each.number: bound.get(each.number) or self.numbers.fresh(each) for each in clause.variables}
            return tuple([renumbered(literal, terms) for literal in clause.body]), {}, []
        moved = {variable: self.numbers.fresh(variable) for variable in clause.variables}
        bindings: dict[Var, Term] = {}
        conditions: list[Condition] = []
        for param, arg in zip(substituted_terms(clause.params, moved), args):
            param, arg = resolved(param, bindings), resolved(arg, bindings)
            if param == arg:
                continue
            if isinstance(param, Var):
                bindings[param] = arg
            elif isinstance(arg, Var):
                bindings[arg] = param
            else:
                verdict = comparison("=", param, arg)
                if verdict is False:
                    return None
                conditions += [] if verdict is True else [verdict]
        ends = {variable: resolved(variable, bindings) for variable in bindings}
        final = {variable.number: ends.get(fresh, fresh) for variable, fresh in moved.items()}
        body = tuple([renumbered(literal, final) for literal in clause.body])
        mine = set(moved.values())
        return body, {variable: end for variable, end in ends.items() if variable not in mine}, conditions

    def empty_path(self, path: Call, rest: Draft) -> list[Draft]:
        """Make both ends of a path the same value, by no hops, since nothing else uses one of them.

        (x) of path 0(x, y) and p(x)   ->   (x) of p(x)
        """
        start, end = path.args
        assert isinstance(end, Var), "such a path is open at both ends"
        return [bind(rest, {end: start})]

    def tested(self, call: Call, rest: Draft) -> list[Draft]:
        """Make the call a condition: whether it holds, by a plan of its own.

        (x) of p("a", y) and q(x)   ->   (x) of q(x) <- answer of plan n1
        """
        held = self.subqueries.holds(call, rest.sources if rest.outs else ())
        if isinstance(held, Holds) and held not in rest.conditions:
            rest = rest.testing([held])
        return [rest] if held is not False else []

    def entered(self, call: Call, choice: Choice, rest: Draft) -> Sequence[Outcome]:
        """Jump to a state; if that is to be in place, write its clauses here instead, but not again inside of them.

        (y) of p(s1.a0, x) and q(x, y) <- s1 <- stored s   ->   jump to (y) of p(c0, x) and q(x, y) with (s1.a0)
        """
        state, keys = self._state_of(call, rest.pending, rest.outs, choice, rest)
        if state not in rest.inside.in_place:
            return [Jump(rest.branch, state, keys)]
        inside = replace(rest.inside, active=state.active, in_place=rest.inside.in_place - {state})
        return self.in_place(call, replace(rest, inside=inside))

    def joined_to_state(self, call: Call, choice: Choice, rest: Draft) -> Continuation:
        """Go on from each answer of a state.

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
        """End the branch: what is unbound now stands for every value, except those that a negation with it excludes.

        (x, s1.a0) of not p(x) <- s1 <- stored s   ->   exit (x, s1.a0) unless p(x) <- s1 <- stored s
        (s1.a0) of not p(x, s1.a0) <- …            ->   (s1.a0) of not p(s2.v, s1.a0) <- …; s2 <- ids at …

        In the second example nothing asks what x is, so it is bound to some value first (see `_with_some`). A Boolean
        is bound to both of its values, as there are no others.
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
            return [self._with_some(draft, free[0])]
        if unmet and self.grounding:
            return [self._with_each(draft, next(out for out in draft.outs if out in variables_of(unmet)))]
        columns: dict[Var, Var] = {}
        for index, out in enumerate(draft.outs):
            if isinstance(out, Var):
                columns.setdefault(out, out.numbered(index))  # two columns of one value have the first one's number
        guards = tuple(substituted(literal, columns) for literal in unmet)
        return [Exit(draft.branch, substituted_terms(draft.outs, columns), guards)]

    def _with_some(self, draft: Draft, variable: Var) -> Draft:
        """Bind a variable that only negations mention, so that they hold for some value of it.

        One id that nothing mentions will do where facts about an id can only make them false. Elsewhere, all ids for
        which they may answer differently are tried (see `open_values`).
        """
        if self.grounding and not self.grounding.is_list:
            return self._with_each(draft, variable)
        found = candidates_of(self.rules, draft.pending, variable)
        if found.is_monotone:
            return bind(draft, {variable: FRESH})
        if not found.is_complete:
            if self.grounding:
                return self._with_each(draft, variable)
            raise CannotEnumerate("whether there is any other value that a rule compares")
        source = self.candidates(found)
        return read(draft, source, {variable: Col(source.number, "v", variable.type)})

    def _with_each(self, draft: Draft, variable: Var) -> Draft:
        """Bind a variable that only tests mention to each id of its domain in turn (see `Grounding`)."""
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
    """Return the recursions that the state is inside of, with its own as the last one."""
    return (*before(rest.inside.active, choice.component), (choice.component, choice.left))
