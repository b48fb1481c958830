import os

import pytest

from policy.publishing import publish
from tests.localsql.sync.sources import CsvStaff, MariadbStaff, PostgresqlStaff, SqliteStaff

POLICY = """
actor User {}
resource Org {
  roles = ["member", "owner"];
  permissions = ["read"];
  "read" if "member";
  "member" if "owner";
}
resource Project { relations = { org: Org }; }
declare age(User, Integer);
declare is_public(Project);
"""
KINDS = ("postgres", "mysql", "sqlite", "csv")


@pytest.fixture(scope="session")
def synced_database(postgresql_server):
    return postgresql_server.create("synced")


@pytest.fixture
def staff_of(request, tmp_path, monkeypatch):
    """Makes the application's table in a database of a kind, empty.

    For each connection to MariaDB the driver would read all authorities that the system trusts, of which none is asked:
    that takes longer than most of these tests.
    """

    def make(kind: str):
        match kind:
            case "postgres":
                return PostgresqlStaff(request.getfixturevalue("synced_database"))
            case "mysql":
                monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
                return MariadbStaff(request.getfixturevalue("mariadb_server"))
            case "sqlite":
                return SqliteStaff(tmp_path / "app.sqlite3")
        return CsvStaff(tmp_path / "staff.csv")

    return make


@pytest.fixture
def published(environment):
    """The environment, with a policy."""
    publish(environment.pk, POLICY, None)
    environment.refresh_from_db()
    return environment
