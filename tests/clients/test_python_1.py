"""Python clients of the first major version, first and last: every public method. Facts are dictionaries there."""

from dataclasses import dataclass

import pytest

from tests.clients.conftest import POLICY, called_in, end_role, public_methods
from tests.service import Client

FIRST, LAST = "1.0.0", "1.5.1"
ANN, BOB, CAT = ({"type": "User", "id": name} for name in ("ann", "bob", "cat"))
ACME = {"type": "Organization", "id": "acme"}
ANVIL, HAMMER, NAIL = ({"type": "Repository", "id": name} for name in ("anvil", "hammer", "nail"))
OWNER = {"name": "has_role", "args": [ANN, "owner", ACME]}
WRITER = {"name": "has_role", "args": [BOB, "writer", HAMMER]}
ANY_ROLE = {"name": "has_role", "args": [{"type": "User"}, None, None]}


@dataclass
class World:
    version: str
    module: object
    oso: object
    url: str
    key: str

    def stored(self, pattern: dict = ANY_ROLE) -> list[tuple]:
        return [tuple(map(text_of, fact["args"])) for fact in map(dictionary, self.oso.get(pattern))]


def dictionary(fact) -> dict:
    """The first version answers with lists, and sometimes with objects."""
    return fact if isinstance(fact, dict) else {"name": fact[0], "args": fact[1:]}


def text_of(arg) -> str:
    return arg["id"] if isinstance(arg, dict) else arg


@pytest.fixture(params=[FIRST, LAST])
def world(request, service, oso_cloud) -> World:
    client, module = service.fresh_client(), oso_cloud(request.param)
    world = World(request.param, module, module.Oso(url=client.origin, api_key=client.key), client.origin, client.key)
    world.oso.policy(POLICY)
    world.oso.bulk_tell(
        [OWNER, WRITER, *({"name": "has_relation", "args": [each, "organization", ACME]} for each in (ANVIL, HAMMER))]
    )
    return world


only_last = pytest.mark.parametrize("world", [LAST], indirect=True)


def test_facts_that_end_are_read_and_told_for_good_like_all_others(world):
    other, fact = Client(world.url, world.key), {"name": "has_role", "args": [CAT, "member", ACME]}
    end_role(other, "cat", "member")
    assert world.stored(fact) == [("cat", "member", "acme")]
    assert world.oso.authorize(CAT, "read", ANVIL)
    world.oso.tell(fact)
    assert "expires_at" not in other.get("/facts").text
    end_role(other, "cat", "member")
    world.oso.delete(fact)
    assert world.stored(fact) == []


def test_facts_are_told_found_and_deleted(world):
    told = {"name": "has_role", "args": [CAT, "member", ACME]}
    world.oso.tell(told)
    assert world.stored() == [("ann", "owner", "acme"), ("bob", "writer", "hammer"), ("cat", "member", "acme")]
    assert world.stored({"name": "has_role", "args": [CAT, "member", ACME]}) == [("cat", "member", "acme")]
    world.oso.delete(told)
    world.oso.delete(told)
    assert world.stored() == [("ann", "owner", "acme"), ("bob", "writer", "hammer")]


def test_many_facts_are_deleted_at_once(world):
    world.oso.bulk_delete([OWNER, WRITER, {"name": "has_role", "args": [CAT, "owner", ACME]}])
    assert world.stored() == []


def test_bulk_deletes_then_tells(world):
    world.oso.bulk(delete=[ANY_ROLE], tell=[{"name": "has_role", "args": [CAT, "owner", ACME]}])
    assert world.stored() == [("cat", "owner", "acme")]
    world.oso.bulk()


def test_questions(world):
    assert world.oso.authorize(ANN, "read", ANVIL)
    assert not world.oso.authorize(ANN, "write", ANVIL)
    assert world.oso.authorize_resources(ANN, "read", [HAMMER, NAIL, ANVIL, HAMMER]) == [HAMMER, ANVIL, HAMMER]
    assert world.oso.authorize_resources(ANN, "read", []) == []
    assert world.oso.list(ANN, "read", "Repository") == ["anvil", "hammer"]
    assert world.oso.actions(BOB, HAMMER) == ["read", "write"]


def test_context_facts_count_for_one_question(world):
    context = [{"name": "has_role", "args": [CAT, "writer", ANVIL]}]
    assert world.oso.authorize(CAT, "write", ANVIL, context)
    assert world.oso.authorize_resources(CAT, "write", [ANVIL, HAMMER], context) == [ANVIL]
    assert world.oso.list(CAT, "write", "Repository", context) == ["anvil"]
    assert world.oso.actions(CAT, ANVIL, context) == ["read", "write"]
    assert world.oso.list(CAT, "write", "Repository") == []


def test_a_query_finds_what_is_derived(world):
    asked = {"name": "has_role", "args": [{"type": "User"}, "reader", {"type": "Repository"}]}
    found = [tuple(map(text_of, fact["args"])) for fact in map(dictionary, world.oso.query(asked))]
    assert found == [("ann", "reader", "anvil"), ("ann", "reader", "hammer"), ("bob", "reader", "hammer")]
    assert world.oso.query({"name": "has_role", "args": [CAT, None, ACME]}) == []


def test_mistakes_are_told(world):
    with pytest.raises(Exception, match="400"):
        world.oso.tell({"name": "no_such", "args": [ANN]})
    with pytest.raises(Exception, match="400"):
        world.oso.policy("actr User {}")
    with pytest.raises(Exception, match="401"):
        world.module.Oso(url=world.url, api_key="e_default_no_body").authorize(ANN, "read", ANVIL)


@only_last
def test_a_query_takes_context_facts(world):
    asked = {"name": "allow", "args": [CAT, None, ANVIL]}
    found = world.oso.query(asked, [{"name": "has_role", "args": [CAT, "reader", ANVIL]}])
    assert [text_of(fact["args"][1]) for fact in found] == ["read"]


@only_last
def test_a_query_shows_everyone_as_a_type(world):
    world.oso.tell({"name": "is_public", "args": [ANVIL]})
    found = world.oso.query({"name": "allow", "args": [{"type": "User"}, "read", ANVIL]})
    assert [fact["args"][0] for fact in found] == [{"type": "User"}, ANN]


@only_last
def test_policy_metadata(world):
    assert set(world.oso.get_policy_metadata().resources) == {"Organization", "Repository", "User", "global"}


@only_last
def test_sql_for_ones_own_tables(world):
    assert world.oso.authorize_local(ANN, "read", ANVIL) == "SELECT TRUE AS allowed"
    assert "anvil" in world.oso.list_local(ANN, "read", "Repository", "id")
    assert "read" in world.oso.actions_local(ANN, ANVIL)


@pytest.mark.parametrize("version", [FIRST, LAST])
def test_every_public_method_is_called_here(oso_cloud, version):
    assert public_methods(oso_cloud(version)) - called_in(__file__) == set()
