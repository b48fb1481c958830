"""Predicates without arguments: `quiet()` holds or does not."""

import pytest

from tests.checks.conftest import about, fact, publish, store

HEAD = 'actor User {} resource Doc { permissions = ["read", "write"]; }\n'


@pytest.mark.parametrize(("mode", "allowed"), [("readonly", False), ("open", True)])
def test_a_rule_without_arguments(api, mode, allowed):
    publish(
        api,
        f"""{HEAD}
    quiet() if mode("readonly");
    has_permission(u: User, "write", d: Doc) if editor(u, d) and not quiet();
    """,
    )
    store(api, fact("mode", mode), fact("editor", "User:ann", "Doc:1"))
    asked = about("User:ann", "Doc:1", action="write")
    assert api.post("/authorize", asked).json() == {"allowed": allowed}
    listed = api.post("/list", about("User:ann", action="write", resource_type="Doc", page_size=10000))
    assert listed.json()["results"] == (["1"] if allowed else [])
    assert api.post("/explain", asked).json()["allowed"] == allowed


@pytest.mark.parametrize("stored", [(), ("maintenance",), ("urgent",), ("maintenance", "urgent")])
def test_a_negation_of_what_nothing_outside_mentions(api, stored):
    publish(
        api,
        f"""{HEAD}
    has_permission(u: User, "read", d: Doc) if reader(u, d) and not (maintenance(x) and urgent(x));
    """,
    )
    store(api, fact("reader", "User:ann", "Doc:1"), *(fact(each, "Doc:1") for each in stored))
    asked = about("User:ann", "Doc:1", action="read")
    assert api.post("/authorize", asked).json() == {"allowed": len(stored) < 2}
