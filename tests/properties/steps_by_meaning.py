"""Every step of planning random questions held against what drafts mean.

    a step          what comes of it means together what the draft did
    explored        the entry means what was asked, a state's branches what its call says; before and after inlining
    planned         the plan of that form answers what was asked, its recursion evaluated to the least fixpoint

Orders of resolving literals are held too: any other order than the planner's gives plans of the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from unittest.mock import patch

from checks.engine.compile import Shape, planned
from checks.engine.plan import planner, unfold
from checks.engine.plan.draft import Choice, Chooser, Draft, Enclosing
from checks.engine.plan.plan import End, NonlinearRecursion, Plan, State
from checks.engine.plan.planner import Explored, Planner
from checks.engine.plan.unfold import Outcome, PlanRequest, Unfolder
from checks.engine.rules.clauses import FRESH, Call, Col, Const, Given, Literal, Member, Scan, bounded, pattern_of
from checks.engine.rules.ruleset import RuleSet
from checks.errors import InliningTooLarge
from facts.wire import Fact
from policy.errors import AuthzError
from policy.rules.program import Signature
from policy.values import Value
from tests.checks.in_memory import Engine
from tests.properties.passes_by_meaning import Values, accepted, values_of, world_of
from tests.properties.plans_by_meaning import by_signature, put
from tests.properties.questions import Explain, values_in
from tests.properties.random_policies import Case
from tests.reference_drafts import NOBODYS, Drafts, asked_of, draft_of, free_columns
from tests.reference_plans import Known
from tests.reference_rules import Meaning, Row

PATIENCE = 1.0  # seconds of processor time to plan a question
MOST_STEPS = 400  # of a question: more are too many to hold to their meaning
TIMES = 2  # that values are given to columns that may have any
FACTS_OF_A_KIND = 3  # that are looked for, beside the case's own
OTHERWISE = 0.3  # of the literals are not the planner's choice, where another order is tried


@dataclass(frozen=True)
class Said:
    """What planning makes of drafts: other drafts that mean the same together, or a plan."""

    kind: str
    before: tuple[Draft, ...]
    after: tuple[Draft, ...] | Plan

    def __str__(self) -> str:
        after = str(self.after) if isinstance(self.after, Plan) else "\n".join(f"   ->  {each}" for each in self.after)
        return "\n".join([self.kind, *map(str, self.before), after])


@dataclass(frozen=True)
class Held:
    """The rows before and after, with the same values in columns that may have any."""

    case: Case
    said: Said
    env: dict[Col, str]
    before: set[Row]
    after: set[Row]

    @property
    def is_wrong(self) -> bool:
        return self.before != self.after

    def __str__(self) -> str:
        every = (*self.case.facts, *self.case.context)
        facts = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in every]
        env = ", ".join(f"{column} = {text}" for column, text in self.env.items())
        lost, added = self.before - self.after, self.after - self.before
        return "\n".join([self.case.policy, *facts, str(self.said), f"where {env}: loses {lost}, adds {added}"])


# ---- what is said while a question is planned -----------------------------------------------------------------------


@dataclass
class Taken:
    """A step: the draft, what was resolved of it once its tests were settled, how, and what came out."""

    draft: Draft
    settled: Draft | None = None  # None: a test is false
    literal: Literal | None = None
    kind: str = "a test is false"
    outcomes: Sequence[Outcome] = ()

    def said(self) -> Iterator[Said]:
        if not any(isinstance(each, NonlinearRecursion) for each in self.outcomes):
            yield Said(self.kind, (self.draft,), tuple(map(draft_of, self.outcomes)))


@dataclass(frozen=True)
class Graph:
    """What was explored: for the first time, or with some states in place."""

    starts: tuple[Draft, ...]
    enclosing: Enclosing
    explored: Explored

    def said(self) -> Iterator[Said]:
        kind = "inlined" if self.enclosing.in_place else "explored"
        if self.explored.nonlinear is None:
            yield Said(kind, self.starts, tuple(map(draft_of, self.explored.entry)))
            for state, ends in self.explored.arms.items():
                goals = (Col(self.explored.goals[state], f"c{key.index}", key.type) for key in state.keys)
                yield Said(f"{kind}: a state", (Draft(*asked_of(state, goals)),), tuple(map(draft_of, ends)))


@dataclass(frozen=True)
class Made:
    request: PlanRequest
    plan: Plan
    graphs: list[Graph]
    begun: list[Draft]  # what all its steps began with

    def said(self) -> Iterator[Said]:
        yield Said(f"plan: {self.plan.form.name}", (self.request.start,), self.plan)


@dataclass
class Record:
    """All steps, graphs and plans, each in the order of being done; what the steps of states begin with, by goals."""

    steps: list[Taken] = field(default_factory=list)
    arms: dict[int, list[Draft]] = field(default_factory=dict)
    graphs: list[Graph] = field(default_factory=list)
    plans: list[Made] = field(default_factory=list)

    @property
    def said(self) -> list[Said]:
        return [said for each in (*self.steps, *self.graphs, *self.plans) for said in each.said()]


@contextmanager
def recorded(choose: Callable[[Chooser, Draft], Literal | None] = Chooser.next_literal) -> Iterator[Record]:
    """Records what planning does meanwhile; `choose` says which literal is resolved next."""
    record = Record()
    steps: list[Taken] = []  # that are being taken: a step may plan what a draft asks apart
    graphs: list[list[Graph]] = [[]]  # of the plans that are being made
    begun: list[list[Draft]] = [[]]  # of the same

    def next_noted(self: Chooser, draft: Draft) -> Literal | None:
        literal = choose(self, draft)
        steps[-1].settled, steps[-1].literal = draft, literal
        steps[-1].kind = type(literal).__name__ if literal else "finished"
        return literal

    def chosen(self: Chooser, call: Call, rest: Draft) -> Choice:
        choice = own_chosen(self, call, rest)
        steps[-1].kind = choice.resolution.name
        return choice

    def step(self: Unfolder, draft: Draft) -> Sequence[Outcome]:
        steps.append(Taken(draft))
        try:
            steps[-1].outcomes = own_step(self, draft)
            record.steps.append(steps[-1])
            return steps[-1].outcomes
        finally:
            steps.pop()

    def ends(self: Unfolder, drafts: Iterable[Draft]) -> Iterator[End | NonlinearRecursion]:
        drafts = tuple(drafts)
        begun[-1] += drafts
        return own_ends(self, drafts)

    def arms(unfolder: Unfolder, state: State, goals: int, enclosing: Enclosing) -> list[Draft]:
        record.arms[goals] = own_arms(unfolder, state, goals, enclosing)
        return record.arms[goals]

    def explore(unfolder: Unfolder, starts: Iterable[Draft], enclosing: Enclosing) -> Explored:
        starts = tuple(starts)
        graph = Graph(starts, enclosing, own_explore(unfolder, starts, enclosing))
        record.graphs.append(graph)
        graphs[-1].append(graph)
        return graph.explored

    def made(self: Planner, request: PlanRequest) -> Plan:
        graphs.append([])
        begun.append([])
        try:
            plan = own_made(self, request)
            record.plans.append(Made(request, plan, graphs[-1], begun[-1]))
            return plan
        finally:
            graphs.pop()
            begun.pop()

    own_chosen, own_step, own_ends = Chooser.chosen, Unfolder.step, Unfolder.ends
    own_arms, own_explore, own_made = planner._arms, planner.explore, Planner._planned
    with (
        patch.object(Chooser, "next_literal", next_noted),
        patch.object(Chooser, "chosen", chosen),
        patch.object(Unfolder, "step", step),
        patch.object(Unfolder, "ends", ends),
        patch.object(planner, "_arms", arms),
        patch.object(planner, "explore", explore),
        patch.object(Planner, "_planned", made),
    ):
        yield record


def in_another_order(rng: Random) -> Callable[[Chooser, Draft], Literal | None]:
    """A choice of the next literal that is often not the planner's."""

    usual = Chooser.next_literal

    def chosen(self: Chooser, draft: Draft) -> Literal | None:
        every = [each for each in draft.pending if isinstance(each, (Call, Scan, Given, Member))]
        return rng.choice(every) if every and rng.random() < OTHERWISE else usual(self, draft)

    return chosen


# ---- held against what it means -------------------------------------------------------------------------------------


def held(case: Case, rng: Random, questions: int = 2, in_order: bool = True) -> Iterator[Held]:
    """What is said while some of the case's questions are planned; some rule sets table what is shared."""
    engine = Engine(case.policy, patience=PATIENCE)
    facts, context = (accepted(engine.rules.program, each) for each in (case.facts, case.context))
    asks = [each.ask for each in case.questions if not isinstance(each.ask, Explain)]
    for ask in rng.sample(asks, min(questions, len(asks))):
        asked = put(ask, engine.rules.program)
        if not asked:
            continue  # of types that the policy does not have
        brought = context if rng.random() < 0.5 else []
        shape, slots = engine.shape(asked, [Fact(*each) for each in brought])
        said = said_of(engine.rules, shape, rng, in_order)
        values = values_of(engine.rules.program, [*facts, *brought], values_in(ask))
        stored = list(dict.fromkeys([*facts, *facts_looked_for(said, values, rng)]))
        drafts = drafts_of(engine.rules, stored, brought, values, slots)
        for each in said:
            yield from _held(replace(case, facts=tuple(stored), context=tuple(brought)), each, drafts, rng)


def said_of(rules: RuleSet, shape: Shape, rng: Random, in_order: bool) -> list[Said]:
    """What planning says of the question, as far as it gets; now and then with tables of what rules share."""
    stores = shape.stores(lambda signature: True)
    if rng.random() < 0.3:
        rules = rules.tabling([pattern_of(call) for root in shape.roots for call in root.calls])
    choose = Chooser.next_literal if in_order else in_another_order(rng)
    few = patch.object(unfold, "MOST_STEPS", MOST_STEPS)
    with recorded(choose) as record, few, suppress(AuthzError, InliningTooLarge), bounded(PATIENCE):
        for root in shape.roots:
            is_narrow, prefers_sets = cache(lambda *argument: rng.random() < 0.5), rng.random() < 0.5
            planned(Planner(rules, stores, is_narrow, prefers_sets=prefers_sets), root, shape.width)
    return record.said


def facts_looked_for(said: list[Said], values: Values, rng: Random) -> Iterator[tuple[str, tuple[Value, ...]]]:
    """Some facts of each kind that the drafts look for, so that more of them have rows."""
    wanted: dict[tuple[Signature, tuple[tuple[str, ...], ...]], None] = {}
    for draft in (each for one in said for each in one.before):
        lists = {each.variable: each.ids for each in draft.pending if isinstance(each, Member)}
        for scan in (each for each in draft.pending if isinstance(each, Scan)):
            names = ((arg.id,) if isinstance(arg, Const) and arg != FRESH else lists.get(arg, ()) for arg in scan.args)
            wanted[scan.signature, tuple(names)] = None
    known = {kind: tuple(each for each in own if each.id not in NOBODYS) for kind, own in values.items()}
    for signature, names in wanted:
        for _ in range(FACTS_OF_A_KIND * all(map(known.get, signature.types))):
            typed = zip(signature.types, names)
            row = [Value(kind, rng.choice(own)) if own else rng.choice(known[kind]) for kind, own in typed]
            yield signature.predicate, tuple(row)


def drafts_of(rules: RuleSet, facts: list, brought: list, values: Values, slots: dict[str, object]) -> Drafts:
    world = world_of([*facts, *brought], values)
    world = replace(world, slots=slots | world.slots)
    known = Known(by_signature(facts), by_signature(brought), world.slots)
    return Drafts(known, Meaning(rules.alternatives, world))


def _held(case: Case, said: Said, drafts: Drafts, rng: Random) -> Iterator[Held]:
    """Once, or several times, with other values in the columns that may have any."""
    after = () if isinstance(said.after, Plan) else said.after
    columns = sorted(set().union(*map(free_columns, (*said.before, *after))), key=str)
    for _ in range(TIMES if columns else 1):
        env = {column: rng.choice(drafts.meaning.world.ids[column.type]) for column in columns}
        means = set().union(*(drafts.rows(each, env) for each in said.before))
        if isinstance(said.after, Plan):
            yield Held(case, said, env, means, drafts.rows_of_plan(said.after, env))
        else:
            yield Held(case, said, env, means, set().union(*(drafts.rows(each, env) for each in after)))
