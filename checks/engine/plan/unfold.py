"""Literals -> the ends of the branches that meet them: resolution, done once, when a question is planned.

Facts become sources, tests become conditions, calls are met as `choose` says, always the most determined literal
first. A branch ends in an exit, in a jump to a state of the plan, or in a step from a state's answers.

    has_permission(:actor, "read", :doc)
        ->  exit   <- stored has_permission(:actor, "read", :doc)
        ->  jump to has_role(:actor, n, c0) with (s1.a2) <- stored has_relation(:doc, "folder", s1.a2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from checks.engine.errors import CannotEnumerate, TooManySteps, UnboundVariable
from checks.engine.plan.choose import Choice, Chooser, Meeting
from checks.engine.plan.draft import Draft, Enclosing, bind, comparison, read
from checks.engine.plan.open_values import Found, candidates_of
from checks.engine.plan.order import next_literal
from checks.engine.plan.paths import is_backward
from checks.engine.plan.plan import (
    Candidates,
    Condition,
    End,
    Exit,
    Fact,
    Holds,
    Ids,
    Jump,
    Same,
    Step,
    Twice,
)
from checks.engine.plan.states import before, state_of
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
    Scan,
    Term,
    Var,
    pattern_of,
    substituted,
    substituted_terms,
    terms_of,
    variables_of,
)
from checks.engine.rules.limits import tick
from checks.engine.rules.ruleset import RuleSet
from checks.engine.rules.unify import resolved
from policy.rules.program import Signature

MOST_STEPS = 15_000  # of one plan: common questions take tens or hundreds


@dataclass
class Unfolder:
    rules: RuleSet
    places: Callable[[Signature], tuple[str, ...]]  # where facts of a signature are
    numbers: Numbers
    chooser: Chooser
    subqueries: Subqueries
    steps: int = 0

    def ends(self, draft: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        """The ends of all branches that start as the draft."""
        self.count()
        settled = self.subqueries.with_tests(draft)
        if settled is None:
            return
        literal = next_literal(settled, self.rules, enclosing)
        if literal is None:
            yield from self._finished(settled, enclosing)
            return
        rest = replace(settled, pending=tuple(each for each in settled.pending if each is not literal))
        match literal:
            case Scan():
                yield from self.each(self._scanned(rest, literal), enclosing)
            case Given():
                yield from self.ends(self._given(rest, literal), enclosing)
            case Member(Var() as variable, ids):
                yield from self.each((bind(rest, {variable: Const(text)}) for text in ids), enclosing)
            case Call():
                choice = self.chooser.chosen(literal, rest, enclosing)
                yield from self._met(literal, choice, rest, enclosing)

    def each(self, drafts: Iterator[Draft], enclosing: Enclosing) -> Iterator[End | Twice]:
        for draft in drafts:
            yield from self.ends(draft, enclosing)

    def count(self) -> None:
        """One step more of planning; too many are refused."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManySteps(MOST_STEPS)
        tick()

    # ---- values and facts ------------------------------------------------------------------------------------

    def _given(self, rest: Draft, given: Given) -> Draft:
        """With the values that the question gives; a rule may have said before what the variable is."""
        source = Ids(self.numbers.source(), given.slot, given.are_many)
        column = Col(source.number, "v", given.type)
        if isinstance(given.variable, Var):
            return read(rest, source, {given.variable: column})
        return read(rest, source, {}).testing([Same(column, given.variable)])

    def _scanned(self, rest: Draft, scan: Scan) -> Iterator[Draft]:
        """With the fact, wherever facts like it are."""
        for place in self.places(scan.signature):
            source = Fact(self.numbers.source(), scan.signature, place)
            bound: dict[Var, Col] = {}
            conditions: list[Condition] = []
            for index, arg in enumerate(scan.args):
                column = Col(source.number, f"a{index}", scan.signature.types[index])
                if not isinstance(arg, Var):
                    conditions.append(Same(column, arg))
                elif bound.setdefault(arg, column) is not column:
                    conditions.append(Same(column, bound[arg]))
            yield read(rest, source, bound).testing(conditions)

    # ---- calls -------------------------------------------------------------------------------------------------

    def _met(self, call: Call, choice: Choice, rest: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        match choice.meeting:
            case Meeting.IN_PLACE:
                yield from self.unfolded(call, rest, enclosing)
            case Meeting.AT_ONCE:
                start, end = call.args
                assert isinstance(end, Var), "such a path is open at both ends"
                yield from self.ends(bind(rest, {end: start}), enclosing)
            case Meeting.TESTED:
                yield from self._tested(call, rest, enclosing)
            case Meeting.JOINED:
                fixed = enclosing.fixed if choice.is_given else frozenset()
                drafts = self.subqueries.joined(rest, call, fixed, choice.rounds, choice.table)
                yield from self.each(drafts, enclosing)
            case Meeting.LED_TO:
                assert choice.prefix is not None, "something leads there"
                yield from self.each(self.subqueries.led_from(rest, choice.prefix, call), enclosing)
            case Meeting.ENTERED:
                yield from self._entered(call, choice, rest, enclosing)
            case Meeting.STEPPED:
                yield self._stepped(call, choice, rest, enclosing)
            case Meeting.TWICE:
                yield Twice(choice.component)

    def unfolded(self, call: Call, rest: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        """A branch for each clause of the call."""
        for clause in self.rules.alternatives(pattern_of(call), is_backward(call)):
            opened = self._opened(clause, call.args)
            if opened is not None:
                body, bound, conditions = opened
                draft = bind(rest, bound)
                joined = replace(draft, pending=(*body, *draft.pending)).testing(conditions)
                yield from self.ends(joined, enclosing)

    def _opened(
        self, clause: Clause, args: tuple[Term, ...]
    ) -> tuple[tuple[Literal, ...], dict[Var, Term], list[Condition]] | None:
        """The clause's body for these arguments, with what it binds of them; None where a constant differs."""
        own = variables_of((Call("", (), clause.params), *clause.body))
        moved = {variable: self.numbers.fresh(variable) for variable in own}
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
        body = tuple(substituted(substituted(literal, moved), ends) for literal in clause.body)
        mine = set(moved.values())
        return body, {variable: end for variable, end in ends.items() if variable not in mine}, conditions

    def _tested(self, call: Call, rest: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        held = self.subqueries.holds(call, rest.sources if rest.outs else ())
        if isinstance(held, Holds) and held not in rest.conditions:
            rest = rest.testing([held])
        if held is not False:
            yield from self.ends(rest, enclosing)

    def _entered(self, call: Call, choice: Choice, rest: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        """Go on in a state, or here as if in it where it is written in place: once, if it leads back to itself."""
        active = (*before(enclosing.active, choice.component), (choice.component, choice.left))
        state, keys = state_of(call, rest.pending, rest.outs, active, enclosing.fixed)
        if state in enclosing.in_place:
            inner = replace(enclosing, active=active, in_place=enclosing.in_place - {state})
            yield from self.unfolded(call, rest, inner)
        else:
            yield Jump(rest.branch, state, keys)

    def _stepped(self, call: Call, choice: Choice, rest: Draft, enclosing: Enclosing) -> Step:
        needed = variables_of(rest.pending) | set(rest.outs)
        results = tuple(dict.fromkeys(arg for arg in call.args if isinstance(arg, Var) and arg in needed))
        active = (*before(enclosing.active, choice.component), (choice.component, choice.left))
        state, keys = state_of(call, (), results, active, enclosing.fixed)
        return Step(rest.branch, state, keys, results, rest.pending, rest.outs)

    # ---- the end of a branch -----------------------------------------------------------------------------------

    def _finished(self, draft: Draft, enclosing: Enclosing) -> Iterator[End | Twice]:
        """No more facts to find: what is unbound now stands for every value."""
        unmet: list[Neg] = []
        for literal in draft.pending:
            if isinstance(literal, Cmp):
                raise UnboundVariable(next(t.name for t in terms_of(literal) if isinstance(t, Var)))
            assert isinstance(literal, Neg), "all else is met before a branch ends"
            unmet.append(literal)
        asked = {out for out in draft.outs if isinstance(out, Var)}
        free = sorted(variables_of(draft.pending) - asked, key=lambda variable: variable.number)
        if free:
            yield from self.ends(self._with_some(draft, free[0]), enclosing)
            return
        columns: dict[Var, Var] = {}
        for index, out in enumerate(draft.outs):
            if isinstance(out, Var):
                columns.setdefault(out, out.numbered(index))  # two columns of one value have the first one's number
        guards = tuple(substituted(literal, columns) for literal in unmet)
        yield Exit(draft.branch, substituted_terms(draft.outs, columns), guards)

    def _with_some(self, draft: Draft, variable: Var) -> Draft:
        """Some value that only negations mention: one that nothing else mentions, or else one of the mentioned."""
        found = candidates_of(self.rules, draft.pending, variable)
        if found.is_monotone:
            return bind(draft, {variable: FRESH})
        if not found.is_complete:
            raise CannotEnumerate("whether there is any other value that a rule compares")
        source = self.candidates(found)
        return read(draft, source, {variable: Col(source.number, "v", variable.type)})

    def candidates(self, found: Found) -> Candidates:
        return Candidates(self.numbers.source(), found.places, found.ids)
