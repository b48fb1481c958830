"""Python clients from before 1.0: the oldest that stores facts, and the last.

Those before 0.3 speak of roles and relations at paths of their own, and the very first sends no key at all.
"""

import pytest

from tests.clients.conftest import POLICY, called_in, end_role, public_methods

OLDEST, LAST = "0.3.0", "0.9.0"
PREDICATE = "has_role"


class Record:
    """What the oldest client takes for a value: an object whose class is the type."""

    def __init__(self, text: str):
        self.id = text


class User(Record): ...


class Organization(Record): ...


class Repository(Record): ...


@pytest.fixture
def oldest(service, oso_cloud):
    client = service.fresh_client()
    oso = oso_cloud(OLDEST).Oso(url=client.origin, api_key=client.key)
    oso.policy(POLICY)
    oso.tell(PREDICATE, User("ann"), "owner", Organization("acme"))
    oso.tell("has_relation", Repository("anvil"), "organization", Organization("acme"))
    return oso


def test_every_method_of_the_oldest(oldest):
    stored = {
        "predicate": PREDICATE,
        "args": [
            {"type": "User", "id": "ann"},
            {"type": "String", "id": "owner"},
            {"type": "Organization", "id": "acme"},
        ],
    }
    assert oldest.get(PREDICATE, User, None, Organization("acme")) == [stored]
    assert len(oldest.get()) == 2
    assert oldest.authorize(User("ann"), "read", Repository("anvil")) is True
    assert oldest.authorize(User("ann"), "write", Repository("anvil")) is False
    assert oldest.list(User("ann"), "read", "Repository") == ["anvil"]
    oldest.delete(PREDICATE, User("ann"), "owner", Organization("acme"))
    assert oldest.get(PREDICATE) == []


def test_the_oldest_is_told_of_mistakes(oldest):
    with pytest.raises(Exception, match="400"):
        oldest.tell("no_such", "thing")


# ---- the last ---------------------------------------------------------------------------------------------------

ANN, BOB = ({"type": "User", "id": name} for name in ("ann", "bob"))
ACME = {"type": "Organization", "id": "acme"}
ANVIL, NAIL = ({"type": "Repository", "id": name} for name in ("anvil", "nail"))


@pytest.fixture
def last(service, oso_cloud):
    client = service.fresh_client()
    oso = oso_cloud(LAST).Oso(url=client.origin, api_key=client.key)
    oso.policy(POLICY)
    oso.bulk_tell([[PREDICATE, ANN, "owner", ACME], ["has_relation", ANVIL, "organization", ACME]])
    return oso


def test_facts_of_the_last(last):
    last.tell(PREDICATE, BOB, "member", ACME)
    assert last.get(PREDICATE, BOB) == [[PREDICATE, BOB, {"type": "String", "id": "member"}, ACME]]
    assert len(last.get()) == 3
    last.delete(PREDICATE, BOB, "member", ACME)
    last.bulk_delete([[PREDICATE, ANN, None, None]])
    assert last.get(PREDICATE) == []


@pytest.mark.parametrize("version", [OLDEST, LAST])
def test_facts_that_end_are_read_and_told_for_good_like_all_others(service, oso_cloud, version):
    client = service.fresh_client()
    oso = oso_cloud(version).Oso(url=client.origin, api_key=client.key)
    oso.policy(POLICY)
    cat, acme = (User("cat"), Organization("acme")) if version == OLDEST else ({"type": "User", "id": "cat"}, ACME)
    end_role(client, "cat", "owner")
    assert len(oso.get()) == 1
    oso.tell(PREDICATE, cat, "owner", acme)
    assert "expires_at" not in client.get("/facts").text
    end_role(client, "cat", "owner")
    oso.delete(PREDICATE, cat, "owner", acme)
    assert oso.get() == []


def test_questions_of_the_last(last):
    context = [[PREDICATE, BOB, "writer", ANVIL]]
    assert last.authorize(ANN, "read", ANVIL)
    assert not last.authorize(BOB, "read", ANVIL)
    assert last.authorize(BOB, "read", ANVIL, context)
    assert last.authorize_resources(ANN, "read", [ANVIL, NAIL]) == [ANVIL]
    assert last.list(ANN, "read", "Repository") == ["anvil"]
    assert last.list(BOB, "write", "Repository", context) == ["anvil"]
    assert last.actions(BOB, ANVIL, context) == ["read", "write"]


def test_queries_of_the_last(last):
    assert last.query("has_role", {"type": "User"}, "member", ACME) == [["has_role", ANN, "member", ACME]]


def test_what_else_the_last_asks(last):
    assert last.api.hello().hello
    assert last.api.get_policy().policy["src"] == POLICY
    last.api.clear_data()
    assert last.get() == []


@pytest.mark.parametrize("version", [OLDEST, LAST])
def test_every_public_method_is_called_here(oso_cloud, version):
    assert public_methods(oso_cloud(version)) - called_in(__file__) == set()
