"""Questions, and the query builder with every form of result."""

from itertools import chain

import pytest

from tests.clients.python_2.conftest import NEWEST

only_newest = pytest.mark.parametrize("world", [NEWEST], indirect=True)


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
