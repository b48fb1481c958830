"""What the oracle allows among the facts that statements by hand are tried on."""

from functools import cache

from policy.language import parse
from policy.language.source import Source
from policy.values import Value
from tests.benchmarks.generate import POLICY, Size, fact, facts_of, numbered
from tests.reference import World, model_of

SIZE = Size(150)
FACTS = [numbered(each) for each in dict.fromkeys(facts_of(SIZE))]
BROUGHT = {
    "has_role_User_Project": [numbered(fact("has_role", ("User", 1), "admin", ("Project", 2)))],
    "has_role_User_Repo": [numbered(fact("has_role", ("User", 1), "reader", ("Repo", 3)))],
    "has_role_User_Folder": [numbered(fact("has_role", ("User", user), "auditor", ("Folder", 4))) for user in (0, 3)],
}


@cache
def allowed_with(brought: str = "") -> set[tuple[Value, ...]]:
    """Actors, actions and resources, with a set of context facts or with none; worked out once a process."""
    policy, facts = parse(Source(POLICY)), [*FACTS, *BROUGHT.get(brought, ())]
    return model_of(policy, facts, World.of(policy, facts))["allow", 3]
