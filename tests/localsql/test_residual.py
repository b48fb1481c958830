"""What stored facts decide is decided here: restricted, within a limit, and refused where it cannot be exact."""

import io

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from localsql import asking, fold
from tests.localsql.test_views import LIST

POLICY = """
actor User {}
resource Team { roles = ["member"]; relations = { inside: Team }; "member" if "member" on "inside"; }
resource Repo {
  permissions = ["read"]; roles = ["reader"]; relations = { team: Team };
  "read" if "reader"; "reader" if "member" on "team";
}
has_permission(u: User, "read", r: Repo) if linked(r, s) and has_role(u, "reader", s);
linked(a: Repo, b: Repo) if next_to(a, b);
linked(a: Repo, c: Repo) if linked(a, b) and linked(b, c) and linked(c, a);
"""
REPO_TEAM = "facts:\n  has_relation(Repo:_, team, Team:_): {query: 'SELECT id, team_id FROM repos'}\n"
NEXT_TO = "facts:\n  next_to(Repo:_, Repo:_): {query: 'SELECT a, b FROM neighbours'}\n"
TYPES = "sql_types: {Repo: bigint, Team: bigint, User: text}\n"


def fact(predicate: str, *args: tuple[str, str]) -> dict:
    return {"predicate": predicate, "args": [{"type": name, "id": text} for name, text in args]}


def member(user: str, team: str) -> dict:
    return fact("has_role", ("User", user), ("String", "member"), ("Team", team))


@pytest.fixture
def listed(api):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    facts = [member("alice", str(number)) for number in range(1, 6)] + [member("bob", "9")]
    facts += [fact("has_relation", ("Team", "7"), ("String", "inside"), ("Team", "5"))]
    assert api.post("/batch", [{"inserts": facts}]).status_code == 200

    def ask(bindings: str):
        return api.post("/list_query", {"query": LIST, "column": "id", "data_bindings": bindings})

    return ask


def test_stored_recursion_becomes_constants(listed):
    sql = listed(REPO_TEAM + TYPES).json()["sql"]
    assert "IN (1, 2, 3, 4, 5, 7)" in sql
    assert "RECURSIVE" not in sql
    assert "9" not in sql


def test_ids_that_no_column_can_have_are_left_out(listed, api):
    api.post("/facts", member("alice", "no number"))
    assert "IN (1, 2, 3, 4, 5, 7)" in listed(REPO_TEAM + TYPES).json()["sql"]


def test_too_many_constants_are_refused_with_advice(listed, monkeypatch):
    monkeypatch.setattr(fold, "MOST_VALUES", 3)
    refused = listed(REPO_TEAM + TYPES)
    assert refused.status_code == 400
    assert "more than 3 values" in refused.json()["message"]
    assert "bind these facts" in refused.json()["message"]


def test_bound_facts_of_which_many_are_stored_are_named(listed, api, monkeypatch, tmp_path):
    """The facts at fault, not those that happened to exceed the limit."""
    relation = "has_relation(Repo, String, Team)"
    stored = [fact("has_relation", ("Repo", str(n)), ("String", "team"), ("Team", "5")) for n in range(6)]
    assert api.post("/batch", [{"inserts": stored}]).status_code == 200
    assert listed(REPO_TEAM + TYPES).status_code == 200  # few are used besides
    monkeypatch.setattr(fold, "MOST_VALUES", 3)
    assert "bind these facts" in listed(REPO_TEAM + TYPES).json()["message"]
    monkeypatch.setattr(asking, "MANY", 5)
    refused = listed(REPO_TEAM + TYPES)
    assert (refused.status_code, refused.json()["message"]) == (
        400,
        f"`{relation}` is bound to a table, and 6 such facts are also stored, which are too many for the SQL; delete "
        "the stored facts with `authz delete_facts 'has_relation(Repo:_, String:_, Team:_)'`, or remove the binding",
    )
    file = tmp_path / "bindings.yaml"
    file.write_text(REPO_TEAM + TYPES)
    told = io.StringIO()
    call_command("check_bindings", str(file), stdout=io.StringIO(), stderr=told)
    assert f"advice: `{relation}` is bound, and 6 such facts are also stored" in told.getvalue()
    call_command("delete_facts", "has_relation(Repo:_, String:_, Team:_)", stdout=io.StringIO())
    assert api.post("/batch", [{"inserts": stored[:1]}]).status_code == 200
    call_command("check_bindings", str(file), stdout=io.StringIO(), stderr=told)
    assert "and 1 such fact is also stored" in told.getvalue()
    assert "bind these facts" in listed(REPO_TEAM + TYPES).json()["message"]


def test_recursion_that_takes_two_of_its_answers_is_refused_by_name_over_tables_only(listed, api):
    assert listed(NEXT_TO + TYPES).json() == {"sql": "FALSE"}  # nothing stored that it could lead to
    api.post("/facts", fact("has_role", ("User", "alice"), ("String", "reader"), ("Repo", "3")))
    refused = listed(NEXT_TO + TYPES)
    assert refused.status_code == 400
    assert "linked(a, b) and linked(b, c)" in refused.json()["message"]
    assert listed(REPO_TEAM + TYPES).status_code == 200


def test_a_known_shape_is_not_planned_again(listed, api):
    listed(REPO_TEAM + TYPES)
    with CaptureQueriesContext(connection) as queries:
        listed(REPO_TEAM + TYPES)
    assert not [each for each in queries if "policy_version" in each["sql"] and "source" in each["sql"]]


BOTH_MOVE = """
actor User {} actor Group {}
resource Folder { permissions = ["read"]; }
can(a: Actor, f: Folder) if owner(a, f);
can(a: Actor, f: Folder) if has_group(a, g) and g matches Group and inside(f, p) and can(g, p);
has_permission(u: User, "read", f: Folder) if can(u, f);
"""
INSIDE = """
dialect: {dialect}
facts: {{"inside(Folder:_, Folder:_)": {{query: "SELECT id, parent_id FROM folders"}}}}
sql_types: {{Folder: bigint}}
"""


def test_goals_that_stored_facts_decide_are_read_without_the_answers_of_the_tables(api, caller_database):
    """ann is in g1, which is in g2; 1 is g2's, 2 is inside 1 and 3 inside 2."""
    assert api.post("/policy", {"src": BOTH_MOVE}).status_code == 200
    facts = [
        fact("has_group", ("User", "ann"), ("Group", "g1")),
        fact("has_group", ("Group", "g1"), ("Group", "g2")),
        fact("owner", ("Group", "g2"), ("Folder", "1")),
    ]
    assert api.post("/batch", [{"inserts": facts}]).status_code == 200
    caller_database.fresh("CREATE TABLE folders (id bigint, parent_id bigint)")
    caller_database.fill("folders", [(1, None), (2, 1), (3, 2), (4, 3)])
    asked = {**LIST, "actor_id": "ann", "resource_type": "Folder"}
    body = {"query": asked, "column": "id", "data_bindings": INSIDE.format(dialect=caller_database.dialect)}
    answer = api.post("/list_query", body)
    assert answer.status_code == 200, answer.content
    assert caller_database.run(f"SELECT id FROM folders WHERE {answer.json()['sql']}")[1] == [(3,)]


TREE = """
actor User {}
resource Folder {
  roles = ["reader"]; permissions = ["read", "miss"]; relations = { parent: Folder };
  "read" if "reader"; "reader" if "reader" on "parent";
}
has_permission(u: User, "miss", f: Folder) if employed(u) and not has_permission(u, "read", f);
"""
PARENT = """
dialect: {dialect}
facts: {{"has_relation(Folder:_, parent, Folder:_)": {{query: "SELECT id, parent_id FROM folders"}}}}
sql_types: {{Folder: bigint}}
"""


@pytest.fixture
def tree(api, caller_database):
    """7 is inside 5 in a table, and 5 inside `top` in a stored fact; ann reads `top`."""
    assert api.post("/policy", {"src": TREE}).status_code == 200
    facts = [
        fact("has_relation", ("Folder", "5"), ("String", "parent"), ("Folder", "top")),
        fact("has_role", ("User", "ann"), ("String", "reader"), ("Folder", "top")),
        fact("employed", ("User", "ann")),
    ]
    assert api.post("/batch", [{"inserts": facts}]).status_code == 200
    caller_database.fresh("CREATE TABLE folders (id bigint, parent_id bigint)")
    caller_database.fill("folders", [(7, 5), (8, 6)])

    def ask(path: str, **body):
        asked = {"data_bindings": PARENT.format(dialect=caller_database.dialect), **body}
        answer = api.post(path, asked)
        return answer.json()["sql"] if answer.status_code == 200 else None

    return ask, caller_database


@pytest.mark.parametrize("action", ["read", "miss"])
def test_a_stored_id_that_no_column_can_have_leads_to_others(tree, action):
    ask, database = tree
    for folder, reads in (("7", True), ("8", False), ("top", True)):
        query = {**LIST, "actor_id": "ann", "action": action, "resource_type": "Folder", "resource_id": folder}
        sql = ask("/authorize_query", query=query)
        if sql is None:
            assert (database.dialect, action) == ("mariadb", "miss")  # it may cut recursion short
        else:
            assert bool(database.run(sql)[1][0][0]) is (reads if action == "read" else not reads)


def test_a_list_finds_what_a_stored_id_leads_to(tree):
    ask, database = tree
    condition = ask("/list_query", query={**LIST, "actor_id": "ann", "resource_type": "Folder"}, column="id")
    assert database.run(f"SELECT id FROM folders WHERE {condition}")[1] == [(7,)]


def test_a_stored_id_that_no_column_can_have_is_selected(tree):
    ask, database = tree
    values = {"f": {"type": "Folder", "ids": None}, "p": {"type": "Folder", "ids": None}}
    words = {"w": {"type": "String", "ids": ["parent"]}}
    query = {"predicate": ["has_relation", ["f", "w", "p"]], "calls": [], "constraints": {**values, **words}}
    mode = {"mode": "select", "query_vars_to_output_column_names": {"f": "folder", "p": "parent"}}
    sql = ask("/evaluate_query_local", query={**query, "context_facts": []}, mode=mode)
    assert sorted(database.run(sql)[1]) == [("5", "top"), ("7", "5"), ("8", "6")]


CLOSED = """
actor User {} resource Site { permissions = ["visit"]; }
has_permission(u: User, "visit", _: Site) if invited(u) and is_open(Site{"main"});
"""


def test_a_row_with_null_is_no_fact_of_constants_either(api, caller_database):
    assert api.post("/policy", {"src": CLOSED}).status_code == 200
    api.post("/facts", fact("invited", ("User", "alice")))
    caller_database.fresh("CREATE TABLE openings (id bigint)")
    query = {**LIST, "action": "visit", "resource_type": "Site", "resource_id": "other"}
    table = 'facts: {"is_open(Site:main)": {query: SELECT max(id) FROM openings}}'
    body = {"query": query, "data_bindings": f"dialect: {caller_database.dialect}\n{table}"}
    sql = api.post("/authorize_query", body).json()["sql"]
    assert not caller_database.run(sql)[1][0][0]
    caller_database.fill("openings", [(1,)])
    assert caller_database.run(sql)[1][0][0]
