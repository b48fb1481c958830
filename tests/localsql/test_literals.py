"""Every value comes back from every database as it went in, and no value is more than a value."""

import itertools

import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from localsql.dialects import DIALECT_NAMES, DIALECTS, Family, Typed, text_literal
from localsql.errors import OtherSpelling
from tests.localsql.conftest import CALLERS
from tests.localsql.databases import DATABASES

POSTGRES = DIALECTS["postgres"]
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=60)
hostile = st.sampled_from(
    [
        "'",
        "''",
        "\\",
        "\\'",
        "' OR '1'='1",
        "x';--",
        "--",
        "/*",
        ":x",
        "%s",
        "%",
        "?",
        "$1",
        "@x",
        "{d}",
        "\n",
        "é",
        "😀",
        "a ",
        " a",
    ]
)
values = st.one_of(texts, hostile, st.lists(hostile, min_size=1, max_size=5).map("".join))


def test_every_dialect_is_run_on_a_real_database():
    assert {name for each in DATABASES for name in each.dialects} == set(DIALECT_NAMES)
    assert len(CALLERS) == len(DATABASES)


@quick
@given(value=values)
def test_a_text_round_trips(caller_database, value):
    dialect = DIALECTS[caller_database.dialect]
    shown = dialect.shown(dialect.constant(value, Family.TEXT), Family.TEXT)
    _, rows = caller_database.run(f"SELECT {shown}")
    assert rows == [(value,)]


@pytest.fixture
def column(caller_database):
    caller_database.fresh("CREATE TABLE t (example integer, c text)")
    return caller_database, itertools.count()


@quick
@given(value=values)
def test_a_column_equals_its_value_and_no_other(column, value):
    database, numbers = column
    dialect, number = DIALECTS[database.dialect], next(numbers)
    others = {value + " ", value.swapcase(), value + "x"} - {value}
    database.fill("t", [(number, value), *((number, other) for other in sorted(others))])
    for family in (Family.TEXT, Family.UNKNOWN):
        test = dialect.among(Typed("t.c", family), (value,))
        assert database.run(f"SELECT c FROM t WHERE example = {number} AND {test}")[1] == [(value,)]


@quick
@given(value=values)
def test_no_value_is_taken_for_a_placeholder_or_for_more_than_one_literal(value):
    for name in DIALECT_NAMES:
        shown = DIALECTS[name].constant(value, Family.TEXT)
        assert not set(shown) & set(":?%@${};#\n"), shown
        assert "--" not in shown
        assert "/*" not in shown
        tree = sqlglot.parse_one(f"SELECT {shown} AS v", dialect=DIALECTS[name].parser)
        assert len(tree.selects) == 1
        assert not list(tree.find_all(exp.Column, exp.Subquery, exp.Table))


def test_what_no_column_can_have_is_no_constant():
    for value in ("abc", "1abc", "9223372036854775808", "7.5", "1e99", "0x", "", "٣", "9" * 100_000):
        assert not POSTGRES.is_possible(value, Family.INTEGER), value
    for value in ("0", "-5", "9223372036854775807", "-9223372036854775808"):
        assert POSTGRES.is_possible(value, Family.INTEGER), value
    assert POSTGRES.is_possible("12345678901234567890.5", Family.NUMERIC)
    assert not POSTGRES.is_possible("not a uuid", Family.UUID)
    assert not POSTGRES.is_possible("a\0b", Family.TEXT)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        (Family.INTEGER, ("007", "-0", "+5", " 5", "5.0", "5e0", "0x5", "5_0")),
        (Family.NUMERIC, ("007", "7.50", "7.", ".5", "1e3")),
        (Family.BOOLEAN, ("TRUE", "t", "yes", "0", "Off")),
        (Family.UUID, ("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11")),
    ],
)
def test_what_a_column_takes_for_another_id_is_refused(family, values):
    for value in values:
        with pytest.raises(OtherSpelling, match="reads it as"):
            POSTGRES.is_possible(value, family)


def test_a_plain_text_is_plainly_quoted():
    assert text_literal("alice", str) == "'alice'"
    assert DIALECTS["postgres"].constant("o'brien", Family.TEXT) == "E'o\\u0027brien'"
    assert DIALECTS["postgres"].constant("a--b", Family.TEXT) == "E'a\\u002d\\u002db'"


def test_numbers_in_text_columns_are_compared_as_numbers(caller_database):
    dialect = DIALECTS[caller_database.dialect]
    caller_database.fresh("CREATE TABLE t (c text)")
    caller_database.fill("t", [("9",), ("10",), ("-2",), ("abc",), ("010",), ("1abc",)])
    number = dialect.number(Typed("t.c", Family.UNKNOWN))
    rows = caller_database.run(f"SELECT c FROM t WHERE {number} <= 9 ORDER BY c")[1]
    assert [row[0] for row in rows] == ["-2", "9"]


def test_a_column_that_takes_different_texts_for_equal_selects_none_but_its_own(caller_database):
    dialect = DIALECTS[caller_database.dialect]
    caller_database.fresh("CREATE TABLE t (c char(5))")
    caller_database.fill("t", [("a",)])
    for sql_type in ("char(5)", "character(5)", "nchar(5)"):
        column = Typed("t.c", dialect.family(sql_type))
        assert caller_database.run(f"SELECT c FROM t WHERE {dialect.among(column, ('a ',))}")[1] == []
        assert len(caller_database.run(f"SELECT c FROM t WHERE {dialect.among(column, ('a',))}")[1]) == 1


def test_what_is_known_of_sql_types():
    found = {name: DIALECTS["postgres"].family(name).value for name in ("citext", "bpchar", "varchar(9)", "char(9)")}
    assert found == {"citext": "unknown", "bpchar": "unknown", "varchar(9)": "text", "char(9)": "unknown"}
    assert DIALECTS["postgres"].family("character varying(20)") == Family.TEXT
    assert DIALECTS["mysql"].family("bigint unsigned") == Family.UNKNOWN  # half of them are no bigint
