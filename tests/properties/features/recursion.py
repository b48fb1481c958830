"""Groups, trees and chains: rules that call themselves, in every form."""

from __future__ import annotations

from tests.properties.draft import ROLES, Draft, strings


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


FEATURES = (groups, nested_groups, child_to_parent, two_recursive_calls, untyped_closure, managers, families)
