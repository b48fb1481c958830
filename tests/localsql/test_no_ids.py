"""A row with an empty text or `*` is no fact, as one with NULL is none: neither is an id that a fact can have."""

import pytest

from tests.localsql.test_residual import fact

POLICY = """
actor User {}
resource Org { roles = ["member"]; relations = { parent: Org }; "member" if "member" on "parent"; }
resource Repo {
  permissions = ["read", "see"]; relations = { org: Org };
  "read" if "member" on "org"; "see" if is_listed(resource);
}
has_permission(u: User, "keep", r: Repo) if knows(u, r) and not is_hidden(u);
is_hidden(u: User) if is_away(u, x);
"""
NO_IDS = ("", "*")
TABLES = """
CREATE TABLE members (u {text}, o {text}); CREATE TABLE orgs (o {text}, p {text});
CREATE TABLE repos (id {text}, o {text}); CREATE TABLE away (u {text}, x {text})
"""
BINDINGS = """
dialect: {dialect}
facts:
  has_role(User:_, member, Org:_): {{query: "SELECT u, o FROM members"{entry}}}
  has_relation(Org:_, parent, Org:_): {{query: "SELECT o, p FROM orgs"{entry}}}
  has_relation(Repo:_, org, Org:_): {{query: "SELECT id, o FROM repos"{entry}}}
  is_away(User:_, Org:_): {{query: "SELECT u, x FROM away"{entry}}}
  is_listed(Repo:_): {{query: "SELECT id FROM repos"{entry}}}
{types}
"""
TYPES = {"texts": "sql_types: {User: text, Org: text, Repo: text}", "nothing said": ""}


@pytest.fixture(params=TYPES)
def ask(request, api, caller_database):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    caller_database.fresh(TABLES.format(text="text"))

    def asked(action: str, entry: str = "") -> list[str]:
        query = {"actor_type": "User", "actor_id": "ann", "action": action, "resource_type": "Repo"}
        said = BINDINGS.format(dialect=caller_database.dialect, types=TYPES[request.param], entry=entry)
        answer = api.post("/list_query", {"query": query, "column": "id", "data_bindings": said})
        assert answer.status_code == 200, answer.content
        return [row[0] for row in caller_database.run(f"SELECT id FROM repos WHERE {answer.json()['sql']}")[1]]

    return asked


@pytest.mark.parametrize("none", NO_IDS)
@pytest.mark.parametrize("entry", ["", ", not_null: true"])
def test_what_belongs_to_nothing_does_not_belong_to_those_who_do(ask, caller_database, none, entry):
    caller_database.fill("members", [("ann", none), ("ann", "acme")])
    caller_database.fill("repos", [("lost", none), ("anvil", "acme"), ("bell", "bank"), (none, "acme")])
    caller_database.fill("orgs", [("bank", none)])
    assert ask("read", entry) == ["anvil"]
    assert sorted(ask("see", entry)) == ["anvil", "bell", "lost"]


@pytest.mark.parametrize("none", NO_IDS)
def test_it_does_not_forbid_what_it_would(ask, api, caller_database, none):
    api.post("/facts", fact("knows", ("User", "ann"), ("Repo", "anvil")))
    caller_database.fill("repos", [("anvil", "acme")])
    caller_database.fill("away", [("ann", none)])
    assert ask("keep") == ["anvil"]
    caller_database.fill("away", [("ann", "acme")])
    assert ask("keep") == []


def test_an_id_of_spaces_is_one(ask, caller_database):
    caller_database.fill("members", [("ann", "  ")])
    caller_database.fill("repos", [("anvil", "  "), ("bell", " ")])
    assert ask("read") == ["anvil"]


def test_an_empty_text_in_a_column_of_numbers_of_sqlite(api, sqlite_caller):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    sqlite_caller.fresh(TABLES.format(text="integer"))
    sqlite_caller.fill("members", [("ann", ""), ("ann", 2)])
    sqlite_caller.fill("repos", [(1, ""), (2, 2)])
    said = BINDINGS.format(dialect="sqlite", types="sql_types: {User: text, Org: bigint, Repo: bigint}", entry="")
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Repo"}
    answer = api.post("/list_query", {"query": query, "column": "id", "data_bindings": said})
    assert sqlite_caller.run(f"SELECT id FROM repos WHERE {answer.json()['sql']}")[1] == [(2,)]
