"""What data bindings may say, and how a mistake in them is told."""

import re

import pytest

from checks.asking.limits import Deadline
from checks.errors import QueryTooSlow
from localsql.binding_keys import BindingKey, key_from_text
from localsql.bindings import bindings_from_text, check_column
from localsql.dialects import DIALECT_NAMES, DIALECTS, Family
from localsql.errors import BindingRejected, ColumnRejected
from policy.rules.program import Signature
from tests.yardstick import seconds_at_most

REPOS = 'facts:\n  "has_relation(Repo:_, String:parent, Org:_)": {query: "SELECT id, org_id FROM repos"}\n'


def one(query: str, key: str = "is_public(Repo:_)", dialect: str = "postgres") -> str:
    indented = query.replace("\n", "\n      ")
    return f"dialect: {dialect}\nfacts:\n  '{key}':\n    query: |-\n      {indented}\n"


def test_keys_are_signatures_with_constants_and_columns():
    (binding,) = bindings_from_text(REPOS).facts
    assert str(binding.key) == "has_relation(Repo:_, String:parent, Org:_)"
    assert binding.key.constants == (None, "parent", None)
    assert binding.key.columns == (0, 2)


@pytest.mark.parametrize("constant", ["_", "a, b", "a)b", 'x"y', "a\\b", "a b", "a\nb", "# b: c", "ü", "7", "Team:_"])
def test_the_text_of_a_key_means_the_same_key(constant):
    key = BindingKey(Signature("p", ("User", "String", "Team")), (None, constant, None))
    assert key_from_text(str(key)) == key


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "facts:\n", "facts: {}\n"])
def test_no_bindings_are_fine(text):
    found = bindings_from_text(text)
    assert found.facts == ()
    assert found.dialect == DIALECTS["postgres"]


@pytest.mark.parametrize(
    ("key", "signature", "constants"),
    [
        ('p(a::Repo:_, 7, true, "a b")', "p(a::Repo, String, String, String)", (None, "7", "true", "a b")),
        ('is_big?(Repo{"a\\"b"}, Integer : 7)', "is_big?(Repo, Integer)", ('a"b', "7")),
    ],
)
def test_keys_are_written_as_facts_are(key, signature, constants):
    found = key_from_text(key)
    assert (str(found.signature), found.constants) == (signature, constants)


def test_unquoted_keys_folded_queries_and_the_keys_of_others_are_accepted():
    text = (
        "version: 1\nsource: postgres\ndbs: {main: {connection_string: x}}\nfacts:\n"
        "  has_relation(Doc:_, team, Team:_):\n    db: main\n    query: >\n      SELECT id, team\n      FROM document\n"
        "sql_types: {Doc: BIGINT, Team: uuid}\n"
    )
    found = bindings_from_text(text)
    assert found.facts[0].families == (Family.INTEGER, None, Family.UUID)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT r.id FROM repos r, orgs o WHERE o.id = r.org_id",
        'SELECT "orgId" FROM "Schema"."OrgRole"',
        "SELECT id::TEXT FROM repos WHERE note = 'a; b -- c'",
        "SELECT id FROM a UNION SELECT id FROM b",
        "WITH x AS (SELECT id FROM a) SELECT id FROM x",
        "(SELECT id FROM a)",
    ],
)
def test_queries_that_only_read_are_accepted(query):
    assert bindings_from_text(one(query)).facts[0].query == query


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id, x FROM a", "the query returns 2 columns, but the fact pattern needs 1"),
        ("SELECT * FROM a", "name its columns"),
        ("SELECT a.* FROM a", "name its columns"),
        ("TABLE a", "the query"),
        ("VALUES (1)", "must be a SELECT"),
        ("SELECT id FROM a;", "without a semicolon"),
        ("SELECT id FROM a; DROP TABLE a", "without a semicolon"),
        ("SELECT id FROM a -- all", "comments"),
        ("SELECT id /* all */ FROM a", "comments"),
        ("SELECT id FROM a)", "the query"),
        ("SELECT id FROM a /*", "the query"),
        ("SELECT 'id FROM a", "the query"),
        ("WITH x AS (DELETE FROM a RETURNING id) SELECT id FROM x", "read-only"),
        ("SELECT id INTO b FROM a", "read-only"),
        ("SELECT id FROM a FOR UPDATE", "read-only"),
        ("DELETE FROM a", "the query"),
        ("DROP TABLE a", "the query"),
        ("SELECT id FROM a WHERE x = :p", "placeholder"),
        ("SELECT id FROM a WHERE x = ?", "placeholder"),
        ("SELECT id FROM a WHERE x = $1", "placeholder"),
        ("SELECT id FROM __f0", "reserved"),
        ("SELECT pg_sleep(10)", "not allowed"),
        ("SELECT id FROM a UNION SELECT id, x FROM b", "2 columns"),
        (" UNION ".join(["SELECT 1"] * 600) + " UNION SELECT 1, 2", "2 columns"),
        ("(" * 900 + "SELECT 1" + ")" * 900, "nested too deeply"),
        ("SELECT " + "ARRAY[" * 30 + "1" + "]" * 30, "nested too deeply"),
        ("SELECT CAST(x AS " + "decimal(" * 30 + "1" + ")" * 30 + ") FROM a", "nested too deeply"),
        (f"SELECT id FROM a WHERE id IN ({', '.join(['1'] * 1500)})", "at most 2,000 tokens"),
        (f"SELECT '{'x' * 20_000}'", "at most 20,000 characters"),
    ],
)
def test_queries_that_do_not_belong_into_a_statement_are_refused(query, reason):
    with pytest.raises(BindingRejected) as refused:
        bindings_from_text(one(query))
    assert "is_public(Repo:_)" in refused.value.message
    assert reason in refused.value.message


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("mark", ["?", ":p", "@p", "$1", "$p", "a.$1", "f($1)"])
def test_placeholders_are_refused_in_every_dialect(dialect, mark):
    with pytest.raises(BindingRejected, match="placeholder"):
        bindings_from_text(one(f"SELECT id FROM a WHERE x = {mark}", dialect=dialect))


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_dollar_in_a_name_or_a_text_is_no_placeholder(dialect):
    query = "SELECT a$1 FROM a WHERE x = '$1'"
    assert bindings_from_text(one(query, dialect=dialect)).facts[0].query == query


@pytest.mark.parametrize(
    ("query", "dialect"),
    [
        ("SELECT DATE_ADD() FROM b", "mysql"),
        ("SELECT LEVENSHTEIN_LESS_EQUAL() FROM b", "postgres"),
        ("SELECT VAR_MAP(a) FROM b", "postgres"),
        ("SELECT DATE_ADD(a, DAY() SOUNDS b", "mysql"),
    ],
)
def test_what_the_parser_itself_fails_on_is_not_understood(query, dialect):
    with pytest.raises(BindingRejected, match="the query is not valid SQL"):
        bindings_from_text(one(query, dialect=dialect))


def test_nothing_of_a_query_is_logged(caplog):
    with pytest.raises(BindingRejected):
        bindings_from_text(one("SHOW secret_of_a_caller"))
    assert not caplog.records


def test_an_unknown_dialect_is_told_of_all_that_there_are():
    with pytest.raises(BindingRejected) as refused:
        bindings_from_text("dialect: cobol\nfacts: {}")
    named = re.findall(r"`(\w+)`", refused.value.message.partition("must be")[2])
    assert {DIALECTS[name] for name in named} == set(DIALECTS.values())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("facts: {'is_public(Acme::Repo)': {query: SELECT 1}}", "expected an id before `:Repo)`"),
        ("- a", "must be a mapping"),
        ("facts: [", "invalid YAML"),
        ("facts: {}\nsql_type: {}", "did you mean `sql_types`?"),
        ("dialect: cobol\nfacts: {}", "`dialect`"),
        ("sql_types: {}", "`facts`: is missing"),
        ("facts: {}\nfacts: {}", "is a duplicate"),
        ("facts:\n  p(Repo:_): {qeury: SELECT 1}", "did you mean `query`?"),
        ("facts:\n  p(Repo:_): {}", "needs a `query`"),
        ("facts:\n  p(Repo:_): {query: ''}", "needs a `query`"),
        ("facts:\n  p Repo: {query: SELECT 1}", "must be a fact pattern"),
        ("facts:\n  1(Repo:_): {query: SELECT 1}", "`1` is not a valid name in a policy"),
        ("facts:\n  'p(A:_) b': {query: SELECT 1}", "unexpected text after"),
        ("facts:\n  'p(A:)': {query: SELECT 1}", "expected an id before `)`"),
        ("facts:\n  'p(\"a\\u0000\")': {query: SELECT 1}", "must not contain NUL"),
        ("facts:\n  'p(\"\", A:_)': {query: SELECT 1}", "must not be empty"),
        ("facts:\n  'p(\"*\", A:_)': {query: SELECT 1}", "must not be `*`"),
        (f"facts:\n  'p({'x' * 513}, A:_)': {{query: SELECT 1}}", "must be at most 512 bytes"),
        ("facts:\n  p(_): {query: SELECT 1}", "needs a type"),
        ("facts:\n  p(Actor:_): {query: SELECT 1}", "not a type of values"),
        ("facts:\n  'p(Integer:007)': {query: SELECT 1}", "must be written as 7"),
        ("facts:\n  'p(A:_, A:_, A:_, A:_, A:_, A:_)': {query: 'SELECT 1,2,3,4,5,6'}", "at most 5"),
        ("facts:\n  'p(A:_, x)': {query: SELECT 1}\n  'p(A:_, String:x)': {query: SELECT 1}", "is a duplicate"),
        ("facts: {}\nsql_types: {Repo: 'int); DROP TABLE a'}", "must be an SQL type"),
        ("facts:\n  p(Repo:_): {query: SELECT 1, sql_types: [int, int]}", "must be a list of 1"),
        ("facts:\n  p(Repo:_): {query: SELECT id, org FROM a}", "needs quotes"),
    ],
)
def test_mistakes_are_told_with_their_place(text, reason):
    with pytest.raises(BindingRejected) as refused:
        bindings_from_text(text)
    assert reason in refused.value.message


def test_the_same_text_is_read_once():
    assert bindings_from_text(REPOS) is bindings_from_text(REPOS)


LONG = "x" * 62 + '""'  # a quoted name of 63 bytes: two quotes are one


@pytest.mark.parametrize(
    "column",
    ["id", "repos.id", "a.b.c.d", '"Repos".id', '"a""b".c', "users.user", "Environment.id", "x" * 63, f'"{LONG}".id'],
)
def test_names_of_columns_are_accepted(column):
    assert check_column(column, DIALECTS["postgres"]) == column


@pytest.mark.parametrize(
    "column",
    [
        "", "1", "id; DROP TABLE a", "id = id OR 1", "id::text", "lower(id)", "id--", "a b", "user", "TRUE", "null",
        "a.", ".a", "a..b", "a.b.c.d.e", '"a', '""', "`id`", "x" * 64, f'"x{LONG}"', "é", "id\n", None, 5,
    ],
)  # fmt: skip
def test_all_else_is_refused(column):
    with pytest.raises(ColumnRejected):
        check_column(column, DIALECTS["postgres"])


def test_bindings_of_the_same_facts_share_their_plans():
    one_way, other = bindings_from_text(REPOS), bindings_from_text(f"dialect: mysql\n{REPOS}".replace("repos", "r"))
    assert one_way == other
    assert one_way.dialect != other.dialect
    assert one_way != bindings_from_text(REPOS.replace("parent", "owner"))
    assert one_way != bindings_from_text(REPOS + "domains: {Repo: {query: SELECT id FROM repos}}\n")


# ---- limits ---------------------------------------------------------------------------------------------------------

DOUBLED = "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 25))])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DOUBLED, "anchors and aliases (`&`, `*`) are not allowed; write out the values (line 1, column 5)"),
        ("facts: *a", "anchors and aliases"),
        ("facts: {<<: {p(Repo:_): {query: SELECT 1}}}", "merge keys (`<<`) are not allowed"),
        ("facts: {}\nversion: !!float 1", "tags (`!`) are not allowed"),
        ("facts: !!python/object:os.system {}", "tags (`!`) are not allowed"),
        (f"facts: {'[' * 25}", "nested deeper than 20 levels"),
        ("- " * 100_000, "nested deeper than 20 levels"),
        ("facts: [" + "a," * 50_001 + "]", "at most 50,000 keys and values"),
        ("#" * (1024 * 1024 + 1), "at most 1,048,576 characters"),
        (f"facts:\n  ? 0x{'f' * 5000}\n  : {{query: SELECT 1}}", "must be a fact pattern"),
        ("facts: {}\n--- \nfacts: {}", "one YAML document"),
        ("facts: {[a]: {query: SELECT 1}}", "a key must be a string"),
        ("facts: {}\nversion: \ud800", "invalid YAML"),
    ],
)
def test_what_is_short_to_write_and_long_to_read_is_refused_at_once(text, reason):
    with seconds_at_most(2), pytest.raises(BindingRejected) as refused:
        bindings_from_text(text)
    assert reason in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        'facts: {{"{long}": {{query: SELECT 1}}}}',
        'facts: {{"is_public(-{long}:_)": {{query: SELECT 1}}}}',
        'facts: {{"is_public(Repo:_)": {{"{long}": SELECT 1}}}}',
        '? "{long}"\n: 1',
        '? "{long}"\n: 1\n? "{long}"\n: 1',
        "facts: {{}}\nsql_types: {{'-{long}': text}}",
        "facts: {{}}\nsql_types: {{Repo: '-{long}'}}",
        "facts: {{}}\ndialect: '{long}'",
    ],
)
def test_what_is_long_is_not_repeated_whole(text):
    with pytest.raises(BindingRejected) as refused:
        bindings_from_text(text.format(long="long" * 1000))
    assert "data_bindings: " in refused.value.message
    assert len(refused.value.message) < 1_300


def test_words_mean_what_they_mean_in_yaml_and_numbers_are_text():
    text = "facts: {'p(A:_)': {query: SELECT a, not_null: yes}, 'p(A:007)': {query: SELECT 1, not_null: 'yes'}}"
    with pytest.raises(BindingRejected, match="`not_null` must be true or false"):
        bindings_from_text(text)
    (binding, other) = bindings_from_text(text.replace("'yes'", "No")).facts
    assert (binding.is_not_null, other.is_not_null) == (True, False)
    assert other.key.constants == ("007",)


@pytest.mark.parametrize("text", [REPOS, one("SELECT id FROM a")])
def test_reading_ends_with_the_time_of_its_question(text):
    bindings_from_text.cache_clear()
    with Deadline(1e-9), pytest.raises(QueryTooSlow):
        bindings_from_text(text)
    assert bindings_from_text(text).facts


def test_yaml_that_is_not_valid_is_told_what_to_do():
    with pytest.raises(BindingRejected, match=r"line 2, column 7\); put a value that contains `: ` in quotes"):
        bindings_from_text("facts:\n  a: b: c\n")
