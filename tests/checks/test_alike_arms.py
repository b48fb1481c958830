"""Rules that differ in one constant alone: merged where that means the same, and only there."""

import pytest

from checks.engine.sql.text import ConstantSet, SQLite, finished, settled, union
from tests.checks.conftest import about, fact, publish, store

HEAD = """
actor User {}
resource Doc { roles = ["a", "b", "c"]; permissions = ["read"]; relations = { group: Doc }; }
"""
MEMBER = fact("member", "User:1", "Doc:1")
A, B = (fact("has_role", "User:1", role, "Doc:1") for role in "ab")

POLICIES = {
    "blocked by either": """
has_permission(u: User, "read", d: Doc) if member(u, d) and not blocked(u, d);
blocked(u: User, d: Doc) if member(u, d) and not has_role(u, "a", d);
blocked(u: User, d: Doc) if member(u, d) and not has_role(u, "b", d);
""",
    "needs both": """
has_permission(u: User, "read", d: Doc) if member(u, d) and not (not has_role(u, "a", d) or not has_role(u, "b", d));
""",
    "lacks one, by two rules": """
has_permission(u: User, "read", d: Doc) if member(u, d) and not has_role(u, "a", d);
has_permission(u: User, "read", d: Doc) if member(u, d) and not has_role(u, "b", d);
""",
    "lacks one": """
has_permission(u: User, "read", d: Doc) if member(u, d) and (not has_role(u, "a", d) or not has_role(u, "b", d));
""",
    "lacks one by recursion": """
has_permission(u: User, "read", d: Doc) if linked(u, d);
linked(u: User, d: Doc) if member(u, d) and not has_role(u, "a", d);
linked(u: User, d: Doc) if member(u, d) and not has_role(u, "b", d);
linked(u: User, d: Doc) if has_relation(d, "group", g) and g matches Doc and linked(u, g);
""",
}
CASES = [  # with these roles
    ("blocked by either", [], False), ("blocked by either", [A], False), ("blocked by either", [A, B], True),
    ("needs both", [], False), ("needs both", [A], False), ("needs both", [B], False), ("needs both", [A, B], True),
    *((name, roles, len(roles) < 2) for name in list(POLICIES)[2:] for roles in ([], [A], [B], [A, B])),
]  # fmt: skip


@pytest.mark.parametrize("name, roles, expected", CASES)
def test_a_negation_is_of_its_own_rule(api, name, roles, expected):
    publish(api, HEAD + POLICIES[name])
    store(api, MEMBER, *roles)
    may = about("User:1", "Doc:1", action="read")
    assert api.post("/authorize", may).json() == {"allowed": expected}
    listed = about("User:1", action="read", resource_type="Doc", page_size=10_000)
    assert api.post("/list", listed).json()["results"] == ["1"] * expected
    check = {"actor": {"type": "User", "id": "1"}, "action": "read", "resource": {"type": "Doc", "id": "1"}}
    assert api.post("/authorize_each", {"checks": [check] * 2}).json()["results"] == [expected] * 2
    then = api.post("/authorize", may | {"as_of": int(api.post("/authorize", may)["OsoOffset"])})
    assert then.json() == {"allowed": expected}
    assert api.post("/explain", may).json()["allowed"] == expected


def test_a_choice_inside_of_an_arm_is_its_own():
    arms = [("SELECT 1 WHERE NOT EXISTS (", *settled(("SELECT 1 WHERE ", ConstantSet("a", frozenset({one})))), ")")
            for one in "xy"]  # fmt: skip
    assert finished(union(arms, distinct=False), SQLite()).sql.count("NOT EXISTS") == 2
    own = [("SELECT 1 WHERE ", ConstantSet("a", frozenset({one}))) for one in "xy"]
    assert finished(union(own, distinct=False), SQLite()).sql == "SELECT 1 WHERE a IN (?1, ?2)"
