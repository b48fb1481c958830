"""What a file may say, and what is said of one that is wrong."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from localsql.bindings import Binding, bindings_from_text
from localsql.dialects import DIALECTS
from localsql.sync.config import (
    _TYPES,
    Config,
    ConfigContext,
    ConfigRejected,
    CsvFile,
    DatabaseKind,
    Field,
    MongoQuery,
    SourceFailed,
    Tls,
    _usual_type,
    config_from_text,
)
from localsql.sync.sources import connected
from tests.samples import page

HOSTED = """
version: 1
source: postgres
facts:
  has_relation(Repository:_, String:parent, Organization:_):
    db: app_db
    query: |-
      select repository.public_id, organization.public_id
      from repository join organization on organization.id = repository.organization_id
dbs:
  app_db:
    connection_string: postgresql://oso:oso@host:5432/dbname
    ssl: {ca_file: /etc/ca.pem, use_system_certs: false, ssl_mode: require}
"""
SET = {"URL": "postgres://me:s3cret@db/app", "PASSWORD": "s3cret", "EMPTY": ""}


def read(text: str, **around) -> Config:
    return config_from_text(text, ConfigContext(Path("/here"), {**SET, **around.pop("environment", {})}, **around))


def fact(entry: str, database: str = "connection_string: $URL", key: str = "p(User:_)", more: str = "") -> str:
    return f"facts:\n  {key}: {{{entry}}}\ndbs:\n  app: {{{database}}}\n{more}"


def test_the_hosted_products_file_is_taken_as_it_is():
    (pattern,) = read(HOSTED).patterns
    assert str(pattern) == "has_relation(Repository:_, String:parent, Organization:_)"
    assert (pattern.database.name, pattern.database.kind) == ("app_db", DatabaseKind.POSTGRES)
    assert pattern.database.tls == Tls("/etc/ca.pem", False, True)
    assert isinstance(pattern.asked, Binding) and pattern.asked.query.startswith("select repository.public_id")


def test_the_file_of_the_page_has_every_kind():
    text = next(each.text for each in page("syncing").samples if "company.yaml" in each.text)
    text = text.partition("<<'END'\n")[2].rpartition("END\n")[0]
    names = {"APP_DATABASE_URL": "postgres://a/b", "CODE_PASSWORD": "x", "DIRECTORY_URL": "mongodb://a/b"}
    found = read(text, environment=names)
    assert [each.database.kind for each in found.patterns] == [
        DatabaseKind.POSTGRES,
        DatabaseKind.MYSQL,
        DatabaseKind.MONGODB,
        DatabaseKind.CSV,
    ]
    assert found.patterns[2].asked == MongoQuery("teams", (Field("_id"), Field("members", True)), {"active": True})
    assert found.patterns[3].asked == CsvFile(Path("/var/exports/contractors.csv"), (Field("login"),))
    assert len(bindings_from_text(text).facts) == 2  # the same file, of data bindings


def test_a_file_of_bindings_needs_a_connection_alone():
    text = "dialect: mysql\nfacts:\n  p(User:_): {query: SELECT id FROM t}\nsql_types: {User: bigint}\n"
    with pytest.raises(ConfigRejected, match=r"line 3: `p.User:_.`: has no database; .* or pass --connection"):
        read(text)
    (pattern,) = read(text, connection="mariadb://u:${PASSWORD}@h/d").patterns
    assert (pattern.database.kind, pattern.database.connection) == (DatabaseKind.MYSQL, "mariadb://u:s3cret@h/d")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_that_of_a_kind_of_database(dialect):
    assert _usual_type({"dialect": dialect}) in _TYPES.values()


def asked(query: str, url: str) -> str:
    """What is run of a query."""
    lines = "\n".join(f"      {line}" for line in query.splitlines())
    text = f"facts:\n  p(User:_):\n    query: |\n{lines}\ndbs:\n  app: {{connection_string: '{url}'}}\n"
    return read(text).patterns[0].asked.query


@pytest.mark.parametrize("url", ["postgres://a/b", "mysql://a/b", "sqlite:///a"])
def test_comments_and_a_last_semicolon_are_left_out_of_queries(url):
    """People keep their queries so; what is checked and run has neither."""
    query = "-- who: it's all\nSELECT id /* a\nnumber */ FROM t -- of staff\n  WHERE a = '-- no; /* text */';\n-- end"
    assert asked(query, url) == "SELECT id\nFROM t\nWHERE a = '-- no; /* text */'"
    assert asked("SELECT 5--3 FROM t", "mysql://a/b") == "SELECT 5--3 FROM t"  # which is 8 there


@pytest.mark.parametrize(
    ("url", "query", "said"),
    [
        ("mysql://a/b", "SELECT id FROM t /*! INTO OUTFILE 'x' */", "comments"),
        ("mysql://a/b", "SELECT id FROM t /*M! INTO OUTFILE 'x' */", "comments"),
        ("postgres://a/b", "SELECT id FROM t {# x #}", "comments"),
        ("postgres://a/b", "SELECT id FROM t; -- x\nDROP TABLE t", "without a semicolon"),
        ("postgres://a/b", "SELECT id FROM t;;", "without a semicolon"),
        ("postgres://a/b", "-- nothing", "comments"),
        ("postgres://a/b", "SELECT id FROM t /* open", "not valid SQL"),
        ("postgres://a/b", "SELECT id FROM t " + "/* */" * 3000 + "{#", ""),
    ],
)
def test_what_may_be_no_comment_is_refused(url, query, said):
    with pytest.raises(ConfigRejected) as caught:
        asked(query, url)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        ("connection_string: 'postgresql://a/b'", DatabaseKind.POSTGRES),
        ("connection_string: 'mysql://a/b'", DatabaseKind.MYSQL),
        ("connection_string: 'mysql+pymysql://a/b'", DatabaseKind.MYSQL),
        ("connection_string: 'mariadb://a/b'", DatabaseKind.MYSQL),
        ("connection_string: 'sqlite:///a'", DatabaseKind.SQLITE),
        ("connection_string: a.db, type: SQLite", DatabaseKind.SQLITE),
        ("connection_string: 'host=db dbname=app'", DatabaseKind.POSTGRES),
        ("connection_string: $URL", DatabaseKind.POSTGRES),
    ],
)
def test_the_type_of_a_database(database, kind):
    assert read(fact("query: SELECT id FROM t", database)).patterns[0].database.kind is kind


@pytest.mark.parametrize("written", ["$URL", "${URL}", "postgres://me:${PASSWORD}@db/app"])
def test_secrets_come_from_the_environment_and_are_not_shown(written):
    database = read(fact("query: SELECT id FROM t", f"connection_string: '{written}'")).patterns[0].database
    assert database.connection == SET["URL"]
    assert "s3cret" not in repr(database) + database.without_secrets(f"no: {SET['URL']}, me:s3cret, s3cret")


@pytest.mark.parametrize(
    "written", ["host=db password=s3cret", "host=db password = 's3cret'", "postgres://a:s3%63ret@b/c"]
)
def test_passwords_are_found_wherever_they_stand(written):
    database = read(fact("query: SELECT id FROM t", f'connection_string: "{written}"')).patterns[0].database
    assert "cret" not in database.without_secrets("it said s3cret")


Q = "query: SELECT id FROM t"
WRONG = [
    (fact(Q, "connection_string: '${MISSING}'"), "line 4: `dbs.app`: the environment variable MISSING is not set"),
    (fact(Q, "connection_string: $MISSING"), "`dbs.app`: the environment variable MISSING is not set"),
    (fact(Q, "connection_string: '${a b}'"), "is not a valid variable"),
    (fact(Q, "type: oracle, connection_string: x"), "`type` must be one of postgres, mysql"),
    (fact(Q, "type: postgres"), "`connection_string` is required"),
    (fact(Q, "connection_string: x, port: 5"), "line 4: `dbs.app`: unknown key `port`"),
    (fact(Q, "connection_string: x, ssl: {ssl_mode: maybe}"), "must be `require` or `prefer`"),
    (fact(f"db: other, {Q}"), "line 2: `p(User:_)`: database `other` is not under `dbs`; use one of `app`"),
    (fact("quer: SELECT id FROM t"), "unknown key `quer` (did you mean `query`?)"),
    (fact("query: DELETE FROM t"), "line 2: `p(User:_)`: the query must be a SELECT"),
    (fact("query: 'SELECT id, b FROM t'"), "the query returns 2 columns, but the fact pattern needs 1"),
    (fact("query: SELECT id FROM t; DROP TABLE t"), "one statement, without a semicolon"),
    (fact("collection: t"), "`dbs.app` is a postgres database: use `query`"),
    (fact("fields: [a]", "connection_string: 'mongodb://a/b'"), "`collection` is required"),
    (fact("collection: t", "connection_string: 'mongodb://a/b'"), "`fields` must be a list of 1 names"),
    (
        fact("collection: t, fields: [a], aggregate: [{$out: x}]", "connection_string: 'mongodb://a/b'"),
        "must be read-only",
    ),
    (fact("collection: t, fields: [a], find: '{'", "connection_string: 'mongodb://a/b'"), "`find` is not valid JSON"),
    (fact("collection: t, fields: [a], find: {}, aggregate: []", "connection_string: 'mongodb://a/b'"), "not both"),
    (fact(Q, "type: csv, connection_string: a"), "is a folder of CSV files: use `file`"),
    (fact("header: 7", "type: csv, connection_string: a"), "`header` must be true or false"),
    (fact("fields: [{name: a, is_array: true}]", "type: csv, connection_string: a"), "not supported for CSV"),
    (fact(Q, more="version: 2\n"), "line 5: `version`: must be 1"),
    (fact(Q, more="outbox: {table: 'x; DROP'}\n"), "must be a table name"),
    (fact(Q, more="outbox: {db: nowhere}\n"), "database `nowhere` is not under `dbs`"),
    (
        fact("", "type: csv, connection_string: a", more="outbox: {}\n"),
        "must be in an SQL database, not one of type csv",
    ),
    ("facts: {p(User:_): {query: SELECT id FROM t}}", "has no database"),
    ("facts: [", "invalid YAML"),
    ("facts: {a: &x {}, b: *x}", "anchors and aliases"),
    ("[]", "must be a mapping"),
    ("dbs: {}", "`facts`: is missing"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_said(text, said):
    with pytest.raises(ConfigRejected) as caught:
        read(text)
    assert said in caught.value.message
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("one", "other"),
    [("has_role(User:_, String:_, Org:_)", "has_role(User:_, owner, Org:_)"), ("p(A:x, B:_)", "p(A:_, B:y)")],
)
def test_two_patterns_that_share_a_fact_are_refused(one, other):
    columns = {1: "a", 2: "a, b", 3: "a, b, c"}
    entries = [f"  {key}: {{query: 'SELECT {columns[key.count(':_')]} FROM t'}}\n" for key in (one, other)]
    facts = "".join(entries)
    with pytest.raises(ConfigRejected) as caught:
        read(f"facts:\n{facts}dbs: {{app: {{connection_string: $URL}}}}")
    assert "line 3" in caught.value.message and caught.value.message.count("(") == 2


def test_patterns_that_share_none_are_taken():
    keys = ("p(A:x, B:_)", "p(A:y, B:_)", "p(B:_, A:x)", "p(A:_)")
    facts = "".join(f"  '{each}': {{query: SELECT a FROM t}}\n" for each in keys)
    assert len(read(f"facts:\n{facts}dbs: {{app: {{connection_string: $URL}}}}").patterns) == 4


def test_databases_that_nothing_uses_need_no_variables():
    text = fact(Q, more="") + "  other: {connection_string: $MISSING}\n"
    assert len(read(text.replace("{query", "{db: app, query")).databases) == 1


@pytest.mark.parametrize(
    "url",
    ["postgres://me:s3cret@x@host/d", "postgres://me:s3cret/x@host/d", "postgres://me:s3cret#x@host:port/d",
     "host=h password = 's3cret' user=me", "mysql://me:s3cret?x@host/d", "mongodb://me:s3cret/@host/d",
     "postgres://me:s3%63ret@host/d", "postgres://host/d?user=me&password=s3cret", "postgres://[me:s3cret@host"],
)  # fmt: skip
def test_no_part_of_a_password_is_shown(url):
    text = f'facts: {{"p(User:_)": {{query: SELECT 1}}}}\ndbs: {{app: {{connection_string: "{url}", type: postgres}}}}'
    database = config_from_text(text, ConfigContext(Path())).patterns[0].database
    for said in (f"cannot reach {url}", "no host 's3cret/x@host'", "user s3cret", "port s3cret"):
        assert "s3cret" not in database.without_secrets(said)


def test_the_url_of_another_kind_is_no_file_of_sqlite():
    url = "postgres://me:s3cret@h/d"
    text = f'facts: {{"p(User:_)": {{query: SELECT 1}}}}\ndbs: {{app: {{connection_string: "{url}", type: sqlite}}}}'
    database = config_from_text(text, ConfigContext(Path())).patterns[0].database
    with pytest.raises(SourceFailed, match="correct its `type`") as caught, connected(database):
        pass
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgres://h/d?sslmode=disable", "host=h sslmode=disable", "mysql://h/d?ssl_ca=x", "mongodb://h/d?tls=0"]
)
def test_a_connection_that_says_otherwise_than_its_entry_is_refused(url):
    entry = f'{{connection_string: "{url}", type: postgres, ssl: {{ssl_mode: require}}}}'
    with pytest.raises(ConfigRejected, match="conflicts with"):
        config_from_text(f'facts: {{"p(User:_)": {{query: SELECT 1}}}}\ndbs: {{app: {entry}}}', ConfigContext(Path()))


def test_a_wrong_key_is_told_with_its_line_and_numbers_and_times_are_those_of_yaml():
    """In what MongoDB is asked; a name that YAML takes for a truth value stays a name there."""
    entry = "collection: t, fields: [a], find: {n: 7, on: 2026-01-01, text: '7', yes: off}"
    (pattern,) = read(fact(entry, "connection_string: 'mongodb://a/b'")).patterns
    assert pattern.asked.find == {"n": 7, "on": date(2026, 1, 1), "text": "7", "yes": False}
    with pytest.raises(ConfigRejected, match="line 6: `url`: is a duplicate"):
        read("facts: {}\ndbs:\n  app:\n    url: a\n    # again\n    url: b\n")
    with pytest.raises(ConfigRejected, match=r"invalid YAML: month must be in 1..12 \(line 2, column 53\)"):
        read(fact("collection: t, fields: [a], find: {n: 2026-13-01}", "connection_string: 'mongodb://a/b'"))
