"""The samples on the page about one's own database run as they stand, one after the other."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import StatementError

from localsql.bindings import bindings_from_text
from localsql.dialects import DIALECTS
from tests.reader import Reader, page_of, reading, sections
from tests.samples import FENCE

PAGE = page_of("local-sql.md")
FIRST = ("Quickstart",)  # on which all others build
SQLITE = (*FIRST, "Other queries", "Django", "SQLAlchemy")
POSTGRESQL = (*FIRST, "SQLAlchemy", "psycopg", "SQLAlchemy add-on")
MARIADB = (*FIRST, "PyMySQL")


@pytest.fixture
def reader(tmp_path) -> Iterator[Reader]:
    with reading(tmp_path) as found:
        yield found


def follow(reader: Reader, titles: tuple[str, ...]) -> None:
    found = sections(PAGE)
    reader.follow([sample for title in titles for sample in found[title]])


def test_the_samples_over_sqlite(reader):
    follow(reader, SQLITE)


def test_the_samples_over_postgresql(reader, postgresql_server):
    postgresql_server.create("company")
    reader.variables |= {"PGHOST": "127.0.0.1", "PGPORT": str(postgresql_server.port), "PGUSER": "postgres"}
    follow(reader, POSTGRESQL)


def test_the_samples_over_mariadb(reader, mariadb_server):
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE company CHARACTER SET utf8mb4")
    options = {"host": "127.0.0.1", "port": mariadb_server.port, "user": "tests", "password": "tests"}
    lines = ["[client]", *(f"{name}={value}" for name, value in options.items())]
    (reader.folder / ".my.cnf").write_text("\n".join(lines))
    follow(reader, MARIADB)


def test_every_sample_is_run():
    run = {*SQLITE, *POSTGRESQL, *MARIADB, "Bindings"}
    assert [title for title, samples in sections(PAGE).items() if samples and title not in run] == []
    assert len(re.findall("^ *```", PAGE, re.MULTILINE)) == 2 * len(FENCE.findall(PAGE))


def test_the_bindings_are_good_for_every_dialect_that_is_named():
    ((language, text),) = sections(PAGE)["Bindings"]
    first, _, rest = text.partition("\n")
    names = re.findall(r"\w+", first.replace("dialect: ", "").replace(" or ", " "))
    assert language == "yaml" and {DIALECTS[name] for name in names} == set(DIALECTS.values())
    told = [bindings_from_text(f"dialect: {name}\n{rest}") for name in names]
    assert {len(each.facts) for each in told} == {2} and bindings_from_text(rest).dialect is told[0].dialect


# ---- what libraries take for placeholders, in queries of bindings that have such signs -------------------------------


def test_percent_signs_are_doubled_for_psycopg_where_there_are_parameters(postgresql_caller):
    condition = "name IN (SELECT 'ann' WHERE 'ann' LIKE 'a%')"
    sql = "SELECT name FROM (VALUES ('ann')) AS people(name) WHERE {} AND name < %s"
    assert '`condition.replace("%", "%%")`' in PAGE
    with pytest.raises(psycopg.ProgrammingError):
        postgresql_caller.connection.execute(sql.format(condition), ["z"])
    doubled = condition.replace("%", "%%")
    assert postgresql_caller.connection.execute(sql.format(doubled), ["z"]).fetchall() == [("ann",)]
    alone = sql.format(condition).replace("%s", "'z'")
    assert postgresql_caller.connection.execute(alone).fetchall() == [("ann",)]


def test_colons_are_escaped_for_sqlalchemy():
    condition = "1 IN (SELECT 1 WHERE 'a:b' = 'a' || ':b')"
    assert '`condition.replace(":", r"\\:")`' in PAGE
    with create_engine("sqlite://").connect() as connection:
        with pytest.raises(StatementError):
            connection.execute(select(1).where(text(condition)))
        escaped = condition.replace(":", r"\:")
        assert connection.execute(select(1).where(text(escaped))).all() == [(1,)]
