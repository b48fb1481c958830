"""What every policy has: users, a few resources in a line, and plain rules between them."""

from __future__ import annotations

from tests.properties.draft import PERMISSIONS, ROLES, Block, Draft, strings


def lay(draft: Draft, is_small: bool = False) -> None:
    """`is_small` has one kind of things as a rule, and few rules: planning goes by their number."""
    draft.actor("User")
    chance = 0.15 if is_small else 0.65
    line = [name for name in ("Org", "Folder", "Doc", "Repo") if draft.often(chance)] or ["Folder"]
    for index, name in enumerate(line):
        block = draft.blocks[draft.resource(name)]
        block.roles = ROLES[: draft.rng.randint(1, 3)]
        block.permissions = PERMISSIONS[: draft.rng.randint(1, 3)]
        if index and draft.often(0.8):
            block.relations["parent"] = draft.pick(*line[:index])
        if draft.often(0.4):
            block.relations["above"] = name
        if draft.often(0.4):
            block.relations["owner"] = "User"
        draft.fact("is_public", draft.of(name))
        draft.fact("has_role", draft.of("User"), strings(ROLES), draft.of(name), label=f"{name} role")
    for block in draft.resources():
        if not is_small or draft.often(0.3):
            _plain_rules(draft, block)


def _plain_rules(draft: Draft, block: Block) -> None:
    for names in (block.roles, block.permissions):
        for index, name in enumerate(names):
            for _ in range(draft.rng.choice((0, 1, 1, 2))):
                body = _plain_body(draft, block, names is block.roles, names[: index + 1])
                block.shorthands.append(f'"{name}" if {body};')
    for relation, target in block.relations.items():
        if target in draft.blocks and relation in ("parent", "above") and draft.often(0.2):
            word = draft.pick("role", "role", "permission")
            block.shorthands.append(f'{word} if {word} on "{relation}";')


def _plain_body(draft: Draft, block: Block, for_role: bool, lower: tuple[str, ...]) -> str:
    choices = [*(f'"{role}"' for role in block.roles), f'"{draft.pick(*lower)}"', "is_public(resource)"]
    for relation, target in block.relations.items():
        far = draft.blocks[target]
        names = far.roles if for_role else (*far.roles, *(p for p in far.permissions if p in lower))
        choices.append(f'"{draft.pick(*names)}" on "{relation}"' if names else f'"{relation}"')
    return draft.pick(*choices)


def let_in(draft: Draft) -> None:
    """Facts that blocks and the default `allow` let in: relations, and now and then a permission itself."""
    for block in draft.blocks.values():
        for relation, target in block.relations.items():
            if target != "Resource":
                label = f"{block.name} {relation}"
                draft.fact("has_relation", draft.of(block.name), strings((relation,)), draft.of(target), label=label)
    if draft.often(0.3):
        names, place = strings((*PERMISSIONS, "zap")), draft.some_resource()
        draft.fact("has_permission", draft.of("User"), names, draft.of(place.name), label="permission")
    for block in draft.resources():
        for predicate, known in (("has_role", ROLES), ("has_permission", PERMISSIONS), ("allow", PERMISSIONS)):
            draft.asks(predicate, draft.actors(), strings(known), draft.of(block.name))
