"""The produced conditions let the caller's indexes do the work."""

import pytest

POLICY = """
actor User {}
resource Org { roles = ["member", "finder"]; }
resource Folder { roles = ["viewer"]; relations = { parent: Folder }; "viewer" if "viewer" on "parent"; }
resource Doc {
  permissions = ["read", "find"]; roles = ["reader"]; relations = { folder: Folder, org: Org };
  "read" if "reader"; "reader" if "member" on "org"; "read" if "viewer" on "folder";
  "find" if "finder" on "org";
}
"""
BINDINGS = """
dialect: {dialect}
facts:
  has_relation(Doc:_, org, Org:_): {{query: "SELECT id, org_id FROM docs"}}
  has_relation(Doc:_, folder, Folder:_): {{query: "SELECT id, folder_id FROM docs"}}
  has_relation(Folder:_, parent, Folder:_): {{query: "SELECT id, parent_id FROM folders"}}
  has_role(User:_, String:_, Doc:_): {{query: "SELECT user_id, role, doc_id FROM shares"}}
  has_role(User:_, finder, Org:_): {{query: "SELECT user_id, org_id FROM members WHERE role = 'finder'"}}
sql_types: {{Doc: bigint, Org: bigint, Folder: bigint, User: text, String: text}}
"""
TABLES = """
CREATE TABLE folders (id bigint primary key, parent_id bigint);
CREATE INDEX folders_parent ON folders (parent_id);
CREATE TABLE docs (id bigint primary key, org_id bigint, folder_id bigint);
CREATE INDEX docs_org ON docs (org_id);
CREATE INDEX docs_folder ON docs (folder_id);
CREATE TABLE shares (user_id text, role text, doc_id bigint);
CREATE INDEX shares_user ON shares (user_id);
CREATE TABLE members (user_id text, role text, org_id bigint);
CREATE INDEX members_user ON members (user_id)
"""
TABLE_NAMES = ("docs", "folders", "shares", "members")
DOCS = 20_000
ALICE = {"type": "User", "id": "alice"}
FACTS = [
    {"predicate": "has_role", "args": [ALICE, {"type": "String", "id": "member"}, {"type": "Org", "id": "7"}]},
    {"predicate": "has_role", "args": [ALICE, {"type": "String", "id": "viewer"}, {"type": "Folder", "id": "990"}]},
]
ANALYZE = {"sqlite": "ANALYZE", "postgres": "ANALYZE", "mariadb": "ANALYZE TABLE folders, docs, shares, members"}


@pytest.fixture(scope="module")
def tables(caller_database):
    caller_database.fresh(TABLES)
    caller_database.fill("folders", [(number, number // 10 or None) for number in range(1, 2000)])
    caller_database.fill("docs", [(number, number % 1000, number % 1999 + 1) for number in range(DOCS)])
    caller_database.fill("shares", [(f"user{number % 500}", "reader", number) for number in range(5000)])
    caller_database.fill("members", [(f"user{number % 2000}", "finder", number % 1000) for number in range(5000)])
    caller_database.fill("members", [("alice", role, 11) for role in ("finder", "finder", "owner")])
    if caller_database.dialect != "sqlite":
        caller_database.connection.cursor().execute(ANALYZE[caller_database.dialect])
    return caller_database


@pytest.fixture
def filled(api, tables):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    assert api.post("/batch", [{"inserts": FACTS}]).status_code == 200
    return tables


BELOW = (990, *range(9900, 9910))
READ = {number for number in range(DOCS) if number % 1000 == 7 or number % 1999 + 1 in BELOW}
FOUND = {number for number in range(DOCS) if number % 1000 == 11}


@pytest.mark.parametrize(("action", "ids"), [("read", READ), ("find", FOUND)], ids=("read", "find"))
def test_a_list_finds_its_rows_by_indexes(api, filled, action, ids):
    query = {"actor_type": "User", "actor_id": "alice", "action": action, "resource_type": "Doc", "context_facts": []}
    bindings = BINDINGS.format(dialect=filled.dialect)
    answer = api.post("/list_query", {"query": query, "column": "docs.id", "data_bindings": bindings})
    select = f"SELECT docs.id FROM docs WHERE {answer.json()['sql']}"
    assert {row[0] for row in filled.run(select)[1]} == ids
    assert scans(filled, select) == []


def test_a_decision_finds_its_rows_by_indexes(api, filled):
    query = {"actor_type": "User", "actor_id": "alice", "action": "read", "context_facts": []}
    body = {"query": {**query, "resource_type": "Doc", "resource_id": "7"}}
    answer = api.post("/authorize_query", {**body, "data_bindings": BINDINGS.format(dialect=filled.dialect)})
    sql = answer.json()["sql"]
    assert bool(filled.run(sql)[1][0][0]) is True
    assert scans(filled, sql) == []


def scans(database, select: str) -> list[str]:
    """The caller's tables that are read from end to end."""
    match database.dialect:
        case "sqlite":
            plan = [str(row[-1]) for row in database.run(f"EXPLAIN QUERY PLAN {select}")[1]]
            return [line for line in plan if line.startswith("SCAN ") and any(t in line for t in TABLE_NAMES)]
        case "postgres":
            plan = [row[0] for row in database.run(f"EXPLAIN {select}")[1]]
            return [line for line in plan if "Seq Scan" in line]
    columns, rows = database.run(f"EXPLAIN {select}")
    table, kind = columns.index("table"), columns.index("type")
    return [str(row) for row in rows if row[kind] in ("ALL", "index") and row[table] in TABLE_NAMES]
