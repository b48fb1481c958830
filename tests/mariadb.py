"""A MariaDB for one test run, where the system has its programs."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pymysql

from tests.postgresql import free_port

START_WITHIN = 60  # seconds
QUICK = (
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=64M",
    "--bind-address=127.0.0.1",
)


@dataclass
class Server:
    folder: Path
    port: int
    process: subprocess.Popen

    def connect(self, **options) -> pymysql.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="tests", password="tests", autocommit=True,
            ssl_disabled=True,  # else each connection reads the system's certificates first
            **options,
        )  # fmt: skip

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


def start() -> Server | None:
    """A running server, or None where there are no programs to run."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    programs = [shutil.which(name, path=path) for name in ("mariadb-install-db", "mariadbd")]
    if not all(programs):
        return None
    install, serve = programs
    folder = Path(tempfile.mkdtemp(prefix="authz-mariadb-"))
    identity = _identity(folder)
    place = [f"--datadir={folder / 'data'}", f"--user={identity.pw_name}"]
    made = subprocess.run([install, "--no-defaults", "--skip-test-db", *place], capture_output=True, check=False)
    if made.returncode:
        sys.stderr.write(made.stderr.decode(errors="replace"))
        shutil.rmtree(folder, ignore_errors=True)
        return None
    users = folder / "users.sql"
    users.write_text("CREATE USER tests@127.0.0.1 IDENTIFIED BY 'tests';\nGRANT ALL ON *.* TO tests@127.0.0.1;\n")
    users.chmod(0o644)
    port = free_port()
    options = [*QUICK, f"--port={port}", f"--socket={folder / 'socket'}", f"--init-file={users}", *place]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([serve, "--no-defaults", *options], stdout=log, stderr=log, cwd="/")
    server = Server(folder, port, process)
    return server if _is_up(server) else server.stop()


def _identity(folder: Path) -> pwd.struct_passwd:
    """Who runs it: root would, but should not."""
    found = pwd.getpwuid(os.getuid())
    if os.getuid() == 0:
        try:
            found = pwd.getpwnam("mysql")
        except KeyError:
            found = pwd.getpwnam("nobody")
        os.chown(folder, found.pw_uid, found.pw_gid)
    return found


def _is_up(server: Server) -> bool:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            server.connect().close()
            return True
        except pymysql.err.OperationalError:
            time.sleep(0.2)
    sys.stderr.write((server.folder / "log").read_text(errors="replace"))
    return False
