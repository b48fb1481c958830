"""What produced statements look like, where that decides whether a database can run them at all."""

import json

import pytest

WAYS = [f"way{number}" for number in range(14)]
POLICY = f"""
actor User {{}}
resource Org {{ roles = ["member"]; }}
resource Folder {{
  roles = ["viewer"]; permissions = ["read"];
  "read" if "viewer";
}}
{" ".join(f'has_role(u: User, "viewer", f: Folder) if {way}(f, g) and has_role(u, "viewer", g);' for way in WAYS)}
resource Doc {{
  permissions = ["read"]; relations = {{ org: Org }}; "read" if "member" on "org";
}}
"""
BINDINGS = """
dialect: {dialect}
facts:
  has_relation(Doc:_, org, Org:_): {{query: "SELECT id, org_id FROM docs"}}
  has_role(User:_, String:_, Org:_): {{query: "SELECT user_id, role, org_id FROM members"}}
{ways}
sql_types: {{Folder: bigint, Doc: bigint, Org: bigint, User: text}}
"""
WAY = "  {way}(Folder:_, Folder:_): {{query: \"SELECT id, other FROM folders WHERE way = '{way}'\"}}"


def listed(api, database, resource_type: str) -> str:
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    viewer = [{"type": "User", "id": "alice"}, {"type": "String", "id": "viewer"}, {"type": "Folder", "id": "1"}]
    api.post("/facts", {"predicate": "has_role", "args": viewer})
    query = {"actor_type": "User", "actor_id": "alice", "action": "read", "context_facts": []}
    body = {"query": {**query, "resource_type": resource_type}, "column": "id"}
    ways = "\n".join(WAY.format(way=way) for way in WAYS)
    bindings = BINDINGS.format(dialect=database.dialect, ways=ways)
    answer = api.post("/list_query", {**body, "data_bindings": bindings})
    assert answer.status_code == 200, answer.content
    return answer.json()["sql"]


def test_recursion_in_many_ways_is_no_harder_to_read_than_in_one(api, caller_database):
    """MariaDB takes three times as long for each recursive arm more, until it has no memory left."""
    condition = listed(api, caller_database, "Folder")
    caller_database.fresh("CREATE TABLE folders (id bigint, way text, other bigint)")
    caller_database.fill("folders", [(number + 2, way, number + 1) for number, way in enumerate(WAYS)] + [(99, "x", 1)])
    if caller_database.dialect == "mariadb":
        caller_database.connection.cursor().execute("SET SESSION max_statement_time = 5")
    rows = caller_database.run(f"SELECT id FROM folders WHERE {condition} ORDER BY id")[1]
    assert [row[0] for row in rows] == [number + 2 for number in range(len(WAYS))]


def test_rows_that_only_have_to_be_there_are_not_joined(api, caller_database):
    """Somebody who is a member twice would have all documents read twice."""
    condition = listed(api, caller_database, "Doc")
    assert "CROSS JOIN" not in condition
    caller_database.fresh(
        "CREATE TABLE docs (id bigint, org_id bigint); CREATE TABLE members (user_id text, role text, org_id bigint)"
    )
    caller_database.fill("docs", [(1, 7), (2, 8), (3, None), (4, 7)])
    caller_database.fill("members", [("alice", "member", 7)] * 2 + [("alice", "member", None), ("bob", "member", 8)])
    assert caller_database.run(f"SELECT id FROM docs WHERE {condition} ORDER BY id")[1] == [(1,), (4,)]
    assert caller_database.run(f"SELECT id FROM docs WHERE NOT ({condition}) ORDER BY id")[1] == [(2,), (3,)]


ANY_OTHER = """
actor User {}
resource Repo {}
resource Doc { permissions = ["read"]; }
blocked(r: Repo) if is_locked(r) and not is_freed(r);
spared(u: User, r: Repo) if is_auditor(u) and not blocked(r);
has_permission(u: User, "read", d: Doc) if spared(u, r) and not is_hidden(r) and is_doc(d);
"""
HIDDEN = """
dialect: {dialect}
facts:
  is_hidden(Repo:_): {{query: "SELECT id FROM hidden"}}
  is_doc(Doc:_): {{query: "SELECT id FROM docs"}}
sql_types: {{Doc: bigint}}
"""


def test_many_stored_ids_that_a_negation_mentions_are_no_more_than_a_table(api, caller_database):
    """SQLite takes 500 selects in a union at most."""
    assert api.post("/policy", {"src": ANY_OTHER}).status_code == 200
    locked = [{"predicate": "is_locked", "args": [{"type": "Repo", "id": f"r{number}"}]} for number in range(600)]
    auditor = {"predicate": "is_auditor", "args": [{"type": "User", "id": "alice"}]}
    assert api.post("/batch", [{"inserts": [*locked, auditor]}]).status_code == 200
    query = {"actor_type": "User", "actor_id": "alice", "action": "read", "resource_type": "Doc", "context_facts": []}
    bindings = HIDDEN.format(dialect=caller_database.dialect)
    answer = api.post("/list_query", {"query": query, "column": "id", "data_bindings": bindings})
    caller_database.fresh("CREATE TABLE docs (id bigint); CREATE TABLE hidden (id text)")
    caller_database.fill("docs", [(1,), (2,)])
    caller_database.fill("hidden", [("r700",)])
    rows = caller_database.run(f"SELECT id FROM docs WHERE {answer.json()['sql']} ORDER BY id")[1]
    assert rows == [(1,), (2,)]


ANY_DOC = """
actor User {}
resource Folder { permissions = ["read"]; }
resource Doc { roles = ["reader"]; relations = { parent: Doc }; "reader" if "reader" on "parent"; }
has_role(user: User, "reader", _: Doc) if is_superuser(user);
lacks(user: User, d: Doc) if is_known(user) and not has_role(user, "reader", d);
has_permission(user: User, "read", f: Folder) if is_folder(f) and lacks(user, d) and not is_locked(d);
"""
PARENTS = """
dialect: {dialect}
facts:
  is_folder(Folder:_): {{query: "SELECT id FROM folders"}}
  has_relation(Doc:_, String:parent, Doc:_): {{query: "SELECT id, parent_id FROM docs"}}
sql_types: {{Folder: bigint, Doc: bigint}}
"""


@pytest.mark.parametrize(("predicate", "folders"), [("is_known", [(1,)]), ("is_superuser", [])])
def test_a_recursion_over_tables_begins_from_an_id_that_nothing_mentions(api, caller_database, predicate, folders):
    """Superusers lack no document, whether or not any table has it."""
    assert api.post("/policy", {"src": ANY_DOC}).status_code == 200
    alice = [{"type": "User", "id": "alice"}]
    facts = [{"predicate": name, "args": alice} for name in {"is_known", predicate}]
    assert api.post("/batch", [{"inserts": facts}]).status_code == 200
    query = {"actor_type": "User", "actor_id": "alice", "action": "read", "resource_type": "Folder"}
    bindings = PARENTS.format(dialect=caller_database.dialect)
    body = {"query": {**query, "context_facts": []}, "column": "id", "data_bindings": bindings}
    answer = api.post("/list_query", body)
    if caller_database.dialect == "mariadb" and not folders:  # it may cut recursion short: `not` of one is refused
        assert answer.status_code == 400
        return
    caller_database.fresh("CREATE TABLE folders (id bigint); CREATE TABLE docs (id bigint, parent_id bigint)")
    caller_database.fill("folders", [(1,)])
    assert caller_database.run(f"SELECT id FROM folders WHERE {answer.json()['sql']}")[1] == folders


ANY_OTHER_DOC = """
actor User {}
resource Folder { permissions = ["read"]; }
resource Doc {}
misses(u: User, d: Doc) if is_picky(u) and d != Doc{"1"};
has_all(u: User, d: Doc) if is_known(u) and not misses(u, d);
has_permission(u: User, "read", f: Folder) if is_folder(f) and has_all(u, d) and not is_locked(d);
inside(d: Doc, d: Doc);
inside(d: Doc, f: Doc) if is_in(d, e) and inside(e, f);
below(d: Doc, d: Doc);
below(d: Doc, f: Doc) if is_below(d, e) and below(e, f);
is_apart(u: User, d: Doc) if is_picky(u) and not (inside(d, e) and below(d, e));
has_permission(u: User, "see", f: Folder) if is_folder(f) and is_apart(u, d) and not is_locked(d);
"""
DOC_TABLES = {
    "is_folder(Folder:_)": "SELECT id FROM folders",
    "is_locked(Doc:_)": "SELECT id FROM locks",
    "is_picky(User:_)": "SELECT id FROM picky",
    "is_in(Doc:_, Doc:_)": "SELECT id, id FROM locks",
}


@pytest.mark.parametrize("stored", ["", "is_locked(Doc:_)", "is_in(Doc:_, Doc:_)"])
def test_an_id_that_nothing_mentions_equals_itself_only(api, caller_database, stored):
    """The picky miss all documents but 1, which is locked; and every document is inside and below itself."""
    assert api.post("/policy", {"src": ANY_OTHER_DOC}).status_code == 200
    facts = [{"predicate": "is_known", "args": [{"type": "User", "id": "alice"}]}]
    facts += [{"predicate": "is_locked", "args": [{"type": "Doc", "id": "1"}]}] if "locked" in stored else []
    assert api.post("/batch", [{"inserts": facts}]).status_code == 200
    caller_database.fresh(
        "CREATE TABLE folders (id bigint); CREATE TABLE locks (id varchar(9)); CREATE TABLE picky (id varchar(9))"
    )
    caller_database.fill("folders", [(1,)])
    caller_database.fill("locks", [("1",), ("",)])
    bindings = {"facts": {key: {"query": query} for key, query in DOC_TABLES.items() if key != stored}}
    bindings |= {"dialect": caller_database.dialect, "sql_types": {"Folder": "bigint"}}

    def ask(action: str) -> list[tuple]:
        query = {"actor_type": "User", "actor_id": "alice", "action": action, "resource_type": "Folder"}
        body = {"query": {**query, "context_facts": []}, "column": "id", "data_bindings": json.dumps(bindings)}
        condition = api.post("/list_query", body).json().get("sql", "NULL")
        return caller_database.run(f"SELECT id FROM folders WHERE {condition}")[1]

    assert (ask("read"), ask("see")) == ([(1,)], [])
    caller_database.fill("picky", [("alice",)])
    assert (ask("read"), ask("see")) == ([], [])
