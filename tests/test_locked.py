"""What is said where an SQLite file stays locked, so that somebody finds out why."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connections

from tests import locked


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_who_has_it_is_told(db, monkeypatch):
    monkeypatch.setattr(locked, "SOON", 50)
    mine = connections["default"]
    with closing(sqlite3.connect(mine.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.warns(UserWarning) as found:
            locked.wait_until_free(mine)
        said = str(found[0].message)
        assert f"connection {id(other):x}: in a transaction" in said and "MainThread" in said
        assert "authz.sqlite3-shm: " in said or not Path("/proc/locks").exists()
        other.execute("ROLLBACK")
    locked.wait_until_free(mine)
