"""Numbers, times, truths, literals and comparisons."""

from __future__ import annotations

from tests.properties.draft import PERMISSIONS, ROLES, TRUTHS, Draft, strings


def levels(draft: Draft) -> None:
    place, permission = draft.some_resource(), draft.permission()
    draft.fact("has_level", draft.of("User"), draft.numbers)
    draft.fact("needs_level", draft.of(place.name), draft.numbers)
    operator = draft.pick("<", "<=", ">", ">=", "=", "!=")
    draft.grants(place, f"has_level(user, have) and needs_level(r, need) and have {operator} need", permission)
    if draft.often(0.4):
        body = 'has_level(user, have) and have >= 3 and (10 > have or has_role(user, "r0", r))'
        draft.grants(place, body, permission)


def expiry(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("expires", draft.of("User"), strings(ROLES), draft.of(place.name), draft.numbers)
    draft.rule(
        f"has_role(user: User, role: String, r: {place.name}) if "
        "expires(user, role, r, time) and @current_unix_time < time"
    )


def membership(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("is_editor", draft.of("User"), draft.of(place.name))
    draft.grants(place, 'role in ["r0", "r2"] and has_role(user, role, r)')
    head = f"has_permission(user: User, action: String, r: {place.name})"
    draft.rule(f'{head} if action in ["p0", "zap"] and is_editor(user, r)')


def inequality(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("invited", draft.of("User"), draft.of(place.name), draft.of("User"))
    draft.grants(place, "invited(user, r, by) and by != user")
    this = draft.rng.choice(draft.of(place.name))
    draft.rule(f'has_role(user: User, "r0", r: {place.name}) if invited(user, r, _) and r != {this}')
    if draft.often(0.3):
        draft.rule(f'has_role(user: User, role: String, r: {place.name}) if invited(user, r, _) and role = "r1"')


def entity_literals(draft: Draft) -> None:
    place = draft.some_resource()
    user, thing = draft.rng.choice(draft.of("User")), draft.rng.choice(draft.ids[place.name])
    draft.fact("is_active", draft.of("User"))
    draft.rule(f'has_role({user}, "{draft.role()}", {thing})')
    draft.rule(f'has_permission(user: User, "{draft.permission()}", {thing}) if is_active(user)')
    for child, relation, parent in draft.related()[:1]:
        draft.rule(f'has_relation({draft.ids[child.name][0]}, "{relation}", _: {parent.name})')


def booleans(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("flagged", draft.of(place.name), TRUTHS)
    draft.grants(place, f'flagged(r, {draft.pick("true", "false")}) and has_role(user, "r0", r)', "p1")


def spending(draft: Draft) -> None:
    """A number that the question brings."""
    draft.fact("limit", draft.of("User"), draft.numbers)
    draft.rule("may_spend(u: User, sum: Integer) if limit(u, most) and sum <= most")
    draft.asks("may_spend", draft.of("User"), draft.numbers, given=frozenset({1}))


def fields_of(draft: Draft) -> None:
    """Four and five arguments."""
    users, place, names = draft.of("User"), draft.some_resource(), strings(("title", "body"))
    things, head = draft.of(place.name), f"r: {place.name}, field: String"
    draft.fact("hides", things, names)
    draft.fact("shares", users, users, strings(PERMISSIONS), things, names)
    draft.rule(f'allow_field(u: User, "p0", r: {place.name}, "title") if has_permission(u, "p0", r)')
    draft.rule(f'allow_field(u: User, "p1", {head}) if has_role(u, "r1", r) and not hides(r, field)')
    draft.rule(f"allow_field(u: User, action: String, {head}) if shares(_, u, action, r, field)")
    draft.asks("allow_field", users, strings(PERMISSIONS), things, names)


FEATURES = (levels, expiry, membership, inequality, entity_literals, booleans, spending, fields_of)
