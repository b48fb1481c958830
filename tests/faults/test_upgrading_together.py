"""Two servers that start at once on a database of an earlier form: one brings it up to date, and both serve."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.authz_project import test_upgrade
from tests.authz_project.test_serve import SECRET
from tests.authz_project.test_upgrade import DUMP, KEY, OLD_LABELS, UPGRADE, may_read, role
from tests.conftest import DATABASES
from tests.service import start_service

pytestmark = pytest.mark.long

SERVERS = 2
MIGRATIONS = "SELECT app, name FROM django_migrations"


def applied(url: str) -> Counter[tuple[str, str]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return Counter(database.execute(MIGRATIONS).fetchall())
    with psycopg.connect(url) as connection:
        return Counter(connection.execute(MIGRATIONS).fetchall())


@pytest.mark.parametrize("kind", DATABASES)
def test_one_upgrades_and_both_serve(kind, database_urls, tmp_path):
    url = test_upgrade.database_of(DUMP, kind, database_urls, tmp_path)
    before = applied(url)
    folders = [tmp_path / str(number) for number in range(SERVERS)]

    def start(folder: Path):
        folder.mkdir()
        return start_service(folder, url, "--workers", "1", SECRET_KEY=SECRET)

    with ThreadPoolExecutor(SERVERS) as pool:
        services = list(pool.map(start, folders))
    after = applied(url)
    there = {(f"authz_{label}" if label in OLD_LABELS else label, name) for label, name in before}
    assert set(after) > there and max(after.values()) == 1, "each step was made once"
    clients = [service.client(KEY) for service in services]
    for number, client in enumerate(clients, 1):
        assert len(client.get("/facts").json()) == 2 + number
        assert may_read(client, "ann") and may_read(client, "ben")
        stored = client.post("/facts", role(f"new{number}", "reader"))
        assert stored.headers["OsoOffset"] == str(UPGRADE + number)
        assert all(may_read(each, f"new{number}") for each in clients)
    for service in services:
        log = service.log.read_text()
        assert service.stop() == 0
        assert "Traceback" not in log and not re.search(r"First API key", log), log
