"""Facts, policies, and what else the Python client tells the service."""

from uuid import uuid4

import pytest

from tests.clients.conftest import POLICY, end_role
from tests.clients.python_2.conftest import NEWEST
from tests.service import Client

only_newest = pytest.mark.parametrize("world", [NEWEST], indirect=True)


def test_facts_are_stored_once(world):
    for _ in range(2):
        world.oso.insert(("has_role", world.cat, "member", world.acme))
    assert world.stored("has_role", world.cat, None, None) == [("has_role", "cat", "member", "acme")]


def test_what_is_stored_comes_back_as_it_was_sent(world):
    facts = [
        ("has_age", world.ann, world.value("Integer", "33")),
        ("has_flag", world.ann, world.value("Boolean", "true")),
    ]
    world.oso.insert(("has_age", world.ann, 33))
    world.oso.insert(("has_flag", world.ann, True))
    assert world.oso.get(("has_age", world.ann, None)) + world.oso.get(("has_flag", world.ann, None)) == facts


@pytest.mark.parametrize("text", ["a b", "ä/ö?#&=%", 'it\'s "quoted"', "*x", "1;2", "\N{PILE OF POO}", "x" * 512, " "])
def test_ids_may_be_any_text(world, text):
    user = world.value("User", text)
    world.oso.insert(("has_role", user, "owner", world.acme))
    assert world.stored("has_role", user, "owner", world.acme) == [("has_role", text, "owner", "acme")]
    assert world.oso.authorize(user, "read", world.anvil)
    world.oso.delete(("has_role", user, None, None))
    assert not world.oso.authorize(user, "read", world.anvil)


def test_facts_that_end_are_read_and_stored_for_good_like_all_others(world):
    """Somebody else says when, whom the client knows nothing of."""
    end_role(Client(world.url, world.key), "cat", "owner")
    assert world.stored("has_role", world.cat, None, None) == [("has_role", "cat", "owner", "acme")]
    assert world.oso.authorize(world.cat, "read", world.anvil)
    world.oso.insert(("has_role", world.cat, "owner", world.acme))
    assert "expires_at" not in Client(world.url, world.key).get("/facts").text
    end_role(Client(world.url, world.key), "cat", "owner")
    world.oso.delete(("has_role", world.cat, "owner", world.acme))
    assert world.stored("has_role", world.cat, None, None) == []


def test_patterns_find_by_value_by_type_and_by_nothing(world):
    assert world.stored("has_role", world.of_type("User"), None, world.of_type("Repository")) == [
        ("has_role", "bob", "writer", "hammer")
    ]
    assert len(world.stored("has_role", None, None, None)) == len(world.stored("has_role")) == 2
    assert world.stored("has_role", world.of_type("Repository"), None, None) == []
    assert world.stored("has_nothing", None) == []


def test_patterns_delete_by_value_by_type_and_by_nothing(world):
    world.oso.delete(("has_role", world.cat, "owner", world.acme))
    world.oso.delete(("has_role", world.of_type("User"), None, world.of_type("Repository")))
    assert world.stored("has_role") == [("has_role", "ann", "owner", "acme")]
    world.oso.delete(("has_role", None, None, None))
    assert world.stored("has_role") == []


def test_a_batch_goes_in_order(world):
    with world.oso.batch() as batch:
        batch.insert(("has_role", world.cat, "member", world.acme))
        batch.delete(("has_role", world.of_type("User"), None, None))
        batch.insert(("has_role", world.cat, "owner", world.acme))
    assert world.stored("has_role") == [("has_role", "cat", "owner", "acme")]
    with world.oso.batch():
        pass


def test_a_batch_with_a_mistake_is_not_applied(world):
    with pytest.raises(world.refusal, match="no_such"), world.oso.batch() as batch:
        batch.insert(("has_role", world.cat, "owner", world.acme))
        batch.insert(("no_such", world.cat))
    assert world.stored("has_role", world.cat, None, None) == []


# ---- policies, errors, the rest --------------------------------------------------------------------------------------


def test_policy_metadata(world):
    metadata = world.oso.get_policy_metadata()
    repository = metadata.resources["Repository"]
    assert (repository.roles, repository.permissions) == (["reader", "writer"], ["read", "write"])
    assert repository.relations == {"organization": "Organization"}
    assert set(metadata.resources) == {"Organization", "Repository", "User", "global"}


def test_a_policy_with_a_mistake_says_where(world):
    with pytest.raises(world.refusal, match="policy:1:6: unexpected `User`"):
        world.oso.policy("actr User {}")
    assert world.oso.authorize(world.ann, "read", world.anvil)
    world.oso.policy(POLICY)


@pytest.mark.parametrize("fact", [("no_such", "x"), ("has_role", "ann", "owner", "acme")])
def test_facts_that_no_policy_knows_are_refused(world, fact):
    with pytest.raises(world.refusal, match="400"):
        world.oso.insert(fact)


def test_another_key_is_refused(world):
    with pytest.raises(world.refusal, match="401"):
        world.module.Oso(url=world.url, api_key="e_default_nobody_nothing").authorize(world.ann, "read", world.anvil)


def test_an_address_with_a_slash_at_the_end_is_the_same(world):
    assert world.module.Oso(url=f"{world.url}/", api_key=world.key).authorize(world.ann, "read", world.anvil)


def test_a_fallback_is_not_needed(world):
    oso = world.another(fallback_url="http://127.0.0.1:9")
    assert oso.authorize(world.ann, "read", world.anvil)
    assert oso.get(("has_role", world.ann, None, None))


@only_newest
@pytest.mark.parametrize("expected_first", [True, False])
def test_parity_handles_are_told_what_was_expected(world, expected_first):
    handle = world.module.ParityHandle()
    if expected_first:
        handle.expect(True)
    assert world.oso.authorize(world.ann, "read", world.anvil, parity_handle=handle)
    if not expected_first:
        handle.expect(True)
    assert handle.request_id


@only_newest
def test_every_event_of_an_agent_is_accepted(world, caplog):
    """The client only logs what is refused. That events are stored, see `tests/checks/test_decision_page.py`."""
    agent = world.oso.for_agents("agent", uuid4(), [world.ann], run=1)
    agent.tool_call_request("look", {"at": "this"})
    agent.tool_call_response("look", {"seen": True}, took=3)
    agent.tool_call_error("look", error="nothing there")
    agent.message_from_user("look")
    agent.message_to_user("seen")
    assert [record for record in caplog.records if record.name.startswith("oso_cloud")] == []
