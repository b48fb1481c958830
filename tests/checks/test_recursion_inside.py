"""Recursion inside of recursion: what is asked inside never takes the outer row for its own."""

import pytest

from tests.checks.conftest import about, fact, publish, store

DENIED = """
actor User {} actor Group {}
resource Folder { permissions = ["read"]; relations = { parent: Folder }; }
can(u: User, f: Folder) if owner(u, f);
can(u: User, f: Folder) if p matches Folder and has_relation(f, "parent", p) and can(u, p) and not denied(u, f);
denied(a: Actor, f: Folder) if deny(a, f);
denied(a: Actor, f: Folder) if g matches Group and has_group(a, g) and applies(g, f) and denied(g, f);
has_permission(u: User, "read", f: Folder) if can(u, f);
"""


@pytest.fixture
def folders(api):
    """child is under mid under root, which is ann's; she is in g1 in g2, which mid is denied to."""
    publish(api, DENIED)
    store(
        api,
        fact("owner", "User:ann", "Folder:root"),
        fact("has_relation", "Folder:mid", "parent", "Folder:root"),
        fact("has_relation", "Folder:child", "parent", "Folder:mid"),
        fact("has_group", "User:ann", "Group:g1"),
        fact("has_group", "Group:g1", "Group:g2"),
        fact("applies", "Group:g1", "Folder:mid"),
        fact("applies", "Group:g2", "Folder:mid"),
        fact("deny", "Group:g2", "Folder:mid"),
    )
    return api


@pytest.mark.parametrize(("folder", "allowed"), [("root", True), ("mid", False), ("child", False)])
def test_a_denial_holds_inside_of_nested_recursion(folders, folder, allowed):
    asked = about("User:ann", f"Folder:{folder}", action="read")
    assert folders.post("/authorize", asked).json() == {"allowed": allowed}


def test_a_list_has_what_is_not_denied(folders):
    asked = about("User:ann", action="read", resource_type="Folder", page_size=10000)
    assert folders.post("/list", asked).json()["results"] == ["root"]


# ---- what a recursion starts from -----------------------------------------------------------------------------


STAGES = """
actor User {} resource Stage { permissions = ["read"]; }
reaches(x: Stage, _: String, x: Stage);
reaches(x: Stage, "first", y: Stage) if begins(x, z) and reaches(z, "next", y);
reaches(x: Stage, "next", y: Stage) if follows(x, z) and reaches(z, "next", y);
has_permission(u: User, "read", s: Stage) if reaches(Stage{"1"}, "first", s) and sees(u, s);
"""


def test_a_recursion_goes_on_from_its_start_by_the_rules_of_its_start(api):
    publish(api, STAGES)
    store(
        api,
        fact("begins", "Stage:1", "Stage:2"),
        fact("follows", "Stage:2", "Stage:3"),
        fact("follows", "Stage:1", "Stage:9"),  # which is no first step
        *(fact("sees", "User:ann", f"Stage:{each}") for each in "1239"),
    )
    asked = about("User:ann", action="read", resource_type="Stage", page_size=10000)
    assert api.post("/list", asked).json()["results"] == ["1", "2", "3"]


# ---- guards that come again at each level ------------------------------------------------------------------------


GUARDED = """
actor User {}
resource Doc { permissions = ["see", "read"]; relations = { above: Doc }; }
has_permission(_: User, "read", d: Doc) if is_open(d);
has_permission(u: User, "see", d: Doc) if
  e matches Doc and has_relation(d, "above", e) and has_permission(u, "read", e) and not is_banned(u);
has_permission(u: User, "read", d: Doc) if
  e matches Doc and has_relation(d, "above", e) and has_permission(u, "see", e) and not is_locked(d);
"""


def test_a_guard_that_comes_again_at_each_level_is_met_once(api):
    """Whoever is not banned sees every second document; at each level `not is_banned(u)` is added to the last."""
    publish(api, GUARDED)
    chain = [fact("has_relation", f"Doc:{level + 1}", "above", f"Doc:{level}") for level in range(6)]
    store(api, fact("is_open", "Doc:0"), *chain)
    constraints = {
        "u": {"type": "User", "ids": None},
        "a": {"type": "String", "ids": ["see"]},
        "d": {"type": "Doc", "ids": None},
    }
    asked = {"predicate": ["allow", ["u", "a", "d"]], "calls": [], "constraints": constraints, "context_facts": []}
    found = api.post("/evaluate_query", asked).json()["results"]
    assert sorted((row["u"], row["d"]) for row in found) == [(None, "1"), (None, "3"), (None, "5")]
    store(api, fact("is_banned", "User:eve"))
    assert api.post("/evaluate_query", asked).status_code == 400  # all but eve, which a list cannot say
    constraints["u"]["ids"] = ["ann", "eve"]
    found = api.post("/evaluate_query", asked).json()["results"]
    assert sorted((row["u"], row["d"]) for row in found) == [("ann", "1"), ("ann", "3"), ("ann", "5")]


UNFOLDED = """
actor User {}
resource Org { roles = ["r0", "r1", "r2"]; permissions = ["p0", "p1"]; relations = { above: Org }; }
resource Doc {
  roles = ["r0"]; permissions = ["p0", "p1", "p2"]; relations = { parent: Org, above: Doc, owner: User };
  role if role on "parent";
  permission if permission on "above";
}
linked(x, z) if linked(x, y) and linked(y, z);
has_permission(user: User, "p2", r: Doc) if linked(r, other) and has_role(user, "r0", other);
"""


def test_what_is_unfolded_may_want_to_be_met_in_another_order(api):
    """Some states of the recursion are met in place; then `linked` came first, and went on from answers."""
    publish(api, UNFOLDED)
    docs = [{"type": "Doc", "id": f"d{number}"} for number in range(40)]
    body = {"actor_type": "User", "actor_id": "ann", "action": "p2", "resources": docs, "context_facts": []}
    answer = api.post("/authorize_resources", body)
    assert (answer.status_code, answer.json()) == (200, {"results": []})
    store(api, fact("linked", "Doc:d1", "Org:o"), fact("linked", "Org:o", "Org:p"))
    store(api, fact("has_role", "User:ann", "r0", "Org:p"), fact("has_relation", "Doc:d2", "above", "Doc:d1"))
    assert api.post("/authorize_resources", body).json()["results"] == docs[1:3]
