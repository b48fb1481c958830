"""Head variables that nothing binds: any user, any resource, any role."""

from __future__ import annotations

from tests.properties.draft import Draft


def wild_resource(draft: Draft) -> None:
    place = draft.pick("Resource", *(block.name for block in draft.resources()))
    draft.fact("is_superuser", draft.of("User"))
    head = draft.pick('has_role(user: User, "r0"', 'has_role(user: User, "r1"', 'has_permission(user: User, "p0"')
    draft.rule(f"{head}, _: {place}) if is_superuser(user)")


def wild_actor(draft: Draft) -> None:
    holder, condition = draft.pick("_: User", "_: Actor", "_x: User"), draft.pick("", " if is_public(r)")
    draft.rule(f'has_role({holder}, "{draft.role()}", r: {draft.some_resource().name}){condition}')
    if draft.often(0.3):
        draft.rule(f'has_role({holder}, "{draft.role()}", r: {draft.some_resource().name}) if not is_public(r)')


def wild_role(draft: Draft) -> None:
    place = draft.some_resource()
    draft.fact("is_steward", draft.of("User"), draft.of(place.name))
    draft.rule(f"has_role(user: User, _: String, r: {place.name}) if is_steward(user, r)")
    if draft.often(0.3):
        draft.fact("is_god", draft.of("User"))
        draft.rule("has_permission(user: User, _: String, _: Resource) if is_god(user)")


def wild_between(draft: Draft) -> None:
    """A wildcard that only joins: nobody gives it and nobody asks for it."""
    first, second = draft.some_resource(), draft.some_resource()
    draft.fact("is_superuser", draft.of("User"))
    draft.fact("is_locked", draft.of(first.name))
    draft.fact("beside", draft.of(first.name), draft.of(second.name))
    draft.rule(f"watches(u: User, _: {first.name}) if is_superuser(u)")
    draft.rule(f'watches(u: User, o: {first.name}) if has_role(u, "r1", o)')
    ending = draft.pick("not is_locked(o)", "beside(o, r)", "beside(o, r) and not is_locked(o)")
    draft.grants(second, f"watches(user, o) and {ending}", "p1")
    draft.asks("watches", draft.of("User"), draft.of(first.name))


def own_profile(draft: Draft) -> None:
    """One variable twice in a head."""
    draft.fact("is_public", draft.of("User"))
    draft.rule('has_permission(user: User, "p0", user: User)')
    draft.rule('has_permission(_: User, "p1", user: User) if is_public(user)')


FEATURES = (wild_resource, wild_actor, wild_role, wild_between, own_profile)
