"""Every value but some: what is held back, and what is held back from that, over stored and bound facts."""

import itertools

import pytest

from tests.localsql.test_residual import fact
from tests.localsql.test_views import LIST

HEAD = 'actor User {} resource Doc { permissions = ["read"]; }\n'
POLICIES = {
    "some": 'has_permission(u: User, "read", d: Doc) if admin(u) and not blocked(d);',
    "or": 'has_permission(u: User, "read", d: Doc) if admin(u) and not (blocked(d) or not public(d));',
    "and": 'has_permission(u: User, "read", d: Doc) if admin(u) and not (blocked(d) and not public(d));',
    "thrice": """
        dull(d: Doc) if not public(d);
        kept(d: Doc) if not dull(d);
        has_permission(u: User, "read", d: Doc) if admin(u) and not blocked(d) and not (vip(u) and not kept(d));
    """,
}
MEANINGS = {
    "some": lambda blocked, public, vip: not blocked,
    "or": lambda blocked, public, vip: public and not blocked,
    "and": lambda blocked, public, vip: not (blocked and not public),
    "thrice": lambda blocked, public, vip: not blocked and (public or not vip),
}
TABLES = {
    "blocked": '  "blocked(Doc:_)": {query: "SELECT id FROM docs WHERE is_blocked"}',
    "public": '  "public(Doc:_)": {query: "SELECT id FROM docs WHERE is_public"}',
}
DOCS = [(1, False, False), (2, True, False), (3, False, True), (4, True, True)]


@pytest.fixture
def docs(caller_database):
    caller_database.fresh("CREATE TABLE docs (id bigint, is_blocked boolean, is_public boolean)")
    caller_database.fill("docs", DOCS)
    return caller_database


@pytest.mark.parametrize("policy", POLICIES)
def test_a_condition_selects_what_the_service_allows(api, docs, policy):
    assert api.post("/policy", {"src": HEAD + POLICIES[policy]}).status_code == 200
    stored = [fact("admin", ("User", "ann")), fact("admin", ("User", "vic")), fact("vip", ("User", "vic"))]
    for index, predicate in ((1, "blocked"), (2, "public")):
        stored += [fact(predicate, ("Doc", str(row[0]))) for row in DOCS if row[index]]
    used = [each for each in stored if each["predicate"] != "vip" or "vip" in POLICIES[policy]]
    used = [each for each in used if each["predicate"] in HEAD + POLICIES[policy]]
    assert api.post("/batch", [{"inserts": used}]).status_code == 200
    for user, bound in itertools.product(("ann", "vic", "bob"), ((), ("blocked",), ("public",), ("blocked", "public"))):
        check(api, docs, user, [each for each in bound if each in POLICIES[policy]], used, MEANINGS[policy])


def check(api, docs, user: str, bound: list[str], stored: list[dict], means) -> None:
    """With some of the facts in the tables alone."""
    moved = [each for each in stored if each["predicate"] in bound]
    api.post("/batch", [{"deletes": moved}])
    bindings = "\n".join([f"dialect: {docs.dialect}", "facts:", *(TABLES[each] for each in bound)])
    body = {"query": {**LIST, "actor_id": user, "resource_type": "Doc"}, "column": "id"}
    answer = api.post("/list_query", {**body, "data_bindings": bindings + "\nsql_types: {Doc: bigint}\n"})
    api.post("/batch", [{"inserts": moved}])
    assert answer.status_code == 200, answer.content
    wanted = {row[0] for row in DOCS if user != "bob" and means(row[1], row[2], user == "vic")}
    for condition, ids in ((answer.json()["sql"], wanted), (f"NOT {answer.json()['sql']}", {1, 2, 3, 4} - wanted)):
        assert {row[0] for row in docs.run(f"SELECT id FROM docs WHERE {condition}")[1]} == ids, condition
