"""PgBouncer in transaction mode before a PostgreSQL, for one test run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.postgresql import Server, free_port
from tests.replicas.cluster import wait_for

CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 1000
"""


class Pooler:
    def __init__(self, server: Server, port: int, process: subprocess.Popen):
        self.server, self.port, self.process = server, port, process

    def url(self, database: str, mode: str = "?pool_mode=transaction") -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}{mode}"

    def console(self, command: str) -> None:
        """Run a command of the pooler's own console, whose commands cannot be prepared."""
        url = self.url("pgbouncer", "")
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(command)

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url("postgres", ""), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def pooler(server: Server, connections: int = 20) -> Iterator[Pooler]:
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PgBouncer is not installed")
    port = free_port()
    file = server.folder / "pgbouncer.ini"  # where the server's user may read it: PgBouncer refuses to run as root
    file.write_text(CONFIG.format(server=server.port, port=port, connections=connections))
    file.chmod(0o644)
    with file.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([program, file], stdout=log, stderr=log, cwd=server.folder, **server.identity)
    made = Pooler(server, port, process)
    try:
        wait_for(made.is_up, "the pooler takes connections", file.with_suffix(".log").read_text)
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)
