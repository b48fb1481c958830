"""PgBouncer in transaction mode before a PostgreSQL, for one test run.

The system's program, as old as it may be, prepares no statements. From 1.21 on they can be prepared by protocol: such a
program is used as well if it is the system's, or if the variable PGBOUNCER_NEWER has its path.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import psycopg
import pytest

from tests.postgresql import START_WITHIN, Server, free_port

CONFIG = """
[databases]
{spaces}
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 2000
"""
PREPARES = (1, 21)  # the first version that can prepare statements
PREPARED = 200  # statements of a connection: the default from 1.24 on


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


def has_newer() -> bool:
    """Return whether there is a program that can prepare statements."""
    return any(version_of(each) >= PREPARES for each in _programs())


def _programs() -> list[str]:
    """Return the programs that there are, those to take first where nothing is to be prepared."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return [each for each in (found, os.environ.get("PGBOUNCER_NEWER")) if each]


@cache
def version_of(program: str) -> tuple[int, ...]:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.search(r"(\d+)\.(\d+)", told).groups()))


@contextmanager
def pooler(
    server: Server, connections: int = 20, prepares: bool = False, spaces: tuple[tuple[str, str], ...] = ()
) -> Iterator[Pooler]:
    """Run one. `spaces` are pairs of a database and the name of a space in it."""
    program = next((each for each in _programs() if not prepares or version_of(each) >= PREPARES), None)
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("PgBouncer is not installed")
    port = free_port()
    file = server.folder / "pgbouncer.ini"  # where the server's user may read it: PgBouncer refuses to run as root
    of_spaces = "\n".join(
        f"{database}_{space} = host=127.0.0.1 port={server.port} user=postgres dbname={database}"
        f" connect_query='SET search_path TO {space}'"
        for database, space in spaces
    )
    text = CONFIG.format(server=server.port, port=port, connections=connections, spaces=of_spaces)
    if version_of(program) >= PREPARES:
        text += f"max_prepared_statements = {PREPARED if prepares else 0}\n"
    file.write_text(text)
    file.chmod(0o644)
    with file.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([program, file], stdout=log, stderr=log, cwd=server.folder, **server.identity)
    made = Pooler(server, port, process)
    try:
        until = time.monotonic() + START_WITHIN
        while not made.is_up():
            assert time.monotonic() < until, file.with_suffix(".log").read_text()
            time.sleep(0.02)
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)
