"""The endpoints: their forms, their refusals, and that nothing but names and constants changes in the SQL."""

import io
import re

import pytest
import sqlalchemy
import sqlglot
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from sqlglot import exp

from facts import store
from localsql.dialects import DIALECT_NAMES, DIALECTS
from localsql.models import OutboxRow
from localsql.sync import outbox
from policy.models import Environment

POLICY = """
actor User {}
resource Org { roles = ["member"]; }
resource Repo {
  roles = ["reader"]; permissions = ["read"]; relations = { parent: Org };
  "read" if "reader"; "reader" if "member" on "parent"; "read" if is_public(resource);
}
has_permission(u: User, "read", r: Repo) if is_auditor(u) and not is_locked(r);
"""
BINDINGS = """
dialect: postgres
facts:
  has_relation(Repo:_, parent, Org:_): {query: "SELECT id, org_id FROM repos"}
  has_role(User:_, String:_, Org:_): {query: "SELECT user_id, role, org_id FROM org_role"}
  is_locked(Repo:_): {query: SELECT id FROM repos WHERE locked}
sql_types: {Repo: bigint, Org: bigint, User: text}
"""
LIST = {"actor_type": "User", "actor_id": "alice", "action": "read", "resource_type": "Repo", "context_facts": []}
UNUSED = """
facts:
  has_relation(Org:_, String:repos, Repo:_): {query: "SELECT org_id, id FROM repos"}
  is_publik(Repo:_): {query: SELECT id FROM repos}
  is_locked(Ropo:_): {query: SELECT id FROM repos}
domains: {Ropo: {query: SELECT id FROM repos}}
"""
AUDITOR = {"predicate": "is_auditor", "args": [{"type": "User", "id": "alice"}]}
HOSTILE = [
    "x' OR '1'='1", "\\' OR 1=1 --", "a\\", "'", "/*", "*/", ";", ":x", "%s", "$1", "?", "' UNION SELECT 1 --", "é😀",
]  # fmt: skip


@pytest.fixture
def asked(api):
    api.post("/policy", {"src": POLICY})

    def ask(path: str = "/list_query", bindings: str | None = BINDINGS, column: object = "id", **query):
        body = {"query": {**LIST, **query}, "data_bindings": bindings, "column": column}
        return api.post(path, body)

    return ask


def test_a_list_is_one_condition_without_a_statement_around(asked):
    sql = asked().json()["sql"]
    assert sql.startswith("id IN (WITH __f0(")
    assert ";" not in sql
    assert "--" not in sql


def test_every_value_but_some_is_a_condition_too(asked, api):
    sql = asked(context_facts=[AUDITOR]).json()["sql"]
    assert sql.startswith("(NOT (id IN (")
    assert " OR id IN (" in sql


def test_nothing_and_everything_are_said_plainly(asked, api):
    assert asked(action="frob").json() == {"sql": "FALSE"}
    assert asked(resource_type="Nothing").json() == {"sql": "FALSE"}
    assert asked(bindings=None, context_facts=[AUDITOR]).json() == {"sql": "TRUE"}
    said = asked("/authorize_query", None, resource_id="5").json()
    assert said == {"sql": "SELECT FALSE AS allowed"}
    said = asked("/actions_query", None, resource_id="5").json()
    assert said == {"sql": 'SELECT CAST(NULL AS text) AS "actions" WHERE FALSE'}


def test_without_a_policy_permissions_that_are_facts_are_allowed(api):
    mine = {"predicate": "has_permission", "args": [
        {"type": "User", "id": "alice"}, {"type": "String", "id": "read"}, {"type": "Repo", "id": "5"}
    ]}  # fmt: skip
    for bindings in (BINDINGS, None):
        for context in ([], [mine]):
            body = {"query": {**LIST, "context_facts": context}, "data_bindings": bindings, "column": "id"}
            sql = api.post("/list_query", body).json()["sql"]
            assert "5" in sql if context else sql == "FALSE"


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_hostile_ids_are_constants_like_any_other(asked, dialect):
    bindings = BINDINGS.replace("dialect: postgres", f"dialect: {dialect}")
    # MySQL compares texts beyond ASCII by their bytes alone, since not every column could have them.
    plain = {is_ascii: said(asked, bindings, "alice" if is_ascii else "älice") for is_ascii in (True, False)}
    for hostile in HOSTILE:
        odd = said(asked, bindings, hostile)
        assert shape(odd, dialect) == shape(plain[hostile.isascii()], dialect), hostile


def said(asked, bindings: str, actor: str) -> str:
    return asked(bindings=bindings, actor_id=actor).json()["sql"]


def shape(sql: str, dialect: str) -> str:
    """The statement's tree with every constant the same."""
    parser = DIALECTS[dialect].parser
    tree = sqlglot.parse_one(f"SELECT 1 WHERE {sql}", dialect=parser)

    def blank(node: exp.Expression) -> exp.Expression:
        is_constant = isinstance(node, exp.Literal | exp.HexString | exp.UnicodeString | exp.ByteString | exp.Chr)
        return exp.Literal.string("x") if is_constant or isinstance(node, exp.Introducer) else node

    return tree.transform(blank).sql(dialect=parser)


NESTED = """
actor User {}
resource Folder {
  roles = ["blocked"];
  permissions = ["read"];
  relations = { parent: Folder };
  "blocked" if "blocked" on "parent";
}
has_permission(user: User, "read", folder: Folder) if is_member(user) and folder_exists(folder)
  and not has_role(user, "blocked", folder);
"""
NESTED_BINDINGS = """
facts:
  has_relation(Folder:_, parent, Folder:_): {query: "SELECT id, parent_id FROM folders"}
  has_role(User:_, blocked, Folder:_): {query: "SELECT user_id, folder_id FROM blocks"}
  folder_exists(Folder:_): {query: "SELECT id FROM folders"}
"""


@pytest.mark.parametrize(("dialect", "status"), [("postgres", 200), ("sqlite", 200), ("mariadb", 400)])
def test_what_may_be_cut_short_unnoticed_is_not_negated(api, dialect, status):
    assert api.post("/policy", {"src": NESTED}).status_code == 200
    body = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Folder"}
    member = {"predicate": "is_member", "args": [{"type": "User", "id": "ann"}]}
    bindings = f"dialect: {dialect}\n{NESTED_BINDINGS}"
    body = {"query": {**body, "context_facts": [member]}, "data_bindings": bindings, "column": "id"}
    answer = api.post("/list_query", body)
    assert answer.status_code == status, answer.content
    if status == 400:
        assert "recursive" in answer.json()["message"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"column": "id; DROP TABLE repos"}, "must be a column name"),
        ({"column": "user"}, "reserved word"),
        ({"column": None}, "`column`"),
        ({"bindings": "facts: ["}, "invalid YAML"),
        ({"bindings": 5}, "data_bindings"),
        ({"bindings": "facts:\n  is_publik(Repo:_): {query: SELECT * FROM repos}"}, "is_publik(Repo:_)"),
        ({"bindings": "facts:\n  is_publik(Repo:_, Repo:_): {query: SELECT id FROM repos}"}, "is_publik("),
        ({"actor_id": ""}, "query.actor_id"),
    ],
)
def test_mistakes_are_refused_with_their_place(asked, change, place):
    answer = asked(**change)
    assert answer.status_code == 400
    assert place in answer.json()["message"]


def test_modes_and_variables_are_checked(api, asked):
    constraints = {"u": {"type": "User", "ids": None}, "a": {"type": "String", "ids": ["read"]}}
    query = {
        "predicate": ["allow", ["u", "a", "r"]], "calls": [], "context_facts": [],
        "constraints": {**constraints, "r": {"type": "Repo", "ids": ["5"]}},
    }  # fmt: skip

    def said(mode: object) -> str:
        answer = api.post("/evaluate_query_local", {"query": query, "data_bindings": BINDINGS, "mode": mode})
        assert answer.status_code == 400, answer.content
        return answer.json()["message"]

    select = {"mode": "select"}
    assert "mode" in said(None)
    assert "mode.mode" in said({"mode": "delete"})
    assert "no variable `x`" in said({**select, "query_vars_to_output_column_names": {"x": "y"}})
    assert "two variables" in said({**select, "query_vars_to_output_column_names": {"u": "y", "r": "y"}})
    assert "no variable `x`" in said({"mode": "filter", "query_var": "x", "output_column_name": "id"})
    assert "mode.output_column_name" in said({"mode": "filter", "query_var": "u"})


@pytest.mark.parametrize("path", ["/authorize_query", "/list_query", "/actions_query", "/evaluate_query_local"])
def test_another_moment_is_refused_and_never_answered_as_now(asked, api, path):
    inside = asked(path, as_of=1)
    body = {"query": LIST | {"resource_id": "1"}, "data_bindings": BINDINGS, "column": "id", "policy_version": 1}
    beside = api.post(path, body)
    for refused, place in ((inside, "query.as_of"), (beside, "policy_version")):
        assert refused.status_code == 400
        assert refused.json()["message"].startswith(f"{place}: not supported for local SQL")
    if path == "/list_query":
        assert asked(path, as_of=None, policy_version=None).status_code == 200


def test_sql_says_of_which_revision_it_is(asked, api):
    offset = api.post("/batch", [{"inserts": [AUDITOR]}])["OsoOffset"]
    assert asked()["OsoOffset"] == offset


def test_an_answer_of_every_value_needs_a_domain(api):
    api.post(
        "/policy",
        {
            "src": "actor User {} resource Repo { permissions = ['read']; }".replace("'", '"')
            + ' has_permission(_: User, "read", r: Repo) if is_public(r);'
        },
    )
    query = {
        "predicate": ["allow", ["u", "a", "r"]], "calls": [], "context_facts": [],
        "constraints": {n: {"type": t, "ids": None} for n, t in (("u", "User"), ("a", "String"), ("r", "Repo"))},
    }  # fmt: skip
    mode = {"mode": "select", "query_vars_to_output_column_names": {"u": "user_id", "r": "repo_id"}}
    bindings = "facts:\n  is_public(Repo:_): {query: SELECT id FROM repos WHERE public}\n"
    body = {"query": query, "mode": mode, "data_bindings": bindings}
    refused = api.post("/evaluate_query_local", body)
    assert refused.status_code == 400
    assert "variable `u`" in refused.json()["message"]
    body["data_bindings"] += "domains:\n  User: {query: SELECT id FROM users}\n"
    assert 'AS "user_id"' in api.post("/evaluate_query_local", body).json()["sql"]


# ---- commands ----------------------------------------------------------------------------------------------


def test_the_commands_check_and_print(asked, tmp_path):
    file = tmp_path / "bindings.yaml"
    file.write_text(BINDINGS)
    assert printed("check_bindings", str(file)) == "no problems: 3 bindings\n"
    file.write_text(BINDINGS.replace("Org: bigint", "Ogr: bigint"))
    advice = io.StringIO()
    call_command("check_bindings", str(file), stdout=io.StringIO(), stderr=advice)
    assert "has no entry for Org" in advice.getvalue()
    assert "has an entry for Ogr" in advice.getvalue()
    file.write_text(BINDINGS)
    found = printed("ask_local", "list", "User:alice", "read", "Repo", "id", "--bindings", str(file))
    assert found.startswith("id IN (\n")
    assert "TRUE" in printed(
        "ask_local", "list", "User:alice", "read", "Repo", "id", "--context", "is_auditor(User:alice)"
    )
    file.write_text("facts: [")
    with pytest.raises(CommandError, match=f"^{re.escape(str(file))}: invalid YAML"):
        printed("ask_local", "list", "User:alice", "read", "Repo", "id", "--bindings", str(file))


def test_what_the_policy_has_no_use_for_in_bindings_is_told(asked, tmp_path):
    file = tmp_path / "bindings.yaml"
    file.write_text(f"{UNUSED}sql_types: {{Repo: text, Org: text}}\n")
    out, advice = io.StringIO(), io.StringIO()
    call_command("check_bindings", str(file), stdout=out, stderr=advice)
    assert out.getvalue() == "no problems: 3 bindings; 4 entries are not used in policy\n"
    assert advice.getvalue().splitlines()[:4] == [
        "advice: `has_relation(Org:_, String:repos, Repo:_)` is not used in policy"
        " (accepted: `has_relation(Repo, String, Org)`)",
        "advice: `is_publik(Repo:_)` is not used in policy (did you mean `is_public`?)",
        "advice: `is_locked(Ropo:_)` is not used in policy (did you mean `Repo`?)",
        "advice: `domains.Ropo` is not used in policy: the policy has no such type (did you mean `Repo`?)",
    ]
    with pytest.raises(CommandError, match="4 entries are not used in policy"):
        printed("check_bindings", str(file), "--strict")
    file.write_text("facts:\n  nobody(Repo:_): {query: SELECT id, org_id FROM repos}\n")
    with pytest.raises(CommandError, match="nobody"):
        printed("check_bindings", str(file))


def test_misspelled_relations_in_bindings_are_told(asked, tmp_path):
    file = tmp_path / "bindings.yaml"
    file.write_text(BINDINGS.replace("parent", "parnt"))
    advice = io.StringIO()
    call_command("check_bindings", str(file), stdout=io.StringIO(), stderr=advice)
    assert advice.getvalue().splitlines()[0] == (
        "advice: `has_relation(Repo:_, String:parnt, Org:_)` is not used in policy: "
        "unknown relation of Repo: `parnt` (did you mean `parent`?)"
    )
    with pytest.raises(CommandError, match="1 entry is not used in policy"):
        printed("check_bindings", str(file), "--strict")


def test_what_the_policy_has_no_use_for_in_bindings_changes_no_answer(asked, caplog):
    """The published add-on for SQLAlchemy binds both sides of each relationship, whatever the policy says."""
    used, unused = yaml.safe_load(BINDINGS), yaml.safe_load(UNUSED)
    both = {**used, "facts": used["facts"] | unused["facts"], "domains": unused["domains"]}
    more = yaml.safe_dump(both, sort_keys=False)
    for _ in range(2):
        answer = asked(bindings=more)
        assert (answer.status_code, answer.json()) == (200, asked().json())
    assert asked(bindings=UNUSED).json() == {"sql": "FALSE"}
    told = [each.getMessage() for each in caplog.records if "is_publik" in each.getMessage()]
    assert told == ["data bindings: `is_publik(Repo:_)` is not used in policy (did you mean `is_public`?)"] * 2


def printed(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_a_condition_filters_a_queryset_as_the_readme_says(api):
    block = 'resource Repo { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
    api.post("/policy", {"src": f"actor User {{}} {block}"})
    shared = [{"type": "User", "id": "alice"}, {"type": "String", "id": "reader"}, {"type": "Repo", "id": "default"}]
    api.post("/facts", {"predicate": "has_role", "args": shared})
    dialect = "sqlite" if connection.vendor == "sqlite" else "postgres"
    bindings = f"dialect: {dialect}\nfacts: {{}}\nsql_types: {{Repo: text}}\n"
    body = {"query": LIST, "column": '"authz_environment"."slug"', "data_bindings": bindings}
    condition = RawSQL(api.post("/list_query", body).json()["sql"], (), output_field=BooleanField())
    assert [each.slug for each in Environment.objects.filter(condition)] == ["default"]
    assert not Environment.objects.exclude(condition).exists()


def test_a_condition_filters_an_sqlalchemy_select_as_the_readme_says(asked):
    """Its values hold what SQLAlchemy and drivers take for placeholders."""
    hostile = "a:b %s ? $1 @x"
    bindings = BINDINGS.replace("postgres", "sqlite")
    condition = asked(bindings=bindings, actor_id=hostile, column="repos.id").json()["sql"]
    engine = sqlalchemy.create_engine("sqlite://")
    repos = sqlalchemy.table("repos", sqlalchemy.column("id"), sqlalchemy.column("org_id"), sqlalchemy.column("locked"))
    with engine.connect() as connection:
        for statement in (
            "CREATE TABLE repos (id bigint, org_id bigint, locked boolean)",
            "CREATE TABLE org_role (user_id text, role text, org_id bigint)",
            "INSERT INTO repos VALUES (1, 7, FALSE), (2, 8, FALSE)",
        ):
            connection.execute(sqlalchemy.text(statement))
        connection.exec_driver_sql("INSERT INTO org_role VALUES (?, 'member', 8)", (hostile,))
        select = sqlalchemy.select(repos.c.id).where(sqlalchemy.text(condition))
        assert connection.execute(select).scalars().all() == [2]


def test_a_condition_goes_through_drivers_that_read_percent_signs(asked, postgresql_caller):
    condition = asked(actor_id="100%s", column="repos.id").json()["sql"]
    postgresql_caller.fresh("CREATE TABLE repos (id bigint, org_id bigint, locked boolean)")
    postgresql_caller.connection.execute("CREATE TABLE org_role (user_id text, role text, org_id bigint)")
    postgresql_caller.connection.execute("INSERT INTO repos VALUES (1, 7, FALSE), (2, 8, FALSE)")
    postgresql_caller.connection.execute("INSERT INTO org_role VALUES (%s, 'member', 8)", ("100%s",))
    select = f"SELECT id FROM repos WHERE id < %s AND {condition}"
    assert postgresql_caller.connection.execute(select, (5,)).fetchall() == [(2,)]


ROLE = {"predicate": "has_role", "args": [{"type": t, "id": i} for t, i in zip(("User", "String", "Org"), "ame")]}
ROLE["args"][1]["id"] = "member"


@pytest.mark.parametrize("db", ["sqlite", "postgresql"], indirect=True)
def test_a_batch_with_a_key_is_applied_once(api, monkeypatch):
    """Whatever it says, and whatever happened since; as are others, until many keys are newer."""
    api.post("/policy", {"src": POLICY})

    def sent(key, *steps):
        answer = api.post("/batch", list(steps), **{"Idempotency-Key": key})
        assert answer.status_code == 200, answer.json()
        return int(answer.headers["OsoOffset"])

    first = sent("one", {"inserts": [ROLE]})
    assert len(api.get("/facts").json()) == 1
    assert sent("two", {"deletes": [ROLE]}) == first + 1
    assert sent("one", {"inserts": [ROLE]}) == first + 1  # not applied: the revision is that of now
    assert api.get("/facts").json() == []
    taken = api.post("/batch", [{"inserts": [AUDITOR]}], **{"Idempotency-Key": "one"})
    assert taken.status_code == 400 and taken.json()["message"].startswith("Idempotency-Key: was sent with another")
    monkeypatch.setattr(store, "KEYS_KEPT", 2)
    monkeypatch.setattr(outbox, "_FORGOTTEN_EVERY", 1)
    sent("three", {"inserts": [ROLE]})
    assert OutboxRow.objects.count() == 2
    assert sent("one", {"inserts": [ROLE]}) == first + 3
    refused = api.post("/batch", [{"inserts": [AUDITOR | {"predicate": "no"}]}], **{"Idempotency-Key": "four"})
    assert refused.status_code == 400
    sent("four", {"inserts": [AUDITOR]})  # a batch that was refused may be corrected
    late = ROLE | {"expires_at": "2020-01-01T00:00:00Z"}
    sent("five", {"inserts": [late]})  # it waited too long: its fact has ended
    assert [each["predicate"] for each in api.get("/facts").json()] == ["is_auditor"]


def test_keys_of_batches_are_counted_by_environment(new_api, monkeypatch):
    """However many others have, a batch is not applied again."""
    monkeypatch.setattr(store, "KEYS_KEPT", 2)
    monkeypatch.setattr(outbox, "_FORGOTTEN_EVERY", 1)
    mine, other = new_api(), new_api("other")

    def sent(api, key, step):
        assert api.post("/batch", [{step: [ROLE]}], **{"Idempotency-Key": key}).status_code == 200

    sent(mine, "one", "inserts")
    for number in range(3):
        sent(other, f"{number}", "inserts")
    sent(mine, "two", "deletes")
    sent(mine, "one", "inserts")
    assert mine.get("/facts").json() == []
    assert OutboxRow.objects.count() == 4


def test_a_dry_run_changes_nothing(api, new_api):
    api.post("/policy", {"src": POLICY})
    before = api.get("/facts").headers["OsoOffset"]
    assert api.post("/batch?dry_run=true", [{"inserts": [ROLE]}]).json() == {"message": "Batch is valid"}
    refused = api.post("/batch?dry_run=true", [{"inserts": [AUDITOR | {"predicate": "no"}]}])
    assert refused.status_code == 400 and "not used in policy" in refused.json()["message"]
    assert (api.get("/facts").json(), api.get("/facts").headers["OsoOffset"]) == ([], before)
    for text in ("True", "1", ""):
        refused = api.post(f"/batch?dry_run={text}", [{"inserts": [ROLE]}])
        assert (refused.status_code, refused.json()["message"]) == (400, "dry_run: must be `true` or `false`")
    assert api.get("/facts").json() == []
    assert api.post("/batch?dry_run=false", [{"inserts": [ROLE]}]).json() == {"message": "Batch applied"}
