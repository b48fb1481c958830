"""Groups, trees and chains: rules that call themselves, in every form."""

from __future__ import annotations

from policy.values import Value
from tests.properties.draft import ROLES, Draft, Slot, strings


def groups(draft: Draft) -> None:
    draft.actor("Team")
    draft.fact("has_group", draft.of("User"), draft.of("Team"))
    holder, place = draft.pick("User", "Actor"), draft.pick("Resource", *(block.name for block in draft.resources()))
    draft.rule(
        f"has_role(user: {holder}, role: String, resource: {place}) if "
        "team matches Team and has_group(user, team) and has_role(team, role, resource)"
    )
    draft.fact("has_role", draft.of("Team"), strings(ROLES), draft.of(draft.some_resource().name))


def nested_groups(draft: Draft) -> None:
    groups(draft)
    draft.fact("has_group", draft.of("Team"), draft.of("Team"))
    closure = "has_group(x: {0}, outer: Team) if inner matches Team and has_group(x, inner) and has_group(inner, outer)"
    draft.rule(closure.format("Team"))
    if draft.often(0.6):
        draft.rule(closure.format("User"))


def child_to_parent(draft: Draft) -> None:
    for child, relation, parent in draft.related()[:2]:
        draft.rule(
            f'has_role(user: User, "{draft.role()}", up: {parent.name}) if down matches {child.name} and '
            f'has_relation(down, "{relation}", up) and has_role(user, "{draft.role()}", down)'
        )


def two_recursive_calls(draft: Draft) -> None:
    block, role = draft.some_resource(), draft.role()
    block.relations |= {"left": block.name, "right": block.name}
    if draft.often(0.5):
        block.roles = tuple(dict.fromkeys((*block.roles, role)))
        block.shorthands.append(f'"{role}" if "{role}" on "left" and "{role}" on "right";')
        return
    draft.rule(
        f'has_role(actor: Actor, "{role}", d: {block.name}) if e matches {block.name} and f matches {block.name} and '
        f'has_relation(d, "left", e) and has_role(actor, "{role}", e) and '
        f'has_relation(d, "right", f) and has_role(actor, "{role}", f)'
    )


def untyped_closure(draft: Draft) -> None:
    some, other = draft.of(draft.some_resource().name), draft.of(draft.some_resource().name)
    draft.fact("near", some + other, some)
    draft.fact("is_blocked", some)
    draft.rule("linked(x, y) if near(x, y)")
    stop = " and not is_blocked(y)" if draft.often(0.4) else ""
    draft.rule(f"linked(x, z) if linked(x, y) and linked(y, z){stop}")
    if draft.often(0.5):
        draft.rule("linked(y, x) if linked(x, y)")
    draft.asks("linked", some, other)
    draft.grants(draft.blocks[some[0].type], 'linked(r, other) and has_role(user, "r0", other)', "p2")


def guarded_closures(draft: Draft) -> None:
    """Of one type, of two, or of any; some go both ways, and each transitive rule may have a guard of its own."""
    draft.actor("Team")
    draft.ids["Team"] = tuple(Value("Team", an_id) for an_id in "12345")  # enough to come a long way
    team, user, thing = draft.of("Team"), draft.of("User"), draft.of(draft.some_resource().name)
    for label, nearer, farther in (("in", user, team), ("on", team, team), ("off", team + thing, thing + team)):
        draft.fact("near", nearer, farther, label=label)
    team_to_team = ("x: Team", "z: Team")
    x, z = draft.rng.choice((team_to_team, ("x: Actor", "z: Actor"), ("x: User", "z: Team"), ("x", "z")))
    draft.rule("joined(x, z) if near(x, z)")
    for start, end in dict.fromkeys(((x, z), draft.rng.choice(((x, z), team_to_team)))):
        draft.rule(f"joined({start}, {end}) if joined(x, y) and joined(y, z)" + some_guard(draft, team))
    if draft.often(0.4):
        draft.rule(f"joined({z}, {x}) if joined(x, z)")
    draft.asks("joined", team + user, team)
    draft.grants(draft.some_resource(), 'joined(user, other) and has_role(other, "r0", r)', "p2")


def some_guard(draft: Draft, team: Slot) -> str:
    match draft.rng.randint(0, 5):
        case 0:
            draft.fact("is_blocked", team)
            return " and not is_blocked(y)"
        case 1:
            draft.fact("is_open", team)
            return " and is_open(y)"
        case 2:
            draft.fact("like", team, team)
            return ' and like(w, y) and w != Team{"1"}'
        case 3:
            return ' and y != Team{"1"}'
        case 4:  # no guard: it says something of an end
            draft.fact("is_blocked", team)
            return " and not is_blocked(z)"
    return ""


def managers(draft: Draft) -> None:
    users, place = draft.of("User"), draft.some_resource()
    draft.blocks["User"].relations["manager"] = "User"
    draft.rule('above(x: User, y: User) if has_relation(y, "manager", x)')
    draft.rule('above(x: User, z: User) if above(x, y) and has_relation(z, "manager", y)')
    draft.rule(f"has_role(boss: User, role: String, r: {place.name}) if above(boss, u) and has_role(u, role, r)")
    draft.asks("above", users, users)


def families(draft: Draft) -> None:
    """Nothing but Strings."""
    people = strings(("ann", "bob", "cyd", "dan"))
    draft.fact("parent", people, people)
    draft.rule("ancestor(x: String, y: String) if parent(x, y)")
    draft.rule("ancestor(x: String, z: String) if parent(x, y) and ancestor(y, z)")
    draft.rule("related(x, y) if ancestor(z, x) and ancestor(z, y) and x != y")
    draft.rule('parent("ann", "bob")')
    draft.asks("ancestor", people, people)
    draft.asks("related", people, people)


FEATURES = (
    groups, nested_groups, child_to_parent, two_recursive_calls, untyped_closure, guarded_closures, managers, families
)  # fmt: skip
