"""The callers' databases: SQLite, a real PostgreSQL and a real MariaDB, which stands for MySQL too."""

import os

import psycopg
import pytest

from tests import mariadb
from tests.localsql.databases import MariaDB, PostgreSQL, Sqlite

CALLERS = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(scope="session")
def mariadb_server():
    server = mariadb.start()
    if server is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no MariaDB can be started here")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def sqlite_caller():
    return Sqlite()


@pytest.fixture(scope="session")
def postgresql_caller(postgresql_server):
    with psycopg.connect(postgresql_server.create("callers"), autocommit=True, options="-c jit=off") as connection:
        yield PostgreSQL(connection)  # compiling what random policies come to would take it a minute at times


@pytest.fixture(scope="session")
def mariadb_caller(mariadb_server):
    connection = mariadb_server.connect()
    yield MariaDB(connection)
    connection.close()


@pytest.fixture(scope="session", params=CALLERS)
def caller_database(request):
    """Each of the callers' databases in turn."""
    return request.getfixturevalue(f"{request.param}_caller")


@pytest.fixture(scope="session")
def caller_databases(request):
    """All callers' databases that can be had here."""
    found = []
    for kind in CALLERS:
        try:
            found.append(request.getfixturevalue(f"{kind}_caller"))
        except pytest.skip.Exception:
            continue
    return tuple(found)
