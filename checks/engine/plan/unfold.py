"""Literals -> the ways to meet them: resolution, done once, at compile time.

Calls are unfolded into their alternatives, facts become sources, tests become conditions, always the most
determined literal first. What recurses is not unfolded: it becomes a jump to a state of the net, a step from a
state's answers, or a net of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from checks.engine.errors import CannotEnumerate, NonLinear, Sprawling, TooManySteps, UnboundVariable
from checks.engine.plan.holding import holds, leans, with_tests
from checks.engine.plan.open_values import Found, candidates_of
from checks.engine.plan.order import companions_of, next_literal
from checks.engine.plan.partial import (
    Frame,
    Partial,
    bind,
    comparison,
    fixed_in,
    has_idle_end,
    is_closed,
    is_tested,
    read,
)
from checks.engine.plan.plan import (
    Candidates,
    Condition,
    End,
    Exit,
    Fact,
    Holds,
    Ids,
    Jump,
    Net,
    Relation,
    Same,
    Step,
)
from checks.engine.plan.prefixes import prefix_of
from checks.engine.plan.states import FAR, before, state_of
from checks.engine.plan.subqueries import led_from, related
from checks.engine.plan.ways import are_fixed, is_backward, is_free, is_led_to, is_way
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
    Pattern,
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
from checks.engine.rules.rulebook import TABLED, Rulebook
from checks.engine.rules.unify import resolved
from policy.rules.program import Signature

FAR_SOURCES = 3
MOST_STEPS = 15_000  # of one plan: common questions take tens or hundreds
MOST_DEEP = 18  # more than so many tables, each worked out from the next
MOST_NESTED = 12  # checks inside of checks, before what they share is tabled


@dataclass
class Resolver:
    rulebook: Rulebook
    places: Callable[[Signature], tuple[str, ...]]
    make_net: Callable[..., Net]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    names: Iterator[int] = field(default_factory=count)  # of nets: a plan is read by them
    nets: dict[Hashable, Net] = field(default_factory=dict)
    depth: int = 0
    nested: int = 0
    steps: int = 0

    # ---- the walk ------------------------------------------------------------------------------------------

    def ways(self, partial: Partial, frame: Frame) -> Iterator[End]:
        self.count()
        settled = with_tests(self, partial, frame)
        if settled is None:
            return
        settled = self._shortened(settled)
        literal = next_literal(settled.pending, settled.outs, self.rulebook, frame)
        if literal is None:
            yield from self._finish(settled, frame)
            return
        pending = tuple(each for each in settled.pending if each is not literal)
        rest = replace(settled, pending=pending)
        match literal:
            case Scan():
                yield from self._scan(rest, literal, frame)
            case Given():
                yield from self.ways(self._given(rest, literal), frame)
            case Member(Var() as variable, ids):
                for text in ids:
                    yield from self.ways(bind(rest, {variable: Const(text)}), frame)
            case Call():
                yield from self._call(rest, literal, frame)

    def count(self) -> None:
        """One step more of planning; too many are refused."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManySteps(MOST_STEPS)
        tick()

    def _given(self, rest: Partial, given: Given) -> Partial:
        """With the values that the question gives; a rule may have said before what the variable is."""
        source = Ids(next(self.numbers), given.slot, given.are_many)
        column = Col(source.number, "v", given.type)
        if isinstance(given.variable, Var):
            return read(rest, source, {given.variable: column})
        found = read(rest, source, {})
        return replace(found, conditions=(*found.conditions, Same(column, given.variable)))

    # ---- facts ---------------------------------------------------------------------------------------------

    def _scan(self, rest: Partial, scan: Scan, frame: Frame) -> Iterator[End]:
        for place in self.places(scan.signature):
            source = Fact(next(self.numbers), scan.signature, place)
            bound: dict[Var, Col] = {}
            conditions: list[Condition] = []
            for index, arg in enumerate(scan.args):
                column = Col(source.number, f"a{index}", scan.signature.types[index])
                if not isinstance(arg, Var):
                    conditions.append(Same(column, arg))
                elif bound.setdefault(arg, column) is not column:
                    conditions.append(Same(column, bound[arg]))
            found = read(rest, source, bound)
            yield from self.ways(replace(found, conditions=(*found.conditions, *conditions)), frame)

    # ---- calls ---------------------------------------------------------------------------------------------

    def _call(self, rest: Partial, call: Call, frame: Frame) -> Iterator[End]:
        component = self.rulebook.component(pattern_of(call))
        if component == TABLED and TABLED not in self.rulebook.nonlinear:
            yield from self._tabled(rest, call, frame)
        elif is_way(call) and is_free(call) and isinstance(end := call.args[1], Var) and has_idle_end(call, rest):
            yield from self.ways(bind(rest, {end: call.args[0]}), frame)
        elif is_way(call) and is_free(call) and component not in dict(frame.active):
            yield from self.unfolded(rest, call, frame)  # no end is known: its first hop shows one
        elif component is not None:
            yield from self._recursive_call(rest, call, frame, component)
        elif is_closed((call,), rest) and not self._unfolds(rest, call):
            yield from self._checked(rest, (call,), frame)
        elif self._multiplies(rest, call) and (are_fixed((call,), frame.fixed) or is_led_to(call)):
            yield from related(self, rest, (call,), replace(frame, fixed=frozenset()), resumed=frame)
        elif frame.may_jump and self._is_far(rest, call):
            yield from self._enter(rest, call, frame, FAR, 0)
        else:
            yield from self.unfolded(rest, call, frame)

    def _tabled(self, rest: Partial, call: Call, frame: Frame) -> Iterator[End]:
        """Join with the pattern's answers, or, where those are worked out, go on."""
        pattern = pattern_of(call)
        if pattern == frame.table:
            return self.unfolded(rest, call, frame)
        return related(self, rest, (call,), replace(frame, fixed=frozenset()), resumed=frame, table=pattern)

    def _is_far(self, rest: Partial, call: Call) -> bool:
        """Whether what led here is long enough not to be written again for each alternative."""
        return len(rest.sources) >= FAR_SOURCES and not rest.pending and not rest.outs and self._is_wide(call)

    def _multiplies(self, rest: Partial, call: Call) -> bool:
        """Whether unfolding the call would repeat the alternatives of another one for each of its own."""
        others = (each for each in rest.pending if isinstance(each, Call))
        return self._is_wide(call) and any(map(self._is_wide, others)) and not leans(self.rulebook, call, (Var, Col))

    def _is_wide(self, call: Call) -> bool:
        return len(self.rulebook.alternatives(pattern_of(call))) > 1

    def _shortened(self, partial: Partial) -> Partial:
        """Without ways that start where the same ways led already."""
        for call in partial.pending:
            if isinstance(call, Call) and is_way(call):
                rest = replace(partial, pending=tuple(each for each in partial.pending if each is not call))
                bound = self._reached(rest, call)
                if bound is not None:
                    return self._shortened(bind(rest, bound))
        return partial

    def _reached(self, rest: Partial, call: Call) -> dict[Var, Term] | None:
        """The way's end as its start, where that is one of all that the same ways lead to: nothing new lies behind."""
        start, end = call.args
        if not isinstance(start, Col) or not isinstance(end, Var) or call.types[0] != call.types[1]:
            return None
        source = next((each for each in rest.sources if each.number == start.source), None)
        if not isinstance(source, Relation) or source.net.reaches != (call.predicate, call.types[0]):
            return None
        is_used = any(start in terms_of(each) for each in rest.pending) or start in rest.outs
        return None if is_used or is_tested(start, rest.conditions) else {end: start}

    def _unfolds(self, rest: Partial, call: Call) -> bool:
        """A check is unfolded in place where that multiplies nothing."""
        are_many = [isinstance(each, Ids) and each.are_many for each in rest.sources]
        is_last = not rest.pending and (not rest.outs or (any(are_many) and all(are_many)))
        repeats = any(isinstance(condition, Holds) for condition in rest.conditions)
        return (is_last and not repeats) or len(self.rulebook.alternatives(pattern_of(call))) <= 1

    def _recursive_call(self, rest: Partial, call: Call, frame: Frame, component: int) -> Iterator[End]:
        entered = dict(frame.active)
        if component in entered:
            if frame.may_jump and len(rest.pending) <= entered[component]:
                yield from self._enter(rest, call, frame, component, entered[component])
            elif component == frame.rounds or (rest.outs and frame.may_jump):
                yield self._step(rest, call, frame, component)
            else:
                raise NonLinear(component)
            return
        if component in self.rulebook.nonlinear and component != frame.rounds:
            yield from related(self, rest, (call,), replace(frame, fixed=frozenset()), component, frame)
            return
        prefix = prefix_of(call, rest) if is_way(call) else None
        if prefix is not None:
            yield from led_from(self, rest, prefix, call, frame)
            return
        companions = companions_of(call, rest.pending, rest.outs, frame.fixed)
        unit = (call, *companions)
        others = replace(rest, pending=tuple(each for each in rest.pending if each not in companions))
        if frame.may_jump and not others.pending:
            yield from self._enter(rest, call, frame, component, len(companions))
        elif is_closed(unit, others):
            yield from self._checked(others, unit, frame)
        elif are_fixed(unit, frame.fixed):
            yield from related(self, others, unit, frame)
        elif frame.may_jump:
            yield from self._enter(rest, call, frame, component, len(rest.pending))
        else:
            raise NonLinear(frame.active[-1][0])  # another recursion, from each answer of this one

    def _enter(self, rest: Partial, call: Call, frame: Frame, component: int, left: int) -> Iterator[End]:
        """Go on in a state; where the net does not keep that state, go on here as if in it."""
        active = (*before(frame.active, component), (component, left))
        state, keys = state_of(call, rest.pending, rest.outs, active, frame.fixed)
        if frame.kept is None or state in frame.kept:
            yield Jump(rest.branch, state, keys)
        else:
            yield from self.unfolded(rest, call, replace(frame, active=active))

    def unfolded(self, rest: Partial, call: Call, frame: Frame) -> Iterator[End]:
        for clause in self.rulebook.alternatives(pattern_of(call), is_backward(call)):
            opened = self.opened(clause, call.args)
            if opened is not None:
                body, bound, conditions = opened
                partial = bind(rest, bound)
                joined = replace(
                    partial, pending=(*body, *partial.pending), conditions=(*partial.conditions, *conditions)
                )
                yield from self.ways(joined, frame)

    def make(self, start: Partial, rounds: int | None = None, table: Pattern | None = None) -> Net:
        """A net within this plan, until there are too many of them."""
        self.depth += 1
        self.nested += self.depth > 1 and table is None
        if max(self.nested, self.depth - MOST_DEEP) > MOST_NESTED and not self.rulebook.may_sprawl:
            raise Sprawling
        net = self.make_net(self, start, fixed_in(start), rounds, table)
        self.depth -= 1
        return net

    def opened(
        self, clause: Clause, args: tuple[Term, ...]
    ) -> tuple[tuple[Literal, ...], dict[Var, Term], list[Condition]] | None:
        """The clause's body for these arguments, with what it binds of them; None where a constant differs."""
        moved = {variable: self.fresh(variable) for variable in variables_of((_head(clause), *clause.body))}
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
        own = set(moved.values())
        return body, {variable: end for variable, end in ends.items() if variable not in own}, conditions

    def name(self) -> str:
        """What the next net is called: no other net of the plan is."""
        return f"n{next(self.names)}"

    def fresh(self, like: Var | Col) -> Var:
        """A variable of its own, of the same type."""
        return Var(1000 + next(self.numbers), like.name if isinstance(like, Var) else "", like.type)

    def _checked(self, rest: Partial, literals: tuple[Call, ...], frame: Frame) -> Iterator[End]:
        held = holds(self, literals, frame, rest.sources if rest.outs else ())
        if held is not False:
            conditions = rest.conditions if held is True or held in rest.conditions else (*rest.conditions, held)
            yield from self.ways(replace(rest, conditions=conditions), frame)

    def _step(self, rest: Partial, call: Call, frame: Frame, component: int) -> Step:
        companions = companions_of(call, rest.pending, rest.outs, frame.fixed)
        pending = tuple(each for each in rest.pending if each not in companions)
        needed = variables_of(pending) | set(rest.outs)
        results = tuple(dict.fromkeys(arg for arg in call.args if isinstance(arg, Var) and arg in needed))
        active = (*before(frame.active, component), (component, len(companions)))
        state, keys = state_of(call, companions, results, active, frame.fixed)
        return Step(rest.branch, state, keys, results, pending, rest.outs)

    # ---- the end of a way --------------------------------------------------------------------------------------

    def _finish(self, partial: Partial, frame: Frame) -> Iterator[End]:
        """No more facts to find: what is unbound now stands for every value."""
        unmet: list[Neg] = []
        for literal in partial.pending:
            if isinstance(literal, Cmp):
                raise UnboundVariable(next(t.name for t in terms_of(literal) if isinstance(t, Var)))
            assert isinstance(literal, Neg), "all else is met before a way ends"
            unmet.append(literal)
        asked = {out for out in partial.outs if isinstance(out, Var)}
        free = sorted(variables_of(partial.pending) - asked, key=lambda variable: variable.number)
        if free:
            yield from self._exists(partial, free[0], frame)
            return
        columns: dict[Var, Var] = {}
        for index, out in enumerate(partial.outs):
            if isinstance(out, Var):
                columns.setdefault(out, out.numbered(index))  # two columns of one value have the first one's number
        guards = tuple(substituted(literal, columns) for literal in unmet)
        yield Exit(partial.branch, substituted_terms(partial.outs, columns), guards)

    def _exists(self, partial: Partial, variable: Var, frame: Frame) -> Iterator[End]:
        """Some value that only negations mention: one that nothing else mentions, or else one of the mentioned."""
        found = candidates_of(self.rulebook, partial.pending, variable)
        if found.is_monotone:
            yield from self.ways(bind(partial, {variable: FRESH}), frame)
            return
        if not found.is_complete:
            raise CannotEnumerate("whether there is any other value that a rule compares")
        source = self.candidates(found)
        yield from self.ways(read(partial, source, {variable: Col(source.number, "v", variable.type)}), frame)

    def candidates(self, found: Found) -> Candidates:
        return Candidates(next(self.numbers), found.places, found.ids)


def _head(clause: Clause) -> Call:
    return Call("", (), clause.params)
