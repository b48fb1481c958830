"""Lose, freeze, cut off and restart the primary of three servers under Patroni, and check what the service answers.

    python -m tests.faults.patroni --times 20 [--fault freeze]

Patroni runs as `authz_project/deploy/patroni/patroni.yml` has it, with one etcd. Clients change facts, publish policies
and ask; what they were answered is checked by `tests.faults.history_checker`. It prints how long no change was stored.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from sysconfig import get_path

import psutil
import requests
import yaml

from tests import postgresql, standalone
from tests.faults.consistency import Place, Recorded, marks, recorded
from tests.faults.kills import _kill
from tests.faults.marks import at_most, printed
from tests.postgresql import free_port
from tests.service import ROOT

DEPLOY = ROOT / "authz_project" / "deploy" / "patroni"
DATABASE = "authz"
LEASE = yaml.safe_load((DEPLOY / "patroni.yml").read_text())["bootstrap"]["dcs"]["ttl"]
PATIENCE = 120  # seconds for a server to come back


class Door:
    """A port that leads to another one, until it is closed: then nothing passes, and nobody is told."""

    def __init__(self, target: int):
        self.target = target
        self.is_open = threading.Event()
        self.is_open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            with suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()
                continue
            client.close()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                self.is_open.wait()
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@dataclass
class Member:
    """A server under Patroni. Other servers and etcd are behind doors; the service is not."""

    name: str
    folder: Path
    identity: dict
    etcd: Door
    port: int = field(default_factory=free_port)
    rest: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None

    def __post_init__(self) -> None:
        self.others = Door(self.port)
        self.status = Door(self.rest)

    @property
    def doors(self) -> tuple[Door, ...]:
        return self.etcd, self.others, self.status

    def start(self) -> None:
        variables = {
            "PATRONI_NAME": self.name,
            "PATRONI_ETCD3_HOSTS": f"127.0.0.1:{self.etcd.port}",
            "PATRONI_ETCD3_USE_PROXIES": "true",  # else it asks etcd for an address past the door
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{self.rest}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{self.status.port}",
            "PATRONI_POSTGRESQL_LISTEN": f"127.0.0.1:{self.port}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"127.0.0.1:{self.others.port}",
            "PATRONI_POSTGRESQL_DATA_DIR": str(self.folder / self.name),
            "PATRONI_POSTGRESQL_BIN_DIR": str(postgresql._programs()[0]),
            "PATRONI_POSTGRESQL_PGPASS": str(self.folder / f"{self.name}.pgpass"),
            "PATRONI_SUPERUSER_USERNAME": "postgres",
            "PATRONI_SUPERUSER_PASSWORD": "super",
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": "replica",
            "AUTHZ_PASSWORD": "only for tests",
        }
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*program(self.identity), "-m", "patroni", self.folder / "patroni.yml"],
                cwd=self.folder, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": get_path("purelib")} | variables,
                **self.identity,
            )  # fmt: skip

    def kill(self) -> None:
        """End Patroni and PostgreSQL at once, as a machine that loses its power would."""
        for each in self.processes():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(10)

    def processes(self) -> list[psutil.Process]:
        """Return those of Patroni and PostgreSQL, whose first one is a child of Patroni or, later, of nobody."""
        found = [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        with suppress(OSError, psutil.NoSuchProcess):
            found.append(psutil.Process(int((self.folder / self.name / "postmaster.pid").read_text().split()[0])))
        return [*found, *(child for each in found for child in each.children(recursive=True))]

    def role(self) -> str:
        with suppress(requests.RequestException, ValueError):
            said = requests.get(f"http://127.0.0.1:{self.rest}/patroni", timeout=2).json()
            if said.get("state") == "running":
                return said["role"]
        return ""

    def asks(self, path: str, body: dict | None = None) -> requests.Response:
        return requests.post(f"http://127.0.0.1:{self.rest}{path}", json=body or {}, timeout=PATIENCE)


@dataclass
class Patroni:
    members: list[Member]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.members)

    def leader(self) -> Member | None:
        return next((each for each in self.members if each.role() in ("master", "primary")), None)

    def wait_for_leader(self, other_than: Member | None = None) -> Member:
        def found() -> bool:
            leader = self.leader()
            return leader is not None and leader is not other_than

        wait_until(found, "another server leads")
        return self.leader()

    def wait_until_whole(self) -> None:
        """Until all of them follow the primary, one of them synchronously."""
        wait_until(self._is_whole, "all servers follow the primary")

    def _is_whole(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        with suppress(requests.RequestException, ValueError, KeyError):
            said = requests.get(f"http://127.0.0.1:{leader.rest}/cluster", timeout=2).json()["members"]
            roles = sorted(each["role"] for each in said if each["state"] in ("running", "streaming"))
            return roles == ["leader", "replica", "sync_standby"] and len({each["timeline"] for each in said}) == 1
        return False


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"not true after {PATIENCE} seconds: {what}")
        time.sleep(0.2)


def missing_programs() -> list[str]:
    found = {"etcd": shutil.which("etcd"), "patroni": find_spec("patroni")}
    return [name for name, place in found.items() if place is None]


def program(identity: dict) -> list[str]:
    """Return a Python that this user may run, of the version of this one. It takes this one's packages, not its own."""
    version = f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            if subprocess.run([python, "-c", version], cwd="/", capture_output=True, **identity).returncode == 0:
                return [python, "-S"]
    raise RuntimeError(f"the user that runs PostgreSQL cannot run a Python {sys.version_info[0]}.{sys.version_info[1]}")


@contextmanager
def patroni() -> Iterator[Patroni]:
    folder = Path(tempfile.mkdtemp(prefix="authz-patroni-"))
    members: list[Member] = []
    port, peer = free_port(), free_port()
    # It writes to memory, so that other programs on this disk do not make it lose the lease.
    data = Path(tempfile.mkdtemp(prefix="authz-etcd-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    with (folder / "etcd.log").open("wb") as log:
        etcd = subprocess.Popen(
            [shutil.which("etcd"), "--data-dir", data / "etcd", "--unsafe-no-fsync",
             "--listen-client-urls", f"http://127.0.0.1:{port}", "--advertise-client-urls", f"http://127.0.0.1:{port}",
             "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls",
             f"http://127.0.0.1:{peer}", "--initial-cluster", f"default=http://127.0.0.1:{peer}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        text = (DEPLOY / "patroni.yml").read_text().replace("/etc/patroni/authz.sql", str(folder / "authz.sql"))
        text = text.replace("local all all peer", "local all all trust")
        text = text.replace("wal_log_hints: true", "wal_log_hints: true\n        fsync: false")
        (folder / "patroni.yml").write_text(text)
        shutil.copy(DEPLOY / "authz.sql", folder)
        identity = postgresql._other_user(folder)
        (folder / "patroni.yml").chmod(0o600)
        for number in range(3):
            member = Member(f"db{number + 1}", folder, identity, Door(port))
            members.append(member)
            member.start()
        found = Patroni(members)
        found.wait_until_whole()
        yield found
    except AssertionError:
        for log in sorted(folder.glob("*.log")):
            print(f"{log.name}:", *log.read_text(errors="replace").splitlines()[-40:], sep="\n", file=sys.stderr)
        raise
    finally:
        for member in members:
            for door in member.doors:
                door.is_open.set()
            member.kill()
        etcd.kill()
        etcd.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def place(servers: Patroni) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"postgres://authz:only%20for%20tests@{servers.hosts}/{DATABASE}"
        found = Place(Path(folder), servers, url, None)
        found.take_new_keys()
        try:
            for number in range(2):
                found.servers.append(found.start(number))
            yield found
        finally:
            for each in found.servers:
                if each.process.poll() is None:
                    _kill(each)


# ---- faults -----------------------------------------------------------------------------------------------------


def kill(where: Place, number: int) -> None:
    old = where.databases.wait_for_leader()
    old.kill()
    where.databases.wait_for_leader(other_than=old)
    old.start()
    where.databases.wait_until_whole()


def freeze(where: Place, number: int) -> None:
    """The old primary wakes up once another one leads, with all of its connections."""
    old = where.databases.wait_for_leader()
    processes = old.processes()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGSTOP)
    try:
        where.databases.wait_for_leader(other_than=old)
        time.sleep(3)
    finally:
        for each in reversed(processes):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)
    where.databases.wait_until_whole()


def cut_off(where: Place, number: int) -> None:
    """The old primary reaches neither etcd nor the other servers, but the service still reaches it."""
    old = where.databases.wait_for_leader()
    for door in old.doors:
        door.is_open.clear()
    try:
        where.databases.wait_for_leader(other_than=old)
        time.sleep(3)
    finally:
        for door in old.doors:
            door.is_open.set()
    where.databases.wait_until_whole()


def restart_all(where: Place, number: int) -> None:
    """First those that follow, then the primary, which hands over before."""
    old = where.databases.wait_for_leader()
    for each in where.databases.members:
        if each is not old:
            assert each.asks("/restart").status_code == 200
            where.databases.wait_until_whole()
    answer = old.asks("/switchover", {"leader": old.name})
    assert answer.status_code == 200, answer.text
    where.databases.wait_for_leader(other_than=old)
    where.databases.wait_until_whole()
    assert old.asks("/restart").status_code == 200
    where.databases.wait_until_whole()


FAULTS = {each.__name__: each for each in (kill, freeze, cut_off, restart_all)}


@dataclass
class Timed:
    """A fault, and when it began and was over."""

    fault: Callable[[Place, int], None]
    times: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, where: Place, number: int) -> None:
        start = time.monotonic()
        self.fault(where, number)
        self.times.append((start, time.monotonic()))


def pauses(found: Recorded, times: list[tuple[float, float]]) -> list[float]:
    """Return the longest time without an acknowledged change, for each fault."""
    stored = sorted(each.completed for each in found.history if each.changes and each.completed is not None)
    longest = []
    for start, end in times:
        during = [start, *(moment for moment in stored if start <= moment <= end), end]
        longest.append(max(after - before for before, after in pairwise(during)))
    return longest


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--fault", choices=FAULTS, help="one of them; without it, all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    if missing := missing_programs():
        raise SystemExit(f"not installed: {', '.join(missing)}. Install the extra `test`, and Debian's etcd-server")
    standalone.set_up()
    failed = 0
    with patroni() as servers:
        for name in [options.fault] if options.fault else FAULTS:
            fault = Timed(FAULTS[name])
            with place(servers) as where:
                found = recorded(where, [fault] * options.times, options.seed, calm=3.0, pace=0.02)
            seconds = sorted(pauses(found, fault.times))
            told = [*marks(found), at_most("without changes, p50", LEASE + 3, statistics.median(seconds), " s")]
            if name != "cut_off":
                told.append(at_most("without changes, longest", LEASE + 3, seconds[-1], " s"))
            failed |= printed(told, f"\n{name}, {len(seconds)} times, seed {options.seed}")
            print("seconds without changes:", *(f"{each:.1f}" for each in seconds))
            print(*found.problems[:20], *found.refused[:5], sep="\n", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
