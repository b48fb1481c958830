"""A row with an empty text or `*` is no fact, as one with NULL is none: neither is an id that a fact can have."""

import json

import pytest

from checks.engine.rules.clauses import LONGER_THAN_IDS, is_stand_in, stand_in
from localsql.dialects import Family, MySQL
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


LEVELS = """
actor User {} resource Doc { permissions = ["read", "see"]; }
declare level(User, Integer); declare is_open(Doc, Boolean);
has_permission(u: User, "read", _: Doc) if level(u, n) and n > 5;
has_permission(u: User, "see", _: Doc) if level(u, _);
"""
NUMBERS = {  # by dialect: the column's type in the database and in the bindings, and what is no Integer
    "postgres": [
        ("numeric(10,2)", "numeric", ("7.5", "NaN")),
        ("numeric", "numeric", ("Infinity", "9223372036854775808")),
        ("text", "text", ("7.5", "high", "9223372036854775808")),
        ("double precision", "double precision", ("7.5", "NaN", "1e300")),
    ],
    "sqlite": [
        ("integer", "integer", ("high", 7.5)),
        ("numeric", "numeric", ("high", 7.5)),
        ("real", "real", ("7.5",)),
    ],
    "mariadb": [("varchar(20)", "varchar(20)", ("7.5", "high", "9223372036854775808")), ("double", "double", ("7.5",))],
}


def test_what_is_no_whole_number_is_no_integer(api, caller_database):
    assert api.post("/policy", {"src": LEVELS}).status_code == 200
    for sql, said, others in NUMBERS[caller_database.dialect]:
        for other in (*others, 7):
            caller_database.fresh(f"CREATE TABLE levels (u {caller_database.text}, n {sql})")
            caller_database.fill("levels", [("ann", other)])
            for action in ("read", "see"):
                bindings = {
                    "facts": {"level(User:_, Integer:_)": {"query": "SELECT u, n FROM levels"}},
                    "dialect": caller_database.dialect,
                    "sql_types": {"User": "varchar(20)", "Integer": said},
                }
                query = {"actor_type": "User", "actor_id": "ann", "action": action}
                query |= {"resource_type": "Doc", "resource_id": "1"}
                body = {"query": query, "data_bindings": json.dumps(bindings)}
                found = caller_database.run(api.post("/authorize_query", body).json()["sql"])[1]
                assert bool(found[0][0]) is (other == 7 and said != "real"), (sql, other, action)


def test_what_is_no_truth_is_no_boolean(api, caller_database):
    policy = LEVELS + 'has_permission(_: User, "see", d: Doc) if is_open(d, _);'
    assert api.post("/policy", {"src": policy}).status_code == 200
    caller_database.fresh(f"CREATE TABLE docs (id {caller_database.text}, o {caller_database.text})")
    caller_database.fill("docs", [("1", "true"), ("2", "maybe"), ("3", "TRUE")])
    bindings = {"facts": {"is_open(Doc:_, Boolean:_)": {"query": "SELECT id, o FROM docs"}}}
    bindings |= {"dialect": caller_database.dialect, "sql_types": {"Boolean": "varchar(20)"}}
    query = {"actor_type": "User", "actor_id": "ann", "action": "see", "resource_type": "Doc"}
    body = {"query": query, "column": "id", "data_bindings": json.dumps(bindings)}
    sql = api.post("/list_query", body).json()["sql"]
    assert caller_database.run(f"SELECT id FROM docs WHERE {sql}")[1] == [("1",)]


ROUND = """
actor User {} resource Doc { permissions = ["read"]; }
any(_: User);
reaches(x: User, x: User);
reaches(x: User, y: User) if near(x, z) and reaches(z, w) and known(w) and near(y, w);
round(x: User, _: User) if reaches(x, y) and reaches(y, x);
has_permission(u: User, "read", _: Doc) if known(u) and any(x) and any(y) and not round(x, y);
"""


def test_what_a_rule_makes_equal_is_refused_where_nothing_mentions_it(api):
    """Everyone reaches themselves, also those whom the rules only pick in order to except them."""
    assert api.post("/policy", {"src": ROUND}).status_code == 200
    known = {"predicate": "known", "args": [{"type": "User", "id": "ann"}]}
    assert api.post("/batch", [{"inserts": [known]}]).status_code == 200
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "1"}
    assert api.post("/authorize", query).json() == {"allowed": False}
    bindings = json.dumps({"facts": {"near(User:_, User:_)": {"query": "SELECT id, n FROM users"}}})
    answer = api.post("/authorize_query", {"query": query, "data_bindings": bindings})
    assert (answer.status_code, answer.json()["message"][:23]) == (400, "cannot list the results")


def test_recursion_keeps_what_stands_for_ids_that_nothing_mentions():
    """MySQL cuts off what a recursive column has no room for: two of them would be the same."""
    some = [stand_in(index) for index in (1, 2, 10, 101)]
    assert {len(each) for each in some} == {LONGER_THAN_IDS}
    assert len(set(some)) == len(some)
    assert all(map(is_stand_in, some))
    assert f", {LONGER_THAN_IDS})" in MySQL().typed("x", Family.TEXT)
