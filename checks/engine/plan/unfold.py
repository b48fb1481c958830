"""Unfold drafts: resolve literals until only facts and conditions are left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from checks.engine.answers import FRESH_ID, SECOND_FRESH
from checks.engine.plan.draft import (
    Choice,
    Chooser,
    Draft,
    Enclosing,
    IsNarrow,
    Resolution,
    bind,
    comparison,
    is_backward,
    next_literal,
    nowhere,
    read,
)
from checks.engine.plan.plan import (
    FAR,
    Active,
    ArgumentPosition,
    Branch,
    Candidates,
    Condition,
    Continuation,
    Domain,
    End,
    Exit,
    FactScan,
    Form,
    Goals,
    Holds,
    Ids,
    Jump,
    NonlinearRecursion,
    Plan,
    Same,
    State,
    Tagged,
    before,
    state_of,
)
from checks.engine.plan.subqueries import Numbers, Subqueries
from checks.engine.rules.clauses import (
    FRESH,
    NOW,
    Call,
    Clause,
    Cmp,
    Col,
    Const,
    Given,
    GoalKey,
    Literal,
    Member,
    Neg,
    Operand,
    Other,
    Pattern,
    Scan,
    Slot,
    Term,
    Var,
    mapped,
    mentioned,
    pattern_of,
    renumbered,
    spend,
    substituted,
    substituted_terms,
    terms_of,
    tick,
    type_of,
    variables_of,
)
from checks.engine.rules.rewrite import plain_bindings, resolved
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.errors import CannotEnumerate, TooManyInliningSteps, TooManySteps, UnboundVariable
from policy.rules.components import reachable
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER

# ---- open values --------------------------------------------------------------------------------------------------
# The ids for which a test of an unbound variable may have another result than for all other ids.
#
# They are the ids that facts have at certain positions, and those that rules mention. The test has the same result for
# all other ids, so "for every value" is tested with those ids and one id that nothing mentions.
#
# `candidates_of` finds the ids that given negations can tell apart. `domains_of` finds all ids that a question's facts,
# rules and values mention: any of its rules has the same result for all other ids.


@dataclass(frozen=True, slots=True)
class RelevantIds:
    positions: tuple[ArgumentPosition, ...]
    ids: tuple[str, ...]  # mentioned in rules
    is_monotone: bool  # the variable is not negated again or compared: facts with it only make the negations false
    is_complete: bool  # no rule compares the variable with another one, whose values would matter too


def candidates_of(rules: RuleSet, literals: Iterable[Literal], variable: Var) -> RelevantIds:
    positions: dict[ArgumentPosition, None] = {}
    ids: set[str] = set()
    is_monotone = is_complete = True
    seen: set[tuple[Pattern, int]] = set()
    queue = [
        (pattern_of(literal.call), index)
        for literal in literals
        if isinstance(literal, Neg)
        for index, arg in enumerate(literal.call.args)
        if arg == variable
    ]
    while queue:
        tick()
        pattern, index = queue.pop()
        if (pattern, index) in seen:
            continue
        seen.add((pattern, index))
        for clause in rules.alternatives(pattern):
            param = clause.params[index]
            if isinstance(param, Const):
                ids.add(param.id)
            elif isinstance(param, Var):
                is_monotone &= _mentions(clause, param, positions, ids, queue)
                is_twin = clause.params.count(param) > 1 and not pattern.is_path
                is_complete &= not is_twin and not _is_compared(clause, param)
    return RelevantIds(tuple(positions), tuple(sorted(ids)), is_monotone, is_complete)


def _mentions(
    clause: Clause,
    variable: Term,
    positions: dict[ArgumentPosition, None],
    ids: set[str],
    queue: list[tuple[Pattern, int]],
) -> bool:
    """Collect where the clause uses the variable; return False if a negation, `=` or `!=` does."""
    positive = True
    for end in _other_ends(clause, variable):
        if isinstance(end, Const):
            ids.add(end.id)
        else:
            rest = tuple(each for each in clause.body if not _is_path_to(each, end))
            positive &= _mentions(Clause(clause.params, rest), end, positions, ids, queue)
    for literal in clause.body:
        match literal:
            case Scan(signature, args):
                positions.update(
                    (ArgumentPosition(signature, index), None) for index, arg in enumerate(args) if arg == variable
                )
            case Call(args=args):
                queue += [(pattern_of(literal), index) for index, arg in enumerate(args) if arg == variable]
            case Neg(call):
                positive = False
                queue += [(pattern_of(call), index) for index, arg in enumerate(call.args) if arg == variable]
            case Member(member, values) if member == variable:
                ids.update(values)
            case Cmp("!=" | "=", left, right) if variable in (left, right):
                positive = False
                ids.update(term.id for term in (left, right) if isinstance(term, Const))
            case Cmp(_, left, right) if variable in (left, right):
                raise UnboundVariable(variable.name if isinstance(variable, Var) else "_")
    return positive


def _other_ends(clause: Clause, variable: Term) -> list[Term]:
    """Return the other ends of paths from or to the variable: without hops, both ends are the same value."""
    paths = (each.args for each in clause.body if isinstance(each, Call) and each.is_path)
    return [end for args in paths if variable in args for end in args if end != variable]


def _is_path_to(literal: Literal, end: Term) -> bool:
    return isinstance(literal, Call) and literal.is_path and end in literal.args


def _is_compared(clause: Clause, variable: Var) -> bool:
    """Return whether the variable is compared with anything but a constant."""
    pairs = ((each.left, each.right) for each in clause.body if isinstance(each, Cmp))
    return any(variable in pair and not any(isinstance(term, Const) for term in pair) for pair in pairs)


# ---- all that a question mentions ----------------------------------------------------------------------------------

FAR_NUMBERS = (str(-(2**62) - 1), str(2**62 + 1))  # in addition to the Integers next to those that are mentioned


@dataclass
class Domains:
    """What a question's facts, rules and values mention, by type."""

    positions: dict[str, dict[ArgumentPosition, None]] = field(default_factory=lambda: defaultdict(dict))
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, dict[Slot | Other | Given, None]] = field(default_factory=lambda: defaultdict(dict))
    has_pairs: bool = False  # whether a rule compares two variables

    def of(self, number: int, type_name: str) -> Domain:
        """Return the ids of a type as a source with this number."""
        stand_ins = (FRESH_ID, SECOND_FRESH) if self.has_pairs else (FRESH_ID,)
        others = FAR_NUMBERS if type_name == INTEGER else stand_ins
        ids = (*others, *sorted(self.ids[type_name] | self.ids[""]))
        return Domain(number, type_name, tuple(self.positions[type_name]), ids, tuple(self.values[type_name]))

    def add(self, types: Iterable[str], terms: Iterable[Term]) -> None:
        for kind, term in zip(types, terms):
            match term:
                case Const(text):
                    self.ids[kind].add(text)
                case Slot() | Other():
                    self.values[INTEGER if term == NOW else kind][term] = None

    def add_literal(self, literal: Literal) -> None:
        match literal:
            case Scan(signature, args):
                for index, kind in enumerate(signature.types):
                    self.positions[kind][ArgumentPosition(signature, index)] = None
                self.add(signature.types, args)
            case Call(types=types, args=args) | Neg(Call(types=types, args=args)):
                self.add(types, args)
            case Member(variable, ids):
                self.ids[type_of(variable)].update(ids)
            case Given(variable, type=kind):
                self.values[kind or type_of(variable)][literal] = None
            case Cmp(_, left, right):
                self.add((type_of(right), type_of(left)), (left, right))
                self.has_pairs |= isinstance(left, Var) and isinstance(right, Var)


def domains_of(rules: RuleSet, literals: Iterable[Literal]) -> Domains:
    """Return what is mentioned by the literals, and by all clauses that they lead to."""
    found = Domains()
    literals = tuple(literals)
    every = reachable(map(pattern_of, mentioned(literals)), lambda pattern: _led_to(rules, pattern), tick)
    for literal in literals:
        found.add_literal(literal)
    for pattern in every:
        for clause in rules.alternatives(pattern):
            found.add(pattern.types, clause.params)
            variables = [each for each in clause.params if isinstance(each, Var)]
            found.has_pairs |= len(set(variables)) < len(variables) and not pattern.is_path
            for literal in clause.body:
                found.add_literal(literal)
    return found


def _led_to(rules: RuleSet, pattern: Pattern) -> list[Pattern]:
    return [pattern_of(call) for clause in rules.alternatives(pattern) for call in mentioned(clause.body)]


# ---- unfold -------------------------------------------------------------------------------------------------------
# Drafts -> the ends of the branches that they become: resolution, once per plan.
#
# Each step resolves the next literal of a draft (see `draft`): a fact becomes a source, a test becomes a condition, a
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
    is_narrow: IsNarrow = nowhere
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
        literal = next_literal(settled, self.rules, self.is_narrow)
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

        None if a constant differs.
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

        A single id that nothing mentions is enough if facts about an id can only make them false. Otherwise, all ids
        are tried for which they may have other results (see `RelevantIds`).
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


# ---- explore ------------------------------------------------------------------------------------------------------
# A draft -> the ends of its branches, and the ends of the branches of every state that they lead to.
#
# can_read(:doc)   ->   entry:    exit <- …, jump to state 0 with (s1.a2) <- parent of :doc
#                       state 0:  exit <- …, jump to state 0 with (s3.a2) <- parent of its goal


@dataclass
class Explored:
    """The ends of branches explored so far.

    If `nonlinear` is set, exploring stopped at a nonlinear recursion, and ends are missing.
    """

    entry: list[End] = field(default_factory=list)
    goals: dict[State, int] = field(default_factory=dict)  # the number of the source that the state's branches read
    arms: dict[State, list[End]] = field(default_factory=dict)
    goal_tags: dict[State, int] = field(default_factory=dict)  # the number of the state, which tags its rows
    nonlinear: NonlinearRecursion | None = None

    def ends(self) -> list[End]:
        return [*self.entry, *(end for ends in self.arms.values() for end in ends)]

    @property
    def goes_on_from_answers(self) -> bool:
        return any(isinstance(end, Continuation) for end in self.ends())

    def from_goal(self, state: State, branch: Branch) -> Branch:
        """Return the branch with the goals of the state as its first source."""
        number = self.goals[state]
        tagged = Tagged(number, self.goal_tags[state])
        return Branch((Goals(number), *branch.sources), (tagged, *branch.conditions))

    def add(self, unfolder: Unfolder, start: State, enclosing: Enclosing) -> list[State]:
        """Explore the state and all that its branches lead to; return the newly explored states."""
        found, queue = [], [start]
        while queue and not self.nonlinear:
            state = queue.pop(0)
            if state not in self.arms:
                self.goals[state] = unfolder.numbers.source()
                self.goal_tags[state] = len(self.goal_tags)
                self.arms[state] = self.collected(unfolder.ends(_arms(unfolder, state, self.goals[state], enclosing)))
                found.append(state)
                queue += [end.state for end in self.arms[state] if isinstance(end, (Jump, Continuation))]
        return found

    def collected(self, ends: Iterable[End | NonlinearRecursion]) -> list[End]:
        """Return the distinct ends. Stop at a `NonlinearRecursion`, which is stored in `nonlinear`."""
        found: list[End] = []
        for end in ends:
            if isinstance(end, NonlinearRecursion):
                self.nonlinear = end
                break
            found.append(end)
        return found if len(found) < 2 else list(dict.fromkeys(found))


def explore(unfolder: Unfolder, starts: Iterable[Draft], enclosing: Enclosing) -> Explored:
    explored = Explored()
    explored.entry = explored.collected(unfolder.ends(starts))
    for end in explored.entry:
        if isinstance(end, (Jump, Continuation)):
            explored.add(unfolder, end.state, enclosing)
    return explored


def _arms(unfolder: Unfolder, state: State, goals: int, enclosing: Enclosing) -> list[Draft]:
    """Return a draft for each clause of the state's call, with the columns of its goals for its keys."""

    def placed(term: Term) -> Term:
        return Col(goals, f"c{term.index}", term.type) if isinstance(term, GoalKey) else term

    rest = tuple(mapped(literal, placed) for literal in state.rest)
    draft = Draft(rest, tuple(map(placed, state.outs)), inside=replace(enclosing, active=state.active))
    return unfolder.in_place(mapped(state.call, placed), draft)


def goals_plan(name: str, width: int, explored: Explored, fixed: frozenset[Operand], form: Form) -> Plan:
    """Return the plan for branches that all end or jump to a state, without continuations."""
    exits = [end for end in explored.entry if isinstance(end, Exit)]
    seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
    moves: list[Jump] = []
    for state, ends in explored.arms.items():
        for end in ends:
            branch = explored.from_goal(state, end.branch)
            if isinstance(end, Exit):
                exits.append(replace(end, branch=branch))
            else:
                assert isinstance(end, Jump), "where a branch goes on from answers, the plan answers goals"
                moves.append(replace(end, branch=branch))
    return Plan(name, width, tuple(exits), seeds, tuple(moves), tuple(explored.arms), fixed=fixed, form=form)


# ---- Which states of a plan stay, and which are inlined where they are entered ------------------------------------
#     the entry jumps to state 0, state 0 to state 1, and state 1 to itself
#     ->  the entry, with the branches of state 0 in it, jumps to state 1, and state 1 to itself
#
# A state costs a table of goals; in place, its branches join with what led to them. So a state stays only if it is on a
# cycle, if it would be inlined more than once, or if it was created because it is far from the entry.


def inlined(explored: Explored, again: Callable[[frozenset[State]], Explored]) -> Explored:
    """Return the branches explored `again`, with the states inlined that need not stay.

    They are not assembled from what was explored before: more is known where a state is entered than in the state
    itself, so its literals may be resolved in another order and in other ways. Exploring again takes a quarter of the
    planning time (measured on the questions that have golden plans).
    """
    states = in_place(explored)
    if not states:
        return explored
    found = again(states)
    return explored if found.goes_on_from_answers or found.nonlinear is not None else found


def in_place(explored: Explored) -> frozenset[State]:
    """Return the states to inline: not on a cycle, not `FAR`, and with one entering place or one branch only."""
    following = {s: {e.state for e in ends if isinstance(e, Jump)} for s, ends in explored.arms.items()}
    entered = Counter(end.state for end in explored.ends() if isinstance(end, Jump))
    shared = {state for state, times in entered.items() if times > 1 and len(explored.arms[state]) > 1}
    far = {state for state in explored.arms if state.active[-1][0] == FAR}
    on_cycles = {state for state in following if state in reachable(following[state], following.__getitem__)}
    return frozenset(explored.arms.keys() - shared - far - on_cycles)
