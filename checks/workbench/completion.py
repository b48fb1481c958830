"""What a field of a question may be completed to: names of the policy, and ids that stored facts mention."""

from __future__ import annotations

from checks.workbench.addresses import written
from checks.workbench.questions import actor_types
from facts.mentioned_ids import known_ids
from policy.rules.program import Program
from policy.values import Value

MOST_TYPES = 8  # of actors, and of resources, whose ids are suggested before anything is typed
MOST_IDS = 20  # of each of these types
_AS_WRITTEN = 50  # ids that begin with what is typed


def suggestions(environment_id: int, program: Program, start: str = "") -> dict[str, list[str]]:
    """Return suggestions for each field: ids of the type that `start` names before its colon.

    If `start` has no colon, return names of the policy, and some ids of the first types.
    """
    actors, declared = actor_types(program), sorted(program.types)
    type_name = max((name for name in declared if start.startswith(f"{name}:")), key=len, default="")
    if type_name:
        begun = start.removeprefix(f"{type_name}:").lstrip('"')
        found = _values(environment_id, [type_name], begun, _AS_WRITTEN)
        return {"actors": found if type_name in actors else [], "resources": found}
    if ":" in start:
        return {"actors": [], "resources": []}
    resources = [name for name in declared if program.types[name].permissions] or declared
    return {
        "actors": _values(environment_id, actors[:MOST_TYPES], "", MOST_IDS),
        "resources": _values(environment_id, resources[:MOST_TYPES], "", MOST_IDS),
        "types": [name for name in declared if program.types[name].permissions or name not in actors],
        "actor-types": actors,
        "actions": sorted({name for each in program.types.values() for name in each.permissions}),
    }


def _values(environment_id: int, types: list[str], begun: str, most: int) -> list[str]:
    ids = known_ids(environment_id, types, begun, most)
    return [written(Value(name, text)) for name in types for text in ids.get(name, ())]
