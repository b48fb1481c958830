"""SQL for one's own tables."""

import pytest

from tests.clients.conftest import BINDINGS, rows
from tests.clients.python_2.conftest import NEWEST

only_newest = pytest.mark.parametrize("world", [NEWEST], indirect=True)


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
