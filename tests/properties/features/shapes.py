"""Custom and global roles, `allow` rules, several types for one variable, and the rarer forms of shorthand."""

from __future__ import annotations

from tests.properties.draft import GLOBALS, PERMISSIONS, ROLES, Draft, strings


def custom_roles(draft: Draft) -> None:
    place = draft.some_resource()
    draft.resource("Role")
    draft.fact("has_custom", draft.of("User"), draft.of("Role"), draft.of(place.name))
    draft.fact("grants_permission", draft.of("Role"), strings((*PERMISSIONS, "zap")))
    draft.rule(
        f"has_permission(user: User, action: String, r: {place.name}) if "
        "role matches Role and has_custom(user, role, r) and grants_permission(role, action)"
    )


def global_roles(draft: Draft) -> None:
    block, place, users = draft.globals(), draft.some_resource(), draft.of("User")
    draft.fact("has_role", users, strings(GLOBALS))
    block.shorthands.append(f'"{draft.pick("create", "g0")}" if "g1";')
    place.shorthands.append(f'"{draft.pick(*place.roles, *place.permissions)}" if global "{draft.pick(*GLOBALS)}";')
    if draft.often(0.3):
        draft.rule(f'has_role(_: User, "{draft.pick(*GLOBALS)}")')
    draft.asks("has_permission", users, strings(("create", "zap")))
    draft.asks("allow", users, strings(("create", "zap")))


def custom_allow(draft: Draft) -> None:
    draft.fact("is_banned", draft.of("User"))
    draft.fact("impersonates", draft.of("User"), draft.of("User"))
    typed = draft.pick("actor: Actor, action: String, resource: Resource", "actor, action, resource")
    draft.rule(f"allow({typed}) if has_permission(actor, action, resource) and not is_banned(actor)")
    if draft.often(0.5):
        draft.rule(
            "allow(actor: User, action: String, resource: Resource) if "
            "impersonates(actor, user) and has_permission(user, action, resource)"
        )


def polymorphic(draft: Draft) -> None:
    place, other = draft.some_resource(), draft.some_resource()
    place.relations["within"] = "Resource"
    draft.fact("has_relation", draft.of(place.name), strings(("within",)), draft.of(place.name, other.name))
    role = draft.pick("role", f'"{draft.role()}"')
    head = "role: String" if role == "role" else role
    link = draft.pick("z matches Resource and ", "") + 'has_relation(y, "within", z)'
    draft.rule(f"has_role(a: Actor, {head}, y: {place.name}) if {link} and has_role(a, {role}, z)")


def inheritance(draft: Draft) -> None:
    """`extends`: rules on Item hold for Pages, not the other way round; Staff are Users."""
    item = draft.blocks[draft.resource("Item")]
    item.roles, item.permissions = ("r0", "r1"), ("p0", "p1")
    item.shorthands += ['"p0" if "r0";', '"r0" if "r1";']
    page = draft.blocks[draft.resource("Page", extends="Item")]
    page.roles, page.permissions = ("r2",), ("p2",)
    page.shorthands.append(f'"p2" if "{draft.pick("r0", "r1", "p1")}";')
    draft.actor("Staff", extends="User")
    draft.fact("has_role", draft.of("User"), strings(ROLES), draft.of("Item"), label="item role")
    kind, exactly = draft.pick("Item", "Page"), draft.pick("matches", "matches!")
    draft.rule(f'has_permission(u: User, "p1", i: Item) if i {exactly} {kind} and has_role(u, "r0", i)')
    holder = f"u {exactly} {draft.pick('Staff', 'User')}"
    draft.rule(f'has_role(u: User, "r1", i: {kind}) if {holder} and has_role(u, "r0", i)')


def declared_only(draft: Draft) -> None:
    place = draft.some_resource()
    draft.rule(f"declare noted({place.name}, String, Integer)")
    draft.fact("noted", draft.of(place.name), strings(ROLES), draft.numbers)


def shorthand_forms(draft: Draft) -> None:
    place = draft.some_resource()
    place.relations["owner"] = "User"
    role, permission = draft.pick(*place.roles), draft.pick(*place.permissions)
    place.shorthands.append(
        draft.pick(
            f'"{permission}" if "{role}" and is_public(resource) or "owner";',
            f'"{permission}" if not is_public(resource) and "{role}";',
            f'permission if "{role}" and is_public(resource);',
            f'"{permission}" if ("{role}" or "owner") and is_public(resource);',
            f'"{role}" if "owner";',
        )
    )


def far_shorthand(draft: Draft) -> None:
    for child, relation, parent in draft.related()[:1]:
        parent.relations["owner"] = "User"
        child.shorthands.append(f'"{child.roles[0]}" if "{draft.pick("owner", *parent.roles)}" on "{relation}";')
        head = draft.pick("role", f'"{child.roles[0]}"')
        child.shorthands.append(f'{head} if role on "{relation}";')


FEATURES = (
    custom_roles,
    global_roles,
    custom_allow,
    polymorphic,
    inheritance,
    declared_only,
    shorthand_forms,
    far_shorthand,
)
