"""Random policies with facts, context facts and questions: every feature of the language, mixed.

    case = random_case(Random(7))        # for long runs: the same seed, the same case
    @given(cases())                      # for hypothesis, which makes a failing one smaller
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

from policy.values import STRING, Value
from tests.properties.draft import Block, Draft, Shape, Slot
from tests.properties.features import FEATURES, foundation
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeResources,
    Evaluate,
    List,
    QueryFacts,
    Question,
)
from tests.reference import Row

QUESTIONS = 14
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

    @property
    def policy(self) -> str:
        return "\n".join([*(block.text() for block in self.blocks), *self.rules]) + "\n"


def cases() -> st.SearchStrategy[Case]:
    return st.randoms(use_true_random=False).map(random_case)


def random_case(rng: Random) -> Case:
    draft = Draft(rng)
    foundation.lay(draft)
    for feature in rng.sample(FEATURES, rng.randint(1, 7)):
        draft.features.add(feature.__name__)
        feature(draft)
    foundation.let_in(draft)
    facts = random_facts(draft, draft.rng.randint(0, 60))
    context = [fact for fact in random_facts(draft, draft.rng.randint(0, 8)) if fact not in facts]
    questions = tuple(Question(random_ask(draft), draft.often(0.4)) for _ in range(QUESTIONS))
    ids = tuple(value for slot in draft.ids.values() for value in slot)
    blocks, features = tuple(draft.blocks.values()), tuple(sorted(draft.features))
    return Case(blocks, tuple(draft.rules), tuple(facts), tuple(context), questions, features, ids)


def random_facts(draft: Draft, count: int) -> list[tuple[str, Row]]:
    shapes = list(draft.shapes.values())
    rows = ((shape.predicate, random_row(draft, shape)) for shape in draft.rng.choices(shapes, k=count))
    return list(dict.fromkeys(rows))


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
    names = [block.name for block in draft.resources()] if draft.often(0.9) else list(draft.ids)
    return tuple(value for name in names for value in draft.ids[name])


def some(draft: Draft, slot: Slot) -> Value:
    """One of the values, or one of their types that nothing else mentions."""
    value = draft.rng.choice(slot)
    if value.type in draft.ids and draft.often(0.1):
        return Value(value.type, "nobody")
    return Value(STRING, "zap") if value.type == STRING and draft.often(0.05) else value


def some_shape(draft: Draft) -> Shape:
    pool = draft.derived if draft.often(0.8) else draft.shapes
    return draft.rng.choice(list(pool.values()))


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


def smaller(case: Case) -> list[Case]:
    """The case with one thing less, in every way."""
    found = [replace(case, blocks=(*case.blocks[:i], *case.blocks[i + 1 :])) for i in range(len(case.blocks))]
    for i, block in enumerate(case.blocks):
        for j in range(len(block.shorthands)):
            less = replace(block, shorthands=block.shorthands[:j] + block.shorthands[j + 1 :])
            found.append(replace(case, blocks=(*case.blocks[:i], less, *case.blocks[i + 1 :])))
    for part in ("rules", "facts", "context"):
        things = getattr(case, part)
        found += [replace(case, **{part: things[:i] + things[i + 1 :]}) for i in range(len(things))]
    return found
