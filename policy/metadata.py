"""Program -> what GET /policy_metadata says: the names that the policy knows, sorted."""

from collections.abc import Iterable, Mapping

from policy.rules.program import Program


def metadata_of(program: Program) -> dict[str, object]:
    """Every block with what it inherits; `global` is always there."""
    resources = {"global": _entry(program.global_roles, program.global_permissions, {})}
    for name, known in program.types.items():
        resources[name] = _entry(known.roles, known.permissions, known.relations)
    return {"resources": {name: resources[name] for name in sorted(resources)}}


def _entry(roles: Iterable[str], permissions: Iterable[str], relations: Mapping[str, str]) -> dict[str, object]:
    sorted_relations = {name: relations[name] for name in sorted(relations)}
    return {"roles": sorted(roles), "permissions": sorted(permissions), "relations": sorted_relations}
