"""The Python client as it is published today, and the first of its major version: every public method."""

from dataclasses import dataclass
from itertools import chain
from types import ModuleType
from uuid import uuid4

import pytest

from tests.clients.conftest import BINDINGS, POLICY, called_in, public_methods, rows

FIRST, NEWEST = "2.0.0", "2.6.0"


@dataclass
class World:
    """A client, its module, and an environment of its own where ann and bob have roles."""

    module: ModuleType
    oso: object
    url: str
    key: str

    def __post_init__(self):
        self.ann, self.bob, self.cat = (self.value("User", name) for name in ("ann", "bob", "cat"))
        self.acme = self.value("Organization", "acme")
        self.anvil, self.hammer = self.value("Repository", "anvil"), self.value("Repository", "hammer")

    @property
    def refusal(self) -> type[Exception]:
        return getattr(self.module, "OsoException", Exception)

    def value(self, type_name: str, text: str):
        return self.module.Value(type_name, text)

    def of_type(self, type_name: str):
        return self.module.ValueOfType(type_name)

    def var(self, type_name: str):
        return self.module.typed_var(type_name)

    def stored(self, *pattern) -> list[tuple]:
        """What of the pattern is stored, as plain text."""
        return [(name, *(value.id for value in args)) for name, *args in self.oso.get(pattern)]

    def another(self, **options):
        return self.module.Oso(url=self.url, api_key=self.key, **options)


@pytest.fixture(params=[FIRST, NEWEST])
def world(request, service, oso_cloud) -> World:
    client, module = service.fresh_client(), oso_cloud(request.param)
    world = World(module, module.Oso(url=client.origin, api_key=client.key), client.origin, client.key)
    world.oso.policy(POLICY)
    with world.oso.batch() as batch:
        batch.insert(("has_role", world.ann, "owner", world.acme))
        batch.insert(("has_role", world.bob, "writer", world.hammer))
        batch.insert(("has_relation", world.anvil, "organization", world.acme))
        batch.insert(("has_relation", world.hammer, "organization", world.acme))
    return world


only_newest = pytest.mark.parametrize("world", [NEWEST], indirect=True)


# ---- facts -----------------------------------------------------------------------------------------------------------


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


# ---- questions -------------------------------------------------------------------------------------------------------


def test_authorize(world):
    assert world.oso.authorize(world.ann, "read", world.anvil)
    assert not world.oso.authorize(world.ann, "write", world.anvil)
    assert world.oso.authorize(world.bob, "write", world.hammer)
    assert not world.oso.authorize(world.bob, "frob", world.value("Planet", "mars"))


def test_context_facts_count_for_one_question(world):
    context = [("has_role", world.cat, "writer", world.anvil)]
    assert world.oso.authorize(world.cat, "write", world.anvil, context_facts=context)
    assert world.oso.actions(world.cat, world.anvil, context_facts=context) == ["read", "write"]
    assert world.oso.list(world.cat, "write", "Repository", context_facts=context) == ["anvil"]
    assert not world.oso.authorize(world.cat, "write", world.anvil)


def test_actions(world):
    assert world.oso.actions(world.bob, world.hammer) == ["read", "write"]
    assert world.oso.actions(world.ann, world.hammer) == ["read"]
    assert world.oso.actions(world.cat, world.hammer) == []


def test_list(world):
    assert world.oso.list(world.ann, "read", "Repository") == ["anvil", "hammer"]
    assert world.oso.list(world.cat, "read", "Repository") == []
    world.oso.insert(("is_root", world.cat))
    assert world.oso.list(world.cat, "write", "Repository") == ["*"]


@only_newest
def test_pages(world):
    ids = sorted(f"r{number}" for number in range(25_001))
    with world.oso.batch() as batch:
        for text in ids:
            batch.insert(("has_role", world.cat, "writer", world.value("Repository", text)))
    assert world.oso.list(world.cat, "write", "Repository") == ids
    pages, token = [], None
    while not pages or token:
        page = world.oso.list_paginated(world.cat, "write", "Repository", page_size=10_000, page_token=token)
        pages.append(page.results)
        token = page.next_page_token
    assert [len(page) for page in pages] == [10_000, 10_000, 5_001] and list(chain(*pages)) == ids


# ---- the query builder -----------------------------------------------------------------------------------------------


def test_a_query_says_whether(world):
    assert world.oso.build_query(("allow", world.ann, "read", world.anvil)).evaluate() is True
    assert world.oso.build_query(("allow", world.ann, "write", world.anvil)).evaluate() is False


def test_a_query_lists_tuples_and_maps(world):
    user, action, repository = world.var("User"), world.var("String"), world.var("Repository")
    query = world.oso.build_query(("allow", user, action, repository))
    assert query.in_(user, ["bob"]).evaluate((user, action, repository)) == [
        ("bob", "read", "hammer"),
        ("bob", "write", "hammer"),
    ]
    assert query.evaluate({user: (action, repository)}) == {
        "ann": [("read", "anvil"), ("read", "hammer")],
        "bob": [("read", "hammer"), ("write", "hammer")],
    }
    assert query.evaluate({user: {repository: action}}) == {
        "ann": {"anvil": ["read"], "hammer": ["read"]},
        "bob": {"hammer": ["read", "write"]},
    }


@only_newest  # the first version shows a user once for each solution
def test_a_query_lists_what_several_solutions_share_once(world):
    user, action, repository = world.var("User"), world.var("String"), world.var("Repository")
    query = world.oso.build_query(("allow", user, action, repository))
    assert query.evaluate(user) == ["ann", "bob"]
    assert query.evaluate((user, repository)) == [("ann", "anvil"), ("ann", "hammer"), ("bob", "hammer")]
    assert query.evaluate({user: action}) == {"ann": ["read"], "bob": ["read", "write"]}


def test_a_query_joins_and_narrows(world):
    user, repository = world.var("User"), world.var("Repository")
    query = world.oso.build_query(("allow", user, "read", repository))
    assert query.and_(("has_role", user, "writer", repository)).evaluate((user, repository)) == [("bob", "hammer")]
    assert query.in_(user, ["ann", "nobody"]).evaluate(repository) == ["anvil", "hammer"]
    assert query.in_(repository, []).evaluate() is False
    context = [("has_role", world.cat, "reader", world.anvil)]
    assert query.with_context_facts(context).in_(user, ["cat"]).evaluate(repository) == ["anvil"]


def test_a_query_shows_everyone_as_a_star(world):
    world.oso.insert(("is_public", world.anvil))
    user = world.var("User")
    assert world.oso.build_query(("allow", user, "read", world.anvil)).evaluate(user) == ["*", "ann"]
    assert world.oso.build_query(("allow", user, "read", world.anvil)).in_(user, ["zoe"]).evaluate(user) == ["zoe"]


def test_a_query_asks_for_numbers_and_truths(world):
    world.oso.insert(("has_age", world.ann, 33))
    age = world.var("Integer")
    assert world.oso.build_query(("has_age", world.ann, age)).evaluate(age) == ["33"]
    assert world.oso.build_query(("has_age", world.ann, 33)).evaluate() is True
    assert world.oso.build_query(("has_flag", world.ann, True)).evaluate() is False


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
def test_agents_may_report_what_nobody_keeps(world):
    agent = world.oso.for_agents("agent", uuid4(), [world.ann])
    agent.tool_call_request("look", {"at": "this"})
    agent.message_to_user("hello")


# ---- SQL for one's own tables ----------------------------------------------------------------------------------------


@pytest.fixture
def local(world, tmp_path):
    bindings = tmp_path / "bindings.yaml"
    bindings.write_text(BINDINGS)
    return world.another(data_bindings=str(bindings))


def test_authorize_local(world, local, tables):
    for user, text, allowed in (
        ("ann", "saw", True),
        ("ann", "drill", False),
        ("cat", "saw", False),
        ("cat", "glue", True),
    ):
        sql = local.authorize_local(world.value("User", user), "read", world.value("Repository", text))
        assert rows(tables, sql) == [(allowed,)]
    assert tables.execute(sql).description[0].name == "allowed"


def test_actions_local(world, local, tables):
    world.oso.insert(("is_root", world.ann))
    sql = local.actions_local(world.ann, world.value("Repository", "saw"))
    assert rows(tables, sql) == [("read",), ("write",)]
    assert tables.execute(sql).description[0].name == "actions"
    assert rows(tables, local.actions_local(world.cat, world.value("Repository", "saw"))) == []


def test_list_local(world, local, tables):
    def listed(user: str, action: str = "read") -> list[str]:
        condition = local.list_local(world.value("User", user), action, "Repository", "repository.id")
        return [text for (text,) in rows(tables, f"SELECT id FROM repository WHERE id <> 'x' AND {condition}")]

    assert (listed("ann"), listed("cat"), listed("ann", "frob")) == (["glue", "saw"], ["glue"], [])
    world.oso.insert(("is_root", world.cat))
    assert listed("cat", "write") == ["drill", "glue", "saw"]


@only_newest
def test_local_questions_take_context_facts(world, local, tables):
    context = [("has_role", world.cat, "owner", world.value("Organization", "evil"))]
    condition = local.list_local(world.cat, "read", "Repository", "id", context_facts=context)
    assert rows(tables, f"SELECT id FROM repository WHERE {condition}") == [("drill",), ("glue",)]
    drill = world.value("Repository", "drill")
    assert rows(tables, local.authorize_local(world.cat, "read", drill, context_facts=context)) == [(True,)]
    assert rows(tables, local.actions_local(world.cat, drill, context_facts=context)) == [("read",)]


@only_newest
def test_queries_select_from_ones_own_tables(world, local, tables):
    action, repository = world.var("String"), world.var("Repository")
    query = local.build_query(("allow", world.ann, action, repository))
    sql = query.evaluate_local_select({"repository": repository, "may": action})
    found = rows(tables, f"SELECT repository, may FROM ({sql}) AS answers")
    assert found == [(text, "read") for text in ("anvil", "glue", "hammer", "saw")]
    assert rows(tables, query.in_(repository, ["saw"]).evaluate_local_select()) == [(True,)]
    assert rows(tables, query.in_(repository, ["drill"]).evaluate_local_select({})) == [(False,)]


@only_newest
def test_queries_filter_ones_own_tables(world, local, tables):
    repository = world.var("Repository")
    query = local.build_query(("allow", world.ann, "read", repository))
    sql = query.evaluate_local_filter("repository.id", repository)
    assert rows(tables, f"SELECT id FROM repository WHERE {sql}") == [("glue",), ("saw",)]


def test_without_bindings_only_stored_facts_count(world, tables):
    assert rows(tables, world.oso.authorize_local(world.ann, "read", world.anvil)) == [(True,)]
    assert rows(tables, world.oso.authorize_local(world.ann, "read", world.value("Repository", "saw"))) == [(False,)]


def test_bindings_with_a_mistake_are_told(world, tmp_path):
    path = tmp_path / "bindings.yaml"
    path.write_text("facts: {is_public(Repository:_): {query: DROP TABLE repository}}")
    with pytest.raises(world.refusal, match="400"):
        world.another(data_bindings=str(path)).authorize_local(world.ann, "read", world.anvil)


@pytest.mark.parametrize("version", [FIRST, NEWEST])
def test_every_public_method_is_called_here(oso_cloud, version):
    assert public_methods(oso_cloud(version)) - called_in(__file__) == set()
