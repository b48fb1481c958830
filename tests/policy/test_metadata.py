"""What the metadata says about each kind of block."""

from policy.rules import compile_text
from policy.views import metadata_of

NOTHING = {"roles": [], "permissions": [], "relations": {}}


def resources(text: str) -> dict:
    metadata = metadata_of(compile_text(text))
    assert set(metadata) == {"resources"}
    return metadata["resources"]


def test_an_empty_policy_has_the_global_entry_only():
    assert resources("") == {"global": NOTHING}


def test_names_are_sorted():
    found = resources("""
        resource Repo {
          roles = ["b", "a", "B"]; permissions = ["doc.z", "doc.a"]; relations = { z: Repo, c: User };
        }
        actor User {}
    """)
    assert list(found) == ["Repo", "User", "global"]
    assert found["Repo"] == {
        "roles": ["B", "a", "b"],
        "permissions": ["doc.a", "doc.z"],
        "relations": {"c": "User", "z": "Repo"},
    }
    assert list(found["Repo"]["relations"]) == ["c", "z"]
    assert found["User"] == NOTHING


def test_the_global_block_is_an_entry():
    found = resources('actor User {} global { roles = ["person"]; permissions = ["make"]; "make" if "person"; }')
    assert found["global"] == {"roles": ["person"], "permissions": ["make"], "relations": {}}


def test_what_is_inherited_is_told():
    found = resources("""
        actor User {}
        resource File { roles = ["reader"]; permissions = ["read"]; relations = { owner: User }; }
        resource Document extends File { roles = ["author"]; }
    """)
    assert found["Document"] == {
        "roles": ["author", "reader"],
        "permissions": ["read"],
        "relations": {"owner": "User"},
    }


def test_relations_to_abstract_types_name_them():
    found = resources("actor User {} resource Repo { relations = { parent: Resource, owner: Actor }; }")
    assert found["Repo"]["relations"] == {"owner": "Actor", "parent": "Resource"}
