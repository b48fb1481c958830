"""An id is the text that a column shows. Whatever else a column's type takes for equal is another id, or refused."""

from dataclasses import dataclass

import pytest

from tests.localsql.databases import DATABASES
from tests.localsql.test_residual import fact

POLICY = """
actor User {} resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if has_role(u, "reader", d) and not is_banned(u);
"""
ROLES = '  "has_role(User:_, reader, Doc:_)": {query: "SELECT u, d FROM roles"}'
BANS = '  "is_banned(User:_)": {query: "SELECT u FROM bans"}'
LONG = f"{2**255}"
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
NOCASE = "CREATE COLLATION IF NOT EXISTS nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"


@dataclass(frozen=True)
class Column:
    """A column's type in the database and in the bindings, its value, the value's id, and what it takes for equal."""

    sql: str
    said: str
    value: object
    id: str
    others: tuple[str, ...]
    first: str = ""


COLUMNS = {
    "postgres": {
        "uuid": Column("uuid", "uuid", UUID, UUID, (UUID.upper(), f"{{{UUID}}}", UUID.replace("-", ""))),
        "bigint": Column("bigint", "bigint", 7, "7", ("007", "+7", "7.0", " 7", "7e0")),
        "numeric": Column("numeric(10,2)", "numeric(10,2)", 7, "7", ("7.00", "07", "7.0")),
        "fraction": Column("numeric(10,2)", "numeric", "7.50", "7.5", ("7.50", "07.5")),
        "no number": Column("numeric", "numeric", "NaN", "NaN", ("nan", "NAN", "0", "Infinity")),
        "infinity": Column("numeric", "numeric", "-Infinity", "-Infinity", ("-inf", "Infinity", "NaN")),
        "long number": Column("numeric(78)", "numeric(78)", LONG, LONG, (LONG[:-1], f"0{LONG}", f"{LONG[:-1]}7")),
        "char": Column("char(5)", "char(5)", "a", "a", ("a ", "a    ")),
        "nothing said of a char": Column("char(5)", "", "a", "a", ("a ",)),
        "nothing said of a uuid": Column("uuid", "", UUID, UUID, (UUID.upper(),)),
        "citext": Column("citext", "", "Bob", "Bob", ("bob", "BOB"), "CREATE EXTENSION IF NOT EXISTS citext;"),
        "collation": Column("text COLLATE nocase", "text", "Bob", "Bob", ("bob",), NOCASE),
        "nothing said of a collation": Column("text COLLATE nocase", "", "Bob", "Bob", ("bob",), NOCASE),
        "enum": Column("mood", "mood", "sad", "sad", ("SAD", "sad "), "CREATE TYPE mood AS ENUM ('sad', 'ok');"),
        "boolean": Column("boolean", "boolean", True, "true", ("t", "TRUE", "1", "on")),
    },
    "sqlite": {
        "integer": Column("integer", "integer", 7, "7", ("007", "7.0", "+7")),
        "text of integers": Column("integer", "integer", "abc", "abc", ("ABC", "0", "abc ")),
        "fraction of integers": Column("integer", "integer", 7.5, "7.5", ("7.50", "7")),
        "number with an exponent": Column("integer", "integer", 7, "7", ("7e0", "7e000", "0.7e00001")),
        "numeric": Column("numeric", "numeric", 7.5, "7.5", ("7.50", "07.5")),
        "large number": Column("numeric", "numeric", 2**62 + 1, str(2**62 + 1), (str(2**62), f"{2**62}.5")),
        "collation": Column("text COLLATE NOCASE", "text", "Bob", "Bob", ("bob",)),
        "collation of numbers": Column("integer COLLATE NOCASE", "integer", "Bob", "Bob", ("bob",)),
        "padding": Column("text COLLATE RTRIM", "text", "a", "a", ("a ",)),
        "string": Column("string", "string", "7", "7", ("007", "7.0", "+7", " 7")),
        "nothing said of a string": Column("string", "", "7", "7", ("007", "7.0", "+7", " 7")),
    },
    "mariadb": {
        "bigint": Column("bigint", "bigint", 7, "7", ("007", "7.0", "7abc")),
        "unsigned": Column("bigint unsigned", "bigint", 2**64 - 1, str(2**64 - 1), ("-1", str(2**63 - 1), str(2**64))),
        "collation": Column("varchar(20)", "varchar(20)", "Bob", "Bob", ("bob", "Bob ", "bób")),
        "char": Column("char(5)", "char(5)", "a", "a", ("a ", "A")),
        "uuid": Column("uuid", "uuid", UUID, UUID, (UUID.upper(),)),
        "enum": Column("enum('sad','ok')", "", "sad", "sad", ("SAD", "1", "sad ")),
        "nothing said of a float": Column("float", "", 0.1, "0.1", ("0.10", ".1")),
        "nothing said of a uuid": Column("uuid", "", UUID, UUID, (UUID.upper(), "no uuid")),
    },
}
CASES = [(each.dialect, name) for each in DATABASES for name in COLUMNS[each.dialect]]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def column(request, api):
    dialect, name = request.param
    found = COLUMNS[dialect][name]
    database = request.getfixturevalue({"postgres": "postgresql"}.get(dialect, dialect) + "_caller")
    try:
        database.fresh(f"{found.first} CREATE TABLE roles (u {found.sql}, d bigint); CREATE TABLE bans (u {found.sql})")
    except Exception as error:
        if not found.first:
            raise
        pytest.xfail(f"this database has no such type: {error}")
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    return found, database, api


def allowed(column, user: str, *tables: str) -> bool | None:
    """None where the question is refused."""
    found, database, api = column
    said = f"User: '{found.said}', " if found.said else ""
    bindings = "\n".join([f"dialect: {database.dialect}", "facts:", *tables, f"sql_types: {{{said}Doc: bigint}}"])
    query = {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "resource_id": "1"}
    answer = api.post("/authorize_query", {"query": query, "data_bindings": bindings})
    if answer.status_code == 400:
        assert "reads it as" in answer.json()["message"]
        return None
    assert answer.status_code == 200, answer.content
    return bool(database.run(answer.json()["sql"])[1][0][0])


def test_a_stored_ban_holds_for_roles_in_a_table(column):
    found, database, api = column
    database.fill("roles", [(found.value, 1)])
    assert allowed(column, found.id, ROLES) is True
    api.post("/batch", [{"inserts": [fact("is_banned", ("User", found.id))]}])
    assert allowed(column, found.id, ROLES) is False
    for other in found.others:
        assert not allowed(column, other, ROLES), other


def test_a_ban_in_a_table_holds_for_stored_roles(column):
    found, database, api = column
    api.post("/batch", [{"inserts": [fact("has_role", ("User", found.id), ("String", "reader"), ("Doc", "1"))]}])
    assert allowed(column, found.id, BANS) is True
    database.fill("bans", [(found.value,)])
    assert allowed(column, found.id, BANS) is False
    for other in found.others:
        assert not allowed(column, other, BANS), other


def test_both_in_tables_are_one_id(column):
    found, database, _ = column
    database.fill("roles", [(found.value, 1)])
    assert allowed(column, found.id, ROLES, BANS) is True
    database.fill("bans", [(found.value,)])
    assert allowed(column, found.id, ROLES, BANS) is False


MIXED = """
dialect: postgres
facts:
  "has_role(User:_, reader, Doc:_)": {query: "SELECT u, d FROM roles", sql_types: [bigint, bigint]}
  "is_banned(User:_)": {query: "SELECT u FROM bans", sql_types: ["%s"]}
"""


@pytest.mark.parametrize(("sql", "value"), [("numeric(10,2)", 7), ("numeric", "7.00"), ("text", "7")])
def test_numbers_of_different_types_are_one_id(api, postgresql_caller, sql, value):
    postgresql_caller.fresh(f"CREATE TABLE roles (u bigint, d bigint); CREATE TABLE bans (u {sql})")
    postgresql_caller.fill("roles", [(7, 1), (8, 1)])
    postgresql_caller.fill("bans", [(value,)])
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    constraints = {
        "u": {"type": "User", "ids": None},
        "a": {"type": "String", "ids": ["read"]},
        "d": {"type": "Doc", "ids": None},
    }
    query = {"predicate": ["allow", ["u", "a", "d"]], "calls": [], "constraints": constraints, "context_facts": []}
    mode = {"mode": "select", "query_vars_to_output_column_names": {"u": "who"}}
    body = {"query": query, "data_bindings": MIXED % sql, "mode": mode}
    answer = api.post("/evaluate_query_local", body)
    assert [str(row[0]) for row in postgresql_caller.run(answer.json()["sql"])[1]] == ["8"]
    assert api.post("/authorize_query", {"query": {
        "actor_type": "User", "actor_id": "7", "action": "read", "resource_type": "Doc", "resource_id": "1",
    }, "data_bindings": MIXED % sql}).status_code == 200  # fmt: skip


FLAGS = """
dialect: {dialect}
facts: {{"is_locked(Doc:_, Boolean:_)": {{query: "SELECT id, locked FROM docs"}}}}
sql_types: {{Doc: bigint, Boolean: {said}}}
"""
UNLOCKED = """
actor User {} resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if reader(u) and not is_locked(d, true);
"""


@pytest.mark.parametrize(
    ("dialect", "sql", "said", "is_said"),
    [
        ("postgres", "boolean", "boolean", True),
        ("postgres", "text", "text", True),
        ("postgres", "integer", "integer", False),
        ("postgres", "bit(1)", "bit(1)", False),
        ("sqlite", "integer", "integer", True),
        ("sqlite", "boolean", "boolean", True),
        ("mariadb", "tinyint(1)", "tinyint(1)", True),
        ("mariadb", "bit(1)", "bit(1)", False),
    ],
)
def test_truths_are_what_the_database_has_for_them(request, api, dialect, sql, said, is_said):
    database = request.getfixturevalue({"postgres": "postgresql"}.get(dialect, dialect) + "_caller")
    assert api.post("/policy", {"src": UNLOCKED}).status_code == 200
    api.post("/facts", fact("reader", ("User", "ann")))
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    bindings = FLAGS.format(dialect=dialect, said=f"'{said}'")
    answer = api.post("/list_query", {"query": query, "column": "id", "data_bindings": bindings})
    if not is_said:
        assert answer.status_code == 400
        assert "is not a boolean type" in answer.json()["message"]
        return
    database.fresh(f"CREATE TABLE docs (id bigint, locked {sql})")
    values = ("true", "false") if said == "text" else (True, False)
    database.fill("docs", [(number, value) for number, value in zip((1, 2), values)])
    assert database.run(f"SELECT id FROM docs WHERE {answer.json()['sql']}")[1] == [(2,)]


@pytest.mark.parametrize(("said", "sql"), [("sqlite", "boolean"), ("sqlite", "integer"), ("mariadb", "tinyint(1)")])
def test_a_number_that_the_database_takes_for_true_is_true(request, api, said, sql):
    database = request.getfixturevalue(f"{said}_caller")
    assert api.post("/policy", {"src": UNLOCKED}).status_code == 200
    api.post("/facts", fact("reader", ("User", "ann")))
    database.fresh(f"CREATE TABLE docs (id bigint, locked {sql})")
    database.fill("docs", [(1, 0), (2, 1), (3, 2), (4, -1), (5, None)])
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    bindings = FLAGS.format(dialect=said, said=f"'{sql}'")
    condition = api.post("/list_query", {"query": query, "column": "id", "data_bindings": bindings}).json()["sql"]
    assert database.run(f"SELECT id FROM docs WHERE {condition}")[1] == [(1,), (5,)]
    said_of = {"d": {"type": "Doc", "ids": None}, "b": {"type": "Boolean", "ids": None}}
    query = {"predicate": ["is_locked", ["d", "b"]], "calls": [], "constraints": said_of, "context_facts": []}
    mode = {"mode": "select", "query_vars_to_output_column_names": {"d": "doc", "b": "locked"}}
    answer = api.post("/evaluate_query_local", {"query": query, "data_bindings": bindings, "mode": mode})
    assert sorted(database.run(answer.json()["sql"])[1]) == [(1, 0), (2, 1), (3, 1), (4, 1)]


def test_a_number_that_sqlite_shows_with_an_exponent_is_no_other(api, sqlite_caller):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    sqlite_caller.fresh("CREATE TABLE roles (u numeric, d bigint)")
    sqlite_caller.fill("roles", [(1e20, 1)])
    column = Column("numeric", "numeric", 1e20, "1.0e+20", ())
    assert not allowed((column, sqlite_caller, api), f"{10**20}", ROLES)


@pytest.mark.parametrize("stored", ["12345678901234567890", "0.1234567890123456789"])
def test_a_number_that_sqlite_rounds_is_not_one_that_rounds_alike(api, sqlite_caller, stored):
    other = f"{stored[:-1]}1"
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    sqlite_caller.fresh("CREATE TABLE roles (u numeric, d bigint)")
    sqlite_caller.fill("roles", [(stored, 1)])
    column = Column("numeric", "numeric", stored, stored, (other,))
    assert allowed((column, sqlite_caller, api), other, ROLES) is False


def test_different_bytes_that_are_no_text_are_no_common_id(api, mariadb_caller):
    """Two users, whose bytes would both be shown as `A?`."""
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    mariadb_caller.fresh("CREATE TABLE roles (u varbinary(9), d bigint); CREATE TABLE bans (u varbinary(9))")
    mariadb_caller.fill("roles", [(b"A\x80", 1), (b"A\x81", 2)])
    mariadb_caller.fill("bans", [(b"A\x80",)])
    said = "\n".join(["dialect: mariadb", "facts:", ROLES, BANS, "sql_types: {Doc: bigint}"])
    values = {name: {"type": kind, "ids": None} for name, kind in (("u", "User"), ("d", "Doc"))}
    action = {"a": {"type": "String", "ids": ["read"]}}
    query = {"predicate": ["allow", ["u", "a", "d"]], "calls": [], "constraints": values | action, "context_facts": []}
    mode = {"mode": "select", "query_vars_to_output_column_names": {"d": "doc"}}
    answer = api.post("/evaluate_query_local", {"query": query, "data_bindings": said, "mode": mode})
    assert mariadb_caller.run(answer.json()["sql"])[1] == [(2,)]


GROUPS = """
actor User {} resource Group {}
resource Doc { permissions = ["read"]; }
inside(g: Group, h: Group) if within(g, h);
inside(g: Group, h: Group) if within(g, k) and inside(k, h);
has_permission(u: User, "read", d: Doc) if is_member(u, g) and inside(g, h) and owns(h, d);
"""
GROUP_BINDINGS = """
dialect: {dialect}
facts:
  "is_member(User:_, Group:_)": {{query: "SELECT u, g FROM members"}}
  "within(Group:_, Group:_)": {{query: "SELECT g, h FROM groups_in"}}
  "owns(Group:_, Doc:_)": {{query: "SELECT g, d FROM owns"}}
sql_types: {{User: text, Doc: bigint}}
"""


def recursive_condition(api, bindings: str) -> str:
    """The condition on the column `d` for what ann may read through her groups."""
    assert api.post("/policy", {"src": GROUPS}).status_code == 200
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    answer = api.post("/list_query", {"query": query, "column": "d", "data_bindings": bindings})
    assert "RECURSIVE" in answer.json()["sql"]
    return answer.json()["sql"]


@pytest.mark.parametrize("dialect", ["mariadb", "mysql"])
def test_recursion_keeps_different_bytes_apart(api, mariadb_caller, dialect):
    """Two groups, whose bytes would both become `G?` in a recursive table of texts."""
    mariadb_caller.fresh(
        "CREATE TABLE members (u varchar(9), g varbinary(9)); CREATE TABLE owns (g varbinary(9), d bigint);"
        "CREATE TABLE groups_in (g varbinary(9), h varbinary(9))"
    )
    mariadb_caller.fill("members", [("ann", b"G\x80")])
    mariadb_caller.fill("groups_in", [(b"G\x80", b"H\x80"), (b"H\x80", "i" * 9), (b"G\x81", b"H\x81")])
    mariadb_caller.fill("owns", [("i" * 9, 1), (b"H\x81", 2), (b"H\x80", 3)])
    condition = recursive_condition(api, GROUP_BINDINGS.format(dialect=dialect))
    assert mariadb_caller.run(f"SELECT d FROM owns WHERE {condition} ORDER BY d")[1] == [(1,), (3,)]
    assert mariadb_caller.run(f"SELECT d FROM owns WHERE NOT ({condition})")[1] == [(2,)]


@pytest.mark.parametrize("dialect", ["mariadb", "mysql"])
def test_recursion_keeps_unsigned_numbers_apart_from_signed_ones(api, mariadb_caller, dialect):
    """In 64 bits, the largest unsigned number is -1."""
    mariadb_caller.fresh(
        "CREATE TABLE members (u varchar(9), g bigint unsigned); CREATE TABLE owns (g bigint, d bigint);"
        "CREATE TABLE groups_in (g bigint unsigned, h bigint unsigned); CREATE TABLE more_in (g bigint, h bigint)"
    )
    mariadb_caller.fill("members", [("ann", 2**64 - 1)])
    mariadb_caller.fill("groups_in", [(2**64 - 1, 2**63), (2**63, 5)])
    mariadb_caller.fill("more_in", [(-1, 6), (-(2**63), 7)])
    mariadb_caller.fill("owns", [(number, number) for number in (5, 6, 7)])
    said = GROUP_BINDINGS.format(dialect=dialect).replace(
        "SELECT g, h FROM groups_in", "SELECT g, h FROM groups_in UNION ALL SELECT g, h FROM more_in"
    )
    condition = recursive_condition(api, f"{said.rstrip()[:-1]}, Group: bigint}}")
    assert mariadb_caller.run(f"SELECT d FROM owns WHERE {condition}")[1] == [(5,)]


NOT_BANNED = 'actor User {} resource Doc {} has_permission(_: User, "read", d: Doc) if not is_banned(d);'
TWO_TYPES = """
dialect: {dialect}
facts:
  "is_banned(Doc:_)": {{query: "SELECT d FROM bans", sql_types: [varchar(40)]}}
sql_types: {{Doc: bigint}}
"""


@pytest.mark.parametrize(
    ("dialect", "sql", "ids"),
    [
        ("sqlite", "integer", ["7", "8", "abc", "xyz"]),
        ("mariadb", "bigint unsigned", ["7", "8", str(2**64 - 1), str(2**64 - 2)]),
        ("postgres", "bigint", ["7", "8", "-1", str(2**62)]),
    ],
)
def test_a_list_of_numbers_leaves_out_those_that_are_texts_elsewhere(request, api, dialect, sql, ids):
    database = request.getfixturevalue({"postgres": "postgresql"}.get(dialect, dialect) + "_caller")
    assert api.post("/policy", {"src": NOT_BANNED}).status_code == 200
    database.fresh(f"CREATE TABLE docs (d {sql}); CREATE TABLE bans (d varchar(40))")
    database.fill("docs", [(int(each) if each.lstrip("-").isdecimal() else each,) for each in ids])
    database.fill("bans", [(ids[0],), (ids[2],), (f"0{ids[1]}",), ("no number",), (None,)])
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    body = {"query": query, "column": "docs.d", "data_bindings": TWO_TYPES.format(dialect=dialect)}
    condition = api.post("/list_query", body).json()["sql"]
    found = database.run(f"SELECT d FROM docs WHERE {condition}")[1]
    assert sorted(str(each) for (each,) in found) == sorted([ids[1], ids[3]])
    assert len(database.run(f"SELECT d FROM docs WHERE NOT {condition}")[1]) == 2


AGES = """
dialect: {dialect}
facts: {{"age(Doc:_, Integer:_)": {{query: "SELECT d, age FROM ages", sql_types: [integer, {said}]}}}}
sql_types: {{Doc: integer}}
"""


@pytest.mark.parametrize(
    ("dialect", "sql", "said", "others"),
    [
        ("mariadb", "bigint unsigned", "bigint", [2**63, 2**64 - 1, None]),
        ("mariadb", "varchar(40)", "text", [str(2**63), "9" * 30, "7.5", "018", "18 ", "18\n", "1e3", None]),
        ("sqlite", "real", "numeric", [7.5, 18.5, 1e30, "old", None]),
        ("postgres", "numeric(30,2)", "numeric", [2**63, "7.5", "NaN", None]),
    ],
)
def test_what_is_no_integer_is_no_fact(request, api, dialect, sql, said, others):
    database = request.getfixturevalue({"postgres": "postgresql"}.get(dialect, dialect) + "_caller")
    policy = 'actor User {} resource Doc {} has_permission(_: User, "read", d: Doc) if age(d, n) and n != 7;'
    assert api.post("/policy", {"src": policy}).status_code == 200
    database.fresh(f"CREATE TABLE ages (d integer, age {sql})")
    ages = [7, 18, 2**40, *others]
    database.fill("ages", list(enumerate(ages)))
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    body = {"query": query, "column": "ages.d", "data_bindings": AGES.format(dialect=dialect, said=said)}
    condition = api.post("/list_query", body).json()["sql"]
    assert sorted(database.run(f"SELECT d FROM ages WHERE {condition}")[1]) == [(1,), (2,)]


def test_numbers_in_texts_do_not_fail_statements_that_write(api, mariadb_caller):
    """In the usual modes, a statement that writes fails if it casts a text that is not a number."""
    policy = 'actor User {} resource Doc {} has_permission(_: User, "read", d: Doc) if age(d, n) and n > 7;'
    assert api.post("/policy", {"src": policy}).status_code == 200
    mariadb_caller.fresh("CREATE TABLE ages (d integer, age varchar(40)); CREATE TABLE docs (d integer, k integer)")
    mariadb_caller.fill("ages", [(1, "18"), (2, "old"), (3, "9" * 30), (4, "")])
    mariadb_caller.fill("docs", [(1, 0), (2, 0), (3, 0), (4, 0)])
    query = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}
    body = {"query": query, "column": "docs.d", "data_bindings": AGES.format(dialect="mariadb", said="text")}
    with mariadb_caller.connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = DEFAULT")
        cursor.execute(f"UPDATE docs SET k = 1 WHERE {api.post('/list_query', body).json()['sql']}")
    assert mariadb_caller.run("SELECT d FROM docs WHERE k = 1")[1] == [(1,)]
