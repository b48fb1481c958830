"""Random policies with facts, context facts and questions: every feature of the language, mixed.

random_case(Random(7))  # the same seed, the same case; perhaps not one that the compiler takes
case_of(7)              # the first that it takes
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from random import Random

from policy.errors import AuthzError
from policy.language.source import Source
from policy.rules import compile_source
from policy.values import STRING, Value
from tests.properties.draft import Block, Draft, Shape, Slot
from tests.properties.features import FEATURES, LADDERS, foundation
from tests.properties.questions import Actions, Ask, Authorize, AuthorizeResources, Evaluate, List, QueryFacts, Question
from tests.reference import Row

QUESTIONS = 14
RESTRICTED = "restricted"  # the feature of a case in which facts bind every variable of every rule
GOALS = 4
FEW = {False: (1, 7), True: (0, 2)}  # features beside a ladder, which is more than one idea itself
Feature = Callable[[Draft], None]
ACTIONS = ("p0", "p1", "p2", "r0", "zap", "nope")


@dataclass(frozen=True)
class Case:
    blocks: tuple[Block, ...]
    rules: tuple[str, ...]
    facts: tuple[tuple[str, Row], ...]
    context: tuple[tuple[str, Row], ...]
    questions: tuple[Question, ...]
    features: tuple[str, ...]
    ids: tuple[Value, ...]  # of users and things, for rules that name them
    goals: tuple[tuple[str, Row], ...] = ()  # what rules may make true

    @property
    def policy(self) -> str:
        return "\n".join([*(block.text() for block in self.blocks), *self.rules]) + "\n"


def case_of(seed: int) -> Case:
    """The seed's first case that is a policy."""
    rng = Random(seed)
    return next(case for case in iter(lambda: random_case(rng), None) if is_policy(case))


def is_policy(case: Case) -> bool:
    """Whether each variable can have a type: rules are made up without looking."""
    try:
        compile_source(Source(case.policy))
    except AuthzError:
        return False
    return True


def random_case(rng: Random, wanted: Collection[str] = ()) -> Case:
    """Of features whose names, or whose modules' names, are among those wanted; of all, where none is."""
    draft = Draft(rng)
    climbs = draft.often(0.4) or "ladders" in wanted
    features = named(wanted) or [*rng.sample(LADDERS, climbs), *rng.sample(FEATURES, rng.randint(*FEW[climbs]))]
    foundation.lay(draft, is_small=climbs and draft.often(0.75))
    for feature in rng.sample(features, min(len(features), rng.choice((1, 1, 1, 2)))) if wanted else features:
        draft.features.add(feature.__name__)
        feature(draft)
    foundation.let_in(draft)
    facts = random_facts(draft, draft.rng.randint(0, 60))
    context = [fact for fact in random_facts(draft, draft.rng.randint(0, 8)) if fact not in facts]
    questions = tuple(Question(random_ask(draft), draft.often(0.4)) for _ in range(QUESTIONS))
    ids = tuple(value for slot in draft.ids.values() for value in slot)
    blocks, features = tuple(draft.blocks.values()), tuple(sorted(draft.features))
    goals = tuple(random_goal(draft) for _ in range(GOALS))
    return Case(blocks, tuple(draft.rules), tuple(facts), tuple(context), questions, features, ids, goals)


def named(wanted: Collection[str]) -> list[Feature]:
    every = (*LADDERS, *FEATURES)
    return [each for each in every if {each.__name__, each.__module__.rpartition(".")[2]} & set(wanted)]


# ---- facts ------------------------------------------------------------------------------------------------


def random_facts(draft: Draft, count: int) -> list[tuple[str, Row]]:
    """Often of few signatures only: what has no facts is left out of plans. And often there are cycles."""
    shapes = list(draft.shapes.values())
    if draft.often(0.6):
        exact = [each for shape in shapes for each in signatures(shape)]
        shapes = [each for each in exact if draft.often(0.5)] or exact
    rows = [(shape.predicate, random_row(draft, shape)) for shape in draft.rng.choices(shapes, k=count)]
    if count and draft.often(0.3):
        rows += itertools.chain.from_iterable(cycle(draft, shape) for shape in shapes if draft.often(0.5))
    return list(dict.fromkeys(rows))


def signatures(shape: Shape) -> Iterator[Shape]:
    """The shape with values of one type in each place, in every way."""
    for types in itertools.product(*(dict.fromkeys(value.type for value in slot) for slot in shape.slots)):
        slots = (tuple(v for v in slot if v.type == name) for slot, name in zip(shape.slots, types))
        yield replace(shape, slots=tuple(slots))


def cycle(draft: Draft, shape: Shape) -> Iterator[tuple[str, Row]]:
    """Facts that lead from the first place to the last, through some of the values that may be in both."""
    both = [value for value in shape.slots[0] if value in shape.slots[-1]]
    if len(shape.slots) > 1 and both:
        ring = draft.rng.sample(both, draft.rng.randint(1, min(4, len(both))))
        for near, far in zip(ring, (*ring[1:], ring[0])):
            yield shape.predicate, (near, *random_row(draft, shape)[1:-1], far)


def random_row(draft: Draft, shape: Shape) -> Row:
    return tuple(draft.rng.choice(slot) for slot in shape.slots)


# ---- questions --------------------------------------------------------------------------------------------


def random_ask(draft: Draft) -> Ask:
    actor, resource = some(draft, draft.actors()), some(draft, targets(draft))
    action = draft.pick(*((draft.often(0.8) and draft.blocks[resource.type].permissions) or ACTIONS))
    match draft.rng.randint(0, 9):
        case 0 | 1:
            return Authorize(actor, action, resource)
        case 2:
            return Actions(actor, resource)
        case 3 | 4:
            return List(actor, action, resource.type)
        case 5:
            resources = tuple(some(draft, targets(draft)) for _ in range(draft.rng.randint(0, 6)))
            return AuthorizeResources(actor, action, resources)
        case 6:
            return random_query(draft)
        case _:
            return random_evaluation(draft)


def targets(draft: Draft) -> Slot:
    names = [block.name for block in draft.resources()] if draft.often(0.9) else []
    return tuple(value for name in names or draft.ids for value in draft.ids[name])


def some(draft: Draft, slot: Slot) -> Value:
    """One of the values, or one of their types that nothing else mentions."""
    value = draft.rng.choice(slot)
    if value.type in draft.ids and draft.often(0.1):
        return Value(value.type, "nobody")
    return Value(STRING, "zap") if value.type == STRING and draft.often(0.05) else value


def some_shape(draft: Draft) -> Shape:
    pool = draft.derived if draft.often(0.8) else draft.shapes
    return draft.rng.choice(list(pool.values()))


def random_goal(draft: Draft) -> tuple[str, Row]:
    shape = draft.rng.choice(list(draft.derived.values()))
    return shape.predicate, random_row(draft, shape)


def random_query(draft: Draft) -> QueryFacts:
    shape = some_shape(draft)
    pattern: list[tuple[str | None, str | None]] = []
    for position, slot in enumerate(shape.slots):
        value = some(draft, slot)
        exact, typed, anything = (value.type, value.id), (value.type, None), (None, None)
        pattern.append(exact if position in shape.given else draft.rng.choice((exact, exact, typed, anything)))
    return QueryFacts(shape.predicate, tuple(pattern))


def random_evaluation(draft: Draft) -> Evaluate:
    constraints: dict[str, tuple[str, tuple[str, ...] | None]] = {}
    shapes = [some_shape(draft) for _ in range(draft.rng.choice((1, 1, 1, 2, 3)))]
    calls = tuple((shape.predicate, variables(draft, shape, constraints)) for shape in shapes)
    return Evaluate(calls, tuple((name, kind, ids) for name, (kind, ids) in constraints.items()))


def variables(draft: Draft, shape: Shape, constraints: dict) -> tuple[str, ...]:
    names: list[str] = []
    later = bool(constraints)
    for position, slot in enumerate(shape.slots):
        value = some(draft, slot)
        known = [name for name, (kind, _) in constraints.items() if kind == value.type]
        joins = 0.7 if later and value.type != STRING else 0.1
        if known and position not in shape.given and draft.often(joins):
            names.append(draft.rng.choice(known))
            continue
        name = f"v{len(constraints)}"
        constraints[name] = (value.type, (value.id,) if position in shape.given else some_ids(draft, slot, value))
        names.append(name)
    return tuple(names)


def some_ids(draft: Draft, slot: Slot, value: Value) -> tuple[str, ...] | None:
    chance = draft.rng.random()
    if chance < 0.45:
        return (value.id,)
    if chance < 0.6:
        others = [other.id for other in slot if other.type == value.type]
        return tuple(dict.fromkeys((value.id, *draft.rng.sample(others, draft.rng.randint(0, len(others))))))
    return () if chance < 0.63 else None


# ---- smaller cases --------------------------------------------------------------------------------------------


def smaller(case: Case) -> Iterator[Case]:
    """The case with less: first without much, then without one thing, in every way."""
    for part in ("facts", "rules", "context", "blocks"):
        yield from (replace(case, **{part: less}) for less in parts_of(getattr(case, part)))
    for i, block in enumerate(case.blocks):
        for less in parts_of(tuple(block.shorthands)):
            made = replace(block, shorthands=list(less))
            yield replace(case, blocks=(*case.blocks[:i], made, *case.blocks[i + 1 :]))
    for i, rule in enumerate(case.rules):
        for less in shorter(rule):
            yield replace(case, rules=(*case.rules[:i], less, *case.rules[i + 1 :]))


def parts_of(things: tuple) -> Iterator[tuple]:
    """Without runs of them, the longest first."""
    size = len(things)
    while size:
        for start in range(0, len(things), size):
            yield things[:start] + things[start + size :]
        size //= 2


def shorter(rule: str) -> Iterator[str]:
    """The rule without one of its conjuncts."""
    head, _, body = rule.removesuffix(";").partition(" if ")
    parts = conjuncts(body)
    for i in range(len(parts)):
        less = " and ".join(parts[:i] + parts[i + 1 :])
        yield f"{head} if {less};" if less else f"{head};"


def conjuncts(body: str) -> list[str]:
    """The parts between `and`, but for those in parentheses."""
    found, depth = [""], 0
    for word in re.split(r"( and |[()])", body):
        depth += (word == "(") - (word == ")")
        if word == " and " and not depth:
            found.append("")
        else:
            found[-1] += word
    return [part for part in found if part]
