"""Intersection, exclusion, and `not` before facts, roles, permissions and whole formulas."""

from __future__ import annotations

from tests.properties.draft import ROLES, Draft, strings


def intersection(draft: Draft) -> None:
    first, second = draft.rng.sample(ROLES, 2)
    draft.fact("is_active", draft.of("User"))
    body = f'has_role(user, "{first}", r) and is_active(user) and has_role(user, "{second}", r)'
    draft.grants(draft.some_resource(), body)


def exclusion(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("is_banned", draft.of("User"))
    draft.fact("is_locked", draft.of(place.name))
    grant = draft.pick('has_role(user, "r0", r)', "is_public(r)", 'has_role(user, "r1", r)')
    block = draft.pick("not is_banned(user)", "not is_locked(r)", "not (is_banned(user) and is_locked(r))")
    draft.grants(place, " and ".join(draft.rng.sample((grant, block), 2)))


def negated_role(draft: Draft) -> None:
    draft.fact("is_active", draft.of("User"))
    without = f'not has_role(user, "{draft.role()}", r)'
    draft.grants(draft.some_resource(), f'is_active(user) and has_role(user, "{draft.role()}", r) and {without}')
    for child, relation, parent in draft.related()[:1]:
        link = f'o matches {parent.name} and is_active(user) and has_relation(r, "{relation}", o)'
        draft.grants(child, f'{link} and not has_role(user, "r0", r)', "p2")


def negated_permission(draft: Draft) -> None:
    draft.grants(draft.some_resource(), 'is_public(r) and not has_permission(user, "p0", r)', "p2")


def alike_but_for_a_name(draft: Draft) -> None:
    """Rules that differ in nothing but a name inside a negation, and the same by one rule, or denied."""
    place, permission = draft.some_resource(), draft.permission()
    draft.fact("is_active", draft.of("User"))
    missing = [f'not has_role(user, "{role}", r)' for role in draft.rng.sample(ROLES, 2)]
    if draft.often(0.4):
        for each in missing:
            draft.grants(place, f"is_active(user) and {each}", permission)
    else:
        either = f"({' or '.join(missing)})"
        draft.grants(place, f"is_active(user) and {draft.pick('', 'not ')}{either}", permission)


def double_negation(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("requires_role", draft.of(place.name), strings(ROLES))
    draft.fact("is_active", draft.of("User"))
    missing = "need matches String and requires_role(r, need) and not has_role(user, need, r)"
    grant = draft.pick("is_active(user)", 'has_role(user, "r0", r)')
    draft.grants(place, f"{grant} and not ({missing})", draft.pick("p1", "p2"))


def guarded_wildcard(draft: Draft) -> None:
    """Everything but what is locked, and further from there."""
    place = draft.some_resource()
    draft.fact("is_superuser", draft.of("User"))
    draft.fact("is_locked", draft.of(place.name))
    draft.grants(place, "is_superuser(user) and not is_locked(r)", "p0")
    place.permissions = tuple(dict.fromkeys((*place.permissions, "p0", "p1")))
    if draft.often(0.5):
        place.shorthands.append('"p1" if "p0";')
    if draft.often(0.5):
        place.relations["above"] = place.name
        place.shorthands.append('"p0" if "p0" on "above";')


def guarded_in_between(draft: Draft) -> None:
    """The same, where nobody asks for the wildcard."""
    place = draft.some_resource()
    draft.fact("is_superuser", draft.of("User"))
    draft.fact("is_locked", draft.of(place.name))
    draft.rule(f'reaches(user: User, r: {place.name}) if is_superuser(user) and not has_role(user, "r0", r)')
    draft.grants(draft.some_resource(), "reaches(user, o) and not is_locked(o)", "p2")
    draft.asks("reaches", draft.of("User"), draft.of(place.name))


def nested_or(draft: Draft) -> None:
    draft.fact("is_active", draft.of("User"))
    draft.fact("has_level", draft.of("User"), draft.numbers)
    a, b = (f'has_role(user, "{draft.role()}", r)' for _ in range(2))
    body = draft.pick(
        f"is_active(user) and ({a} or ({b} and is_public(r)))",
        f"has_level(user, x) and (x < 4 or {a}) and (is_active(user) or not {b})",
        f"({a} or is_public(r)) and (is_active(user) or {b})",
        f"is_active(user) and not ({a} or is_public(r))",
        f"is_public(r) and ({a} or true)",
    )
    draft.grants(draft.some_resource(), body)


FEATURES = (
    intersection,
    exclusion,
    negated_role,
    negated_permission,
    alike_but_for_a_name,
    double_negation,
    guarded_wildcard,
    guarded_in_between,
    nested_or,
)
