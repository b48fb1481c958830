"""Ladders: predicates each over the last, recursive over relations of any argument, with conditions on lower ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy.values import ACTOR, RESOURCE, STRING
from tests.properties.draft import PERMISSIONS, ROLES, Block, Draft, strings
from tests.properties.features.conditions import Edge, Env, Kinds, Land, Predicate

HAS_ROLE = "has_role"


@dataclass(frozen=True)
class Rung:
    """A predicate in the making; `types` as they are written in heads, where "" is none."""

    name: str
    types: tuple[str, ...]
    places: tuple[Kinds, ...]

    @property
    def predicate(self) -> Predicate:
        return Predicate(self.name, self.places)


# ---- the ground ---------------------------------------------------------------------------------------------


def land_of(draft: Draft, is_small: bool = False) -> Land:
    land = Land(draft, calm=0.6 if is_small else 1)
    draft.actor("Group")
    if draft.often(0.05 if is_small else 0.3):
        draft.actor(draft.pick("Staff", "Robot"), extends=draft.pick("User", ""))
    if draft.often(0.05 if is_small else 0.25):
        draft.resource("Item")
        draft.resource("Page", extends="Item")
    place = draft.some_resource()
    place.relations.setdefault("parent", place.name)
    groups_of(land)
    for block in draft.resources():
        for relation, target in block.relations.items():
            near, far = land.kinds_of(block.name), land.kinds_of(target)
            land.edges.append(Edge(f'has_relation({{0}}, "{relation}", {{1}})', near, far))
    for _ in range(draft.rng.choice((0, 0, 1) if is_small else (0, 0, 1, 2))):
        edge_of_its_own(land)
    return land


def groups_of(land: Land) -> None:
    draft = land.draft
    members, group = land.kinds_of(ACTOR), land.kinds_of("Group")
    draft.fact("has_group", land.values(members), land.values(group), label="ladder has_group")
    land.edges += [Edge("has_group({0}, {1})", members, group)] * 2
    if draft.often(0.2):
        draft.rule("has_group(x: Actor, outer: Group) if has_group(x, inner) and has_group(inner, outer)")
        draft.asks("has_group", land.values(members), land.values(group))


def edge_of_its_own(land: Land) -> None:
    near = land.some_kinds()
    edge = Predicate(land.name("e"), (near, near if land.draft.often(0.6) else land.some_kinds()))
    land.store(edge)
    land.facts.append(edge)
    land.edges.append(Edge(f"{edge.name}({{0}}, {{1}})", *edge.places))


# ---- rungs ----------------------------------------------------------------------------------------------------


def ladder(draft: Draft) -> None:
    """A few rungs, of which the last grants something."""
    land = land_of(draft)
    count = draft.rng.choice((2, 2, 3, 3, 4, 5))
    for index in range(count):
        rungs = [rung_of(land, some_types(land, is_top=index == count - 1))]
        if draft.often(0.2):
            rungs.append(Rung(land.name("l"), rungs[0].types, rungs[0].places))
        for each in rungs:
            fill(land, each, rungs)
        land.rungs += [each.predicate for each in rungs]
        if index == count - 1 or draft.often(0.15):
            grant(land, rungs[0])


def small_ladder(draft: Draft) -> None:
    """One rung or two of few rules: planned soon, so that there can be many."""
    land = land_of(draft, is_small=True)
    lower = [rung_of(land, some_types(land, is_top=True)) for _ in range(draft.rng.choice((0, 1, 1)))]
    top = rung_of(land, some_types(land, is_top=True))
    for each in (*lower, top):
        draft.rule(base_of(land, each))
        for _ in range(draft.rng.choice((1, 1, 2))):
            draft.rule(step_of(land, each, each) or base_of(land, each))
        draft.asks(each.name, *(land.values(kinds) for kinds in each.places))
        land.rungs.append(each.predicate)
    grant(land, top)


def role_ladder(draft: Draft) -> None:
    """Roles themselves climb: through groups, up and down relations, with conditions on lower rungs."""
    land = land_of(draft)
    for _ in range(draft.rng.randint(0, 3)):
        rung = rung_of(land, some_types(land, is_top=False))
        fill(land, rung, [rung])
        land.rungs.append(rung.predicate)
    for _ in range(draft.rng.randint(1, 3)):
        place = draft.pick(RESOURCE, *(block.name for block in draft.resources()))
        types = (draft.pick(ACTOR, "User", "Group", ""), STRING, place)
        rung = Rung(HAS_ROLE, types, tuple(map(land.kinds_of, types)))
        draft.rule(step_of(land, rung, rung) or base_of(land, rung))
    actors, places = land.values(land.kinds_of(ACTOR)), draft.of(*(block.name for block in draft.resources()))
    draft.fact(HAS_ROLE, actors, strings(ROLES), places, label="ladder roles")


def some_types(land: Land, is_top: bool) -> tuple[str, ...]:
    draft = land.draft
    resources = [block.name for block in draft.resources()]
    who = draft.pick(ACTOR, ACTOR, "User", "Group", "")
    what = draft.pick(RESOURCE, "", *resources, *resources)
    if is_top or draft.often(0.6):
        return (who, STRING, what) if draft.often(0.25) else (who, what)
    names = [*draft.ids, ACTOR, RESOURCE]
    return tuple(draft.pick(*names) for _ in range(draft.rng.choice((1, 1, 2, 2, 3))))


def rung_of(land: Land, types: tuple[str, ...]) -> Rung:
    return Rung(land.name("l"), types, tuple(map(land.kinds_of, types)))


def fill(land: Land, rung: Rung, siblings: list[Rung]) -> None:
    """The rules of a rung, which may call the others of the same height."""
    draft = land.draft
    for _ in range(draft.rng.choice((1, 1, 2))):
        draft.rule(base_of(land, rung))
    for _ in range(draft.rng.choice((0, 1, 1, 1, 2))):
        text = step_of(land, rung, draft.rng.choice(siblings))
        if text:
            draft.rule(text)
    if draft.often(0.12):
        both = twice_of(land, rung)
        if both:
            draft.rule(both)
    slots = [land.values(kinds) for kinds in rung.places]
    draft.asks(rung.name, *slots)
    if draft.often(0.3):
        draft.fact(rung.name, *slots, label=f"{rung.name} itself")


def head_of(land: Land, rung: Rung, narrow: float) -> tuple[str, Env]:
    """A head with variables, now and then one that nothing binds, or a literal; and what the body may mention."""
    params, env = [], {}
    for index, (type_name, kinds) in enumerate(zip(rung.types, rung.places)):
        chance = land.draft.rng.random()
        if chance < 0.05:
            params.append(str(land.draft.rng.choice(land.values(kinds))))
            continue
        if chance < narrow and type_name != STRING:  # a rule about some of them only
            exact = land.draft.rng.choice(kinds)
            type_name, kinds = exact, land.kinds_of(exact)
        name = "_" if chance > 0.96 else "xyz"[index]
        params.append(f"{name}: {type_name}" if type_name else name)
        env |= {} if name == "_" else {name: kinds}
    return f"{rung.name}({', '.join(params)})", env


def base_of(land: Land, rung: Rung) -> str:
    """What a rung starts from: facts, a lower rung, and conditions. Often it starts from one type only."""
    draft = land.draft
    head, env = head_of(land, rung, 0.45)
    parts = []
    if env and draft.often(0.8):
        names = list(env) if draft.often(0.8) else draft.rng.sample(list(env), 1)
        parts.append(f"{land.fact(*(env[name] for name in names)).name}({', '.join(names)})")
    elif land.rungs:
        parts.append(land.lower(env))
    return ruled(land, head, parts, env, 0.35)


def ruled(land: Land, head: str, parts: list[str], env: Env, chance: float) -> str:
    """The rule with its conjuncts in any order, and perhaps conditions."""
    draft = land.draft
    while draft.often(chance * land.calm):
        parts = [*parts, land.condition(env)]
    return f"{head} if {' and '.join(draft.rng.sample(parts, len(parts)))}" if parts else head


def step_of(land: Land, rung: Rung, callee: Rung) -> str | None:
    """One step along an edge of one argument, and the rung again from there."""
    head, env = head_of(land, rung, 0.2)
    step = step_from(land, rung, env)
    if step is None:
        return None
    name, parts, env = step
    parts = [*parts, *on_the_way(land, env, name), called(land, rung, callee, env, {name: "g"})]
    return ruled(land, head, parts, env, 0.3)


def on_the_way(land: Land, env: Env, name: str) -> Iterator[str]:
    """What the step asks for besides: a lower rung that may be recursive itself, or a fact that ties both arguments."""
    if land.rungs and land.draft.often(0.45):
        yield f"{land.draft.pick('not ', 'not ', '')}{land.lower(env)}"
    others = [other for other in env if other not in (name, "g")]
    if others and land.draft.often(0.35):
        pair = ("g", land.draft.rng.choice(others))
        yield f"{land.fact(*(env[each] for each in pair)).name}({', '.join(pair)})"


def step_from(land: Land, rung: Rung, env: Env, to: str = "g") -> tuple[str, list[str], Env] | None:
    """The variable that takes a step, the conjuncts that say so, and the variables there are then."""
    ways = []
    for name, kinds in env.items():
        target = set(rung.places["xyz".index(name)])
        for edge in land.edges:
            for near, far, text, often in (
                (edge.near, edge.far, edge.text.format(name, to), 3),
                (edge.far, edge.near, edge.text.format(to, name), 1),
            ):
                if set(near) & set(kinds) and set(far) & target:
                    ways += [(name, text, tuple(kind for kind in far if kind in target))] * often
    if not ways:
        return None
    name, text, far = land.draft.rng.choice(ways)
    guards = [f"{to} matches {land.draft.rng.choice([*far, *far, RESOURCE])}"] if land.draft.often(0.4) else []
    return name, [text, *guards], {**env, to: far}


def called(land: Land, rung: Rung, callee: Rung, env: Env, moved: dict[str, str]) -> str:
    args = []
    for name, kinds in zip("xyz", rung.places):
        if name in env:
            args.append(moved.get(name, name))
        else:
            args.append(land.argument(kinds, {}))
    return f"{callee.name}({', '.join(args)})"


def twice_of(land: Land, rung: Rung) -> str | None:
    """Two calls of itself: through something in between, or after two steps."""
    head, env = head_of(land, rung, 0.2)
    if len(rung.places) == 2 and len(env) == 2 and set(rung.places[0]) & set(rung.places[1]):
        return ruled(land, head, [f"{rung.name}(x, m)", f"{rung.name}(m, y)"], env, 0.2)
    first = step_from(land, rung, env)
    second = first and step_from(land, rung, env, "h")
    if not second:
        return None
    calls = [called(land, rung, rung, env, {each[0]: to}) for each, to in ((first, "g"), (second, "h"))]
    return ruled(land, head, [*first[1], *second[1], *calls], {**first[2], **second[2]}, 0.2)


# ---- the top ----------------------------------------------------------------------------------------------------


def grant(land: Land, top: Rung) -> None:
    """A permission or a role for whoever stands on the rung."""
    draft, place = land.draft, granted_place(land, top)
    env = {"u": ("User",), "r": (place.name,)}
    args = [_granted(land, index, kinds, place) for index, kinds in enumerate(top.places)]
    env |= {"p": (STRING,)} if "p" in args else {}
    call = f"{top.name}({', '.join(args)})"
    if draft.often(0.3):
        head = f"{HAS_ROLE}(u: {draft.pick('User', ACTOR)}, {_said(draft, args, draft.role())}, r: {place.name})"
    else:
        head = f"has_permission(u: User, {_said(draft, args, draft.permission())}, r: {place.name})"
    draft.rule(ruled(land, head, [call], {name: kinds for name, kinds in env.items() if name != "p"}, 0.35))
    place.permissions = tuple(dict.fromkeys((*place.permissions, *PERMISSIONS[:1])))


def granted_place(land: Land, top: Rung) -> Block:
    kinds = top.places[-1] if top.places else ()
    return land.draft.rng.choice(
        [each for each in land.draft.resources() if each.name in kinds] or land.draft.resources()
    )


def _granted(land: Land, index: int, kinds: Kinds, place: Block) -> str:
    if kinds == (STRING,):
        return land.draft.pick("p", '"r0"', "_")
    if place.name in kinds and (index or "User" not in kinds):
        return "r"
    return "u" if "User" in kinds else "_"


def _said(draft: Draft, args: list[str], otherwise: str) -> str:
    return "p: String" if "p" in args else f'"{otherwise}"'


FEATURES = (small_ladder, small_ladder, small_ladder, ladder, role_ladder)
