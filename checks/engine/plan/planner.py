"""Plan a question, and the plans that it reads, each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count

from checks.engine.plan.draft import (
    Chooser,
    Draft,
    Enclosing,
    IsNarrow,
    bind,
    fixed_in,
    guards_for,
    nowhere,
    variant_of,
)
from checks.engine.plan.open_values import candidates_of, domains_of
from checks.engine.plan.plan import (
    FAR,
    Active,
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Condition,
    Continuation,
    End,
    Exit,
    Form,
    Goals,
    Jump,
    NonlinearRecursion,
    Plan,
    Same,
    State,
    Tagged,
    Variant,
)
from checks.engine.plan.unfold import Grounding, Numbers, PlanRequest, Subqueries, Unfolder, many_steps
from checks.engine.rules.clauses import (
    Call,
    Col,
    Given,
    GoalKey,
    Literal,
    Neg,
    Operand,
    Term,
    Var,
    mapped,
    type_of,
    value,
)
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.errors import InliningTooLarge
from policy.rules.components import reachable
from policy.rules.program import Signature
from policy.values import STRING

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


# ---- Plans with a table of answers: recursions whose rules continue from an answer --------------------------------
# `"read" if "read" on "parent"`, listed, continues from each readable folder to its children. The answers to all goals
# are in one table, and a branch that continues from a state's answers joins it. A tag of the answers stands for a state
# and a variant. A branch has a variant for each one that it reads, so the variants of all states are found by a
# fixpoint.


def answering_plan(
    unfolder: Unfolder, name: str, width: int, explored: Explored, enclosing: Enclosing
) -> Plan | NonlinearRecursion:
    """Return the plan, or `NonlinearRecursion` if a recursion must be evaluated in rounds first."""
    has_keys = enclosing.rounds is not None or any(state.key_count for state in explored.arms)
    work = _Work(unfolder, explored, enclosing, has_keys)
    for state in tuple(explored.arms):
        work.take(state)
    work.finish()
    if explored.nonlinear is not None:
        return explored.nonlinear
    exits = [end for end in explored.entry if isinstance(end, Exit)]
    seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
    for jump in seeds:
        exits += [work.through(jump, jump.state, variant) for variant in work.variants.get(jump.state, ())]
    return Plan(
        name,
        width,
        tuple(exits),
        seeds if has_keys else (),
        tuple(work.moves) if has_keys else (),
        tuple(explored.arms),
        tuple(work.arms),
        tuple((explored.goal_tags[state], variant) for state, variant in work.tags),
        enclosing.fixed,
        Form.ANSWERS if enclosing.rounds is None else Form.ROUNDS,
    )


@value
class _Waiting:
    """A branch of the state `owner` that continues from the answers of a state, perhaps the same one."""

    owner: State
    keys: tuple[Operand, ...]
    end: Jump | Continuation


@dataclass
class _Work:
    """State of the fixpoint: the tags found so far, and which branches wait for the answers of which state."""

    unfolder: Unfolder
    explored: Explored
    enclosing: Enclosing
    has_keys: bool
    tags: dict[tuple[State, Variant], int] = field(default_factory=dict)
    arms: dict[AnswerArm, None] = field(default_factory=dict)
    moves: dict[Jump, None] = field(default_factory=dict)
    waiting: dict[State, list[_Waiting]] = field(default_factory=dict)  # by the state whose answers are awaited
    variants: dict[State, list[Variant]] = field(default_factory=dict)
    todo: list[tuple[_Waiting, State, Variant]] = field(default_factory=list)
    inside: dict[Active, Enclosing] = field(default_factory=dict)  # of drafts that continue from an answer

    def take(self, state: State) -> None:
        """Add the state's branches: as answers if they end, as waiting if they continue."""
        number, keys = self.explored.goals[state], state.keys if self.has_keys else ()
        columns = tuple([Col(number, f"c{key.index}", key.type) for key in keys])
        for end in self.explored.arms[state]:
            branch = self.explored.from_goal(state, end.branch) if self.has_keys else end.branch
            self._note(state, columns, replace(end, branch=branch))

    def finish(self) -> None:
        """Continue each waiting branch from each variant of the state that it waits for, until nothing is new."""
        while self.todo and not self.explored.nonlinear:
            waiting, called, variant = self.todo.pop()
            for end in self.explored.collected(self._gone_on(waiting, called, variant)):
                self._note(waiting.owner, waiting.keys, end)

    def _note(self, owner: State, keys: tuple[Operand, ...], end: End) -> None:
        self.unfolder.count()
        if isinstance(end, Exit):
            self._add(owner, keys, end)
            return
        self.moves[end if isinstance(end, Jump) else Jump(end.branch, end.state, end.keys)] = None
        waiting = _Waiting(owner, keys, end)
        self.waiting.setdefault(end.state, []).append(waiting)
        for state in self.explored.add(self.unfolder, end.state, self.enclosing):
            self.take(state)
        self.todo += [(waiting, end.state, variant) for variant in self.variants.get(end.state, ())]

    def _add(self, state: State, keys: tuple[Operand, ...], end: Exit) -> None:
        key = (state, variant_of(end, self.enclosing.fixed))
        if key not in self.tags:
            self.tags[key] = len(self.tags)
            self.variants.setdefault(state, []).append(key[1])
            self.todo += [(waiting, *key) for waiting in self.waiting.get(state, ())]
        self.arms[AnswerArm(self.tags[key], keys, end)] = None

    def _gone_on(self, waiting: _Waiting, called: State, variant: Variant) -> Iterator[End | NonlinearRecursion]:
        if isinstance(waiting.end, Jump):
            return iter((self.through(waiting.end, called, variant),))
        return self._continued(waiting.owner, waiting.end, called, variant)

    def _joined(self, end: Jump | Continuation, called: State, variant: Variant) -> tuple[int, Branch]:
        """Return the branch joined with the called state's answers of that variant, and the number of that source."""
        number = self.unfolder.numbers.source()
        keys = end.keys if self.has_keys else ()
        same = tuple(Same(Col(number, f"c{index}", type_of(key)), key) for index, key in enumerate(keys))
        conditions = (*end.branch.conditions, Tagged(number, self.tags[called, variant]), *same)
        return number, Branch((*end.branch.sources, Answers(number)), conditions)

    def through(self, jump: Jump, called: State, variant: Variant) -> Exit:
        """Return the exit that passes on the called state's answers of that variant unchanged."""
        number, branch = self._joined(jump, called, variant)
        types = list(map(type_of, called.outs))
        names = tuple(Var(k, type=name) for k, name in enumerate(types))
        firsts = {second: first for first, second in variant.same}
        outs: tuple[Term, ...] = tuple(
            names[firsts.get(k, k)] if k in variant.wild else Col(number, f"o{k}", name) for k, name in enumerate(types)
        )
        known = {name: out for name, out in zip(names, outs) if not isinstance(out, Var)}
        return Exit(branch, outs, tuple(guards_for(variant, names, known)))

    def _continued(
        self, owner: State, end: Continuation, called: State, variant: Variant
    ) -> Iterator[End | NonlinearRecursion]:
        """Return the ends of the rest of the branch, continued from the called state's answers of that variant."""
        number, branch = self._joined(end, called, variant)
        known: dict[Var, Term] = {
            var: Col(number, f"o{k}", var.type) for k, var in enumerate(end.results) if k not in variant.wild
        }
        known |= {end.results[second]: end.results[first] for first, second in variant.same}
        pending = (*end.rest, *guards_for(variant, end.results, known))
        inside = self.inside.get(owner.active)
        if inside is None:
            inside = replace(self.enclosing, active=owner.active, may_jump=self.enclosing.rounds is not None)
            self.inside[owner.active] = inside
        draft = Draft(pending, end.outs, branch.sources, branch.conditions, inside)
        return self.unfolder.ends([bind(draft, known)])


# ---- The plan of a question, and the plans that it reads, each planned once ---------------------------------------
# explore   the question's branches, and the states that they lead to
# inlined   the same, with states inlined that need not stay
# form_of   how they recurse; then the plan of that form, or a new start if a recursion turns out to need rounds
#
#     exits only                                            EXITS: no recursion
#     exits only, each a lookup in all answers of a call    SET
#     jumps to states                                       GOALS, each tested at the exits of its state
#     the same, to follow one path                          PATH
#     a branch that continues from each answer of a state   ANSWERS to the goals
#     a recursion that is evaluated in rounds               ROUNDS
#     a nonlinear one                                       `NonlinearRecursion`: planned again, with that one in rounds

MOST_DEEP = 30  # levels of nested plans
MOST_INSIDE = 12  # nested plans below the first level, in total; with more, what they share is tabled


@dataclass
class Planner:
    """Plans one root of a question.

    If a plan gets too large, `InliningTooLarge` is raised, and the question is planned again in another form;
    `has_other_form` tells whether one is left. With rules of `RuleSet.asking`, which is the last form, all that they
    table is evaluated in rounds.
    """

    rules: RuleSet
    stores: Callable[[Signature], tuple[str, ...]]  # where a signature has facts: stored, inline, …
    is_narrow: IsNarrow = nowhere
    has_other_form: bool = True
    with_values: bool = True  # see `Unfolder`
    sprawling: int = 0  # other roots of the question that took too many steps
    is_grounded: bool = False  # see `Grounding`
    prefers_sets: bool = False  # see `Chooser`
    _unfolder: Unfolder = field(init=False)
    _nonlinear: set[int] = field(init=False)  # recursions that need rounds
    _names: Iterator[int] = field(default_factory=count)  # of plans: n0, n1, …
    _depth: int = 0  # levels of plans being planned
    _inside: int = 0  # plans below the first level

    def __post_init__(self) -> None:
        numbers = Numbers()
        self._nonlinear = {TABLED} if self.rules.question else set()
        subqueries = Subqueries(self.rules, numbers, self._planned_inside, by_set=not self.is_grounded)
        chooser = Chooser(self.rules, self._nonlinear, self.is_narrow, self.prefers_sets)
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
        """Return the ids that the guards can tell apart; None if a rule compares the variable with another one."""
        found = candidates_of(self.rules, guards, variable)
        return self._unfolder.candidates(found) if found.is_complete else None

    def new_source(self) -> int:
        return self._unfolder.numbers.source()

    # ---- plans ---------------------------------------------------------------------------------------------------

    def _planned_inside(self, request: PlanRequest) -> Plan:
        """Return a nested plan. Raise `InliningTooLarge` if there are too many, and another form is left."""
        if request.as_set:
            return self._planned(request)
        self._depth += 1
        self._inside += self._depth > 1 and request.table is None
        are_many = self._inside > MOST_INSIDE or self._depth > MOST_DEEP
        if are_many and self.has_other_form and not self.rules.is_tabling:
            raise InliningTooLarge
        try:
            return self._planned(request)
        finally:
            self._depth -= 1

    def _planned(self, request: PlanRequest) -> Plan:
        name = f"n{next(self._names)}"
        enclosing = Enclosing(fixed_in(request.start), rounds=request.rounds, table=request.table)
        while True:  # repeated for each recursion that turns out to need rounds
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
        start = replace(request.start, inside=enclosing)
        if not request.as_set:
            return explore(self._unfolder, [start], enclosing)
        (call,) = start.pending
        assert isinstance(call, Call), "what is looked up in a set is one call"
        return explore(self._unfolder, self._unfolder.subqueries.joined(replace(start, pending=()), call), enclosing)


def are_names(literals: Iterable[Literal], outs: Iterable[Var]) -> bool:
    """Return whether all answer columns are Strings, such as the action of `actions`, or given with the question."""
    literals = tuple(literals)
    given = {each.variable for each in literals if isinstance(each, Given)}
    calls = [each for each in literals if isinstance(each, Call)]
    kinds = {arg: kind for call in calls for arg, kind in zip(call.args, call.types)}
    return all(out in given or kinds.get(out) == STRING for out in outs)


def form_of(request: PlanRequest, explored: Explored) -> Form | NonlinearRecursion:
    """Return the form of the plan, or the `NonlinearRecursion` that must be evaluated in rounds first."""
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
