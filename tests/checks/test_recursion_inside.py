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
