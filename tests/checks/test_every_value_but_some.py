"""Lists of everyone, by rules that say "everyone but some"."""

from tests.checks.conftest import fact, publish, store

POLICY = """
actor User {}
actor Group {}
resource Folder { permissions = ["read"]; }

has_permission(a: Actor, "read", _: Folder) if member(a, g) and chief(g) and not barred(a, g);
barred(a: Actor, x: Resource) if bar(a, x);
"""


def who_reads(api) -> dict:
    user, folder = {"type": "User", "id": None}, {"type": "Folder", "id": None}
    pattern = {"predicate": "has_permission", "args": [user, {"type": "String", "id": "read"}, folder]}
    return api.post("/query", {"fact": pattern}).json()


def is_everyone(found: dict) -> bool:
    (said,) = found["results"]
    return [each["id"] for each in said["args"]] == [None, "read", None]


def test_who_is_kept_back_in_one_place_may_have_it_by_another(api):
    publish(api, POLICY + "member(_: User, g: Group) if open(g);")
    store(api, *(fact(name, f"Group:{each}") for name in ("open", "chief") for each in "12"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:1"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:2"))
    assert "every value but some, such as `ann`" in who_reads(api)["message"]


def test_what_only_the_exception_looks_at_is_read(api):
    """Nothing else of the rule names the group, and a question without values has to be run besides."""
    publish(api, POLICY + "member(_: User, g: Group) if not barred(u, f);")
    store(api, fact("chief", "Group:1"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:1"))
    assert who_reads(api) == {"results": []}


def test_what_two_exceptions_keep_back_together_is_kept_back(api):
    """Each rule grants nearly all that the other keeps back, and neither grants barred people what is closed."""
    publish(api, "actor User {} resource Folder {} may(u: User, f: Folder) if not barred(u) or not closed(f);")
    pattern = {"predicate": "may", "args": [{"type": "User", "id": None}, {"type": "Folder", "id": None}]}
    store(api, fact("barred", "User:ann"))
    (everyone,) = api.post("/query", {"fact": pattern}).json()["results"]
    assert [each["id"] for each in everyone["args"]] == [None, None]
    store(api, fact("closed", "Folder:f"))
    assert "every value but some" in api.post("/query", {"fact": pattern}).json()["message"]
