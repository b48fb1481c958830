"""Connections that nobody uses are ended; who has a key, and who asks for health, finds a place meanwhile."""

import fcntl
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest
import requests

from authz_project.server import listening
from authz_project.server.listening import Address, Connection, ConnectionLimits, Limits, in_use, to_end
from tests.faults.limits import limited_python
from tests.faults.load import How, Load, statuses
from tests.faults.strangers import Siege, held_by, wait_for_strangers
from tests.faults.worlds import Questions, port_of, world
from tests.postgresql import free_port

pytestmark = pytest.mark.skipif(not listening.can_be_limited(), reason="the system does not tell enough")
WITHIN = 30  # seconds, of a busy machine

# ---- which connections are ended ------------------------------------------------------------------------------------


def connection(number: int, age: float, was_answered: bool = False, host: str = "192.0.2.1") -> Connection:
    return Connection(number, Address.from_text(f"{host}:{number}"), age, was_answered)


def ended(found: list[Connection], limits: Limits, backlog: int = 0) -> list[int]:
    return [each.descriptor for each in to_end(found, backlog, limits)]


def test_idle_connections_are_ended():
    found = [connection(1, 24), connection(2, 26), connection(3, 26, was_answered=True)]
    assert ended(found, Limits(100, 0)) == [2, 3]


def test_an_address_has_its_share_and_keeps_its_newest_connections():
    found = [connection(number, number, was_answered=True) for number in range(10)]
    found += [connection(20 + number, 5, host="192.0.2.2") for number in range(4)]
    assert ended(found, Limits(100, 4)) == [9, 8, 7, 6, 5, 4]
    assert ended(found, Limits(100, 0)) == []


def test_connections_that_were_never_answered_go_first():
    found = [connection(number, number, was_answered=number % 2 == 0) for number in range(1, 9)]
    assert ended(found, Limits(100, 5)) == [7, 5, 3]
    found = [
        connection(number, number, was_answered=number % 2 == 0, host=f"192.0.2.{number}") for number in range(1, 9)
    ]
    assert ended(found, Limits(8, 0)) == [7, 5], "down to three quarters of the places"
    assert ended(found, Limits(10, 0)) == [], "not before they are scarce"


def test_connections_that_have_sent_nothing_go_before_those_that_have():
    found = [connection(number, number, host=f"192.0.2.{number}") for number in range(1, 9)]
    found = [each._replace(has_sent=each.descriptor % 2 == 0) for each in found]
    assert ended(found, Limits(8, 0), backlog=1) == [7, 5, 3]


def test_those_that_wait_find_places_but_those_that_were_answered_do_not_all_go():
    found = [connection(number, number, host=f"192.0.2.{number}") for number in range(1, 5)]
    found += [connection(10 + number, 1, was_answered=True, host=f"198.51.100.{number}") for number in range(4)]
    assert ended(found, Limits(8, 0), backlog=100) == [4, 3, 2, 1]
    found = [each for each in found if each.was_answered] * 2
    assert len(ended(found, Limits(8, 0), backlog=100)) == 2


def test_new_connections_have_a_moment():
    found = [connection(number, 0.1, host=f"192.0.2.{number}") for number in range(1, 9)]
    assert ended(found, Limits(8, 0), backlog=100) == []
    assert ended([connection(number, 0.9) for number in range(1, 9)], Limits(100, 2)) == []


def test_connections_that_were_just_answered_stay():
    found = [connection(number, number / 8, was_answered=True, host=f"192.0.2.{number}") for number in range(1, 9)]
    assert ended(found, Limits(8, 0), backlog=100) == [8, 7]
    assert ended(found[:4] * 2, Limits(8, 0), backlog=100) == []


def test_a_connection_that_is_answered_is_never_ended():
    found = [connection(number, 100 + number) for number in range(1, 9)]
    in_use.add("192.0.2.1:5")
    try:
        assert 5 not in ended(found, Limits(8, 1), backlog=100) and len(ended(found, Limits(8, 1))) == 7
    finally:
        in_use.clear()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [("192.0.2.1:1", "192.0.2.1:2", True), ("192.0.2.1:1", "192.0.2.2:1", False),
     ("[2001:db8::1]:1", "[2001:db8::ffff:2]:1", True), ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1", False),
     ("[::ffff:192.0.2.1]:1", "192.0.2.1:1", True), ("[fe80::1%2]:1", "[fe80::2]:1", True)],
)  # fmt: skip
def test_what_counts_as_one_address(one, other, is_same):
    assert (Address.from_text(one).network == Address.from_text(other).network) == is_same


# ---- on real sockets ------------------------------------------------------------------------------------------------


@pytest.fixture
def pairs():
    """Makes connections over loopback, each with both of its ends; and what looks at them."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def make(**options: object) -> tuple[socket.socket, socket.socket]:
            client = stack.enter_context(socket.create_connection(listening.getsockname()))
            return client, stack.enter_context(listening.accept()[0])

        make.look = lambda **limits: ConnectionLimits(
            listening, Limits(**{"places": 100, "per_address": 0} | limits)
        ).look()
        yield make


def is_open(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


def test_sending_byte_by_byte_makes_nobody_younger(pairs):
    slow, answered, idle = pairs(), pairs(), pairs()
    for _ in range(4):
        time.sleep(0.1)
        slow[0].send(b"x")
        answered[1].send(b"y")
    assert pairs.look(idle=0.3) == 2
    assert [is_open(client) for client, _ in (slow, answered, idle)] == [False, True, False]


def test_who_reads_nothing_grows_old(pairs):
    _, accepted = pairs()
    accepted.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            accepted.send(b"x" * (1 << 16))
    time.sleep(0.5)
    assert pairs.look(idle=0.3) == 1
    with pytest.raises(OSError):  # reset, or a broken pipe
        accepted.send(b"x")


def test_other_files_are_left_alone(pairs, tmp_path):
    """To close a duplicate of a file would drop the locks on it: a second writer would come in between."""
    database = sqlite3.connect(tmp_path / "a.sqlite3", isolation_level=None)
    database.execute("PRAGMA journal_mode = DELETE")
    with closing(database), (tmp_path / "file").open("w") as file:
        database.execute("BEGIN EXCLUSIVE")
        fcntl.lockf(file, fcntl.LOCK_EX)
        pairs()
        time.sleep(0.1)
        assert pairs.look(idle=0.05) == 1
        code = (
            "import fcntl, sqlite3, sys\nfile, database = sys.argv[1:]\n"
            "try: fcntl.lockf(open(file, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB); sys.exit('unlocked')\n"
            "except BlockingIOError: pass\n"
            "try: sqlite3.connect(database, timeout=0).execute('PRAGMA user_version'); sys.exit('unlocked')\n"
            "except sqlite3.OperationalError: pass\n"
        )
        subprocess.run([sys.executable, "-c", code, str(file.name), str(tmp_path / "a.sqlite3")], check=True)


# ---- a server -------------------------------------------------------------------------------------------------------

SOCKETS = 1_500
PATIENT = "tests.authz_project.patient"  # else requests that wait behind strangers may get a 503
FILES = 700  # which leave about 500 places


def test_strangers_keep_nobody_out(tmp_path):
    """Three times as many connections as there are places, from one address and from many, of all kinds."""
    health = free_port()
    with world("sqlite") as place:
        python = limited_python(tmp_path, sys.executable, f"ulimit -n {FILES}")
        options = "--workers", "1", "--health-port", str(health)
        service = place.started(*options, python=python, DJANGO_SETTINGS_MODULE=PATIENT)
        place.filled(service)
        port = port_of(service)
        for addresses in (1, SOCKETS):
            with Siege(port, SOCKETS, addresses):
                wait_for_strangers(service, 100)
                for keeps_alive in (True, False):
                    how = How(connections=4, rate=20, keeps_alive=keeps_alive, answers_within=WITHIN)
                    told = Load([port], Questions(place.key), how).for_seconds(1.5)
                    assert set(statuses(told)) == {200}, statuses(told)
                for origin in (service.origin, f"http://127.0.0.1:{health}"):
                    for path in ("/healthcheck", "/readyz"):
                        assert requests.get(f"{origin}{path}", timeout=WITHIN).json() == {"message": "ready"}
                assert held_by(service) < (FILES if addresses > 1 else FILES / 2)
        assert service.stop() == 0
        assert "cannot check client connections" not in service.log.read_text()
