"""What anyone may send to a running server, and whom it must not hold up."""

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import requests

from authz_project.server.intake import BODY_TIMEOUT
from tests.service import Service, start_service

AT_ONCE = 0.1  # seconds
MANY = 16  # more than the server has threads
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n\r\n{body}"
CHUNKED = "Transfer-Encoding: chunked"
WITHOUT_A_KEY = {
    "a body over the limit": ("/api/batch", "Content-Length: 99999999", "["),
    "one byte of many": ("/api/batch", "Content-Length: 1000", "["),
    "one chunk": ("/api/batch", CHUNKED, "1\r\n[\r\n"),
    "an unknown key": ("/api/batch", "Authorization: Bearer e_default_x_y\r\nContent-Length: 1000", "["),
    "half a login": ("/admin/login/", "Content-Length: 1000", "username="),
    "a login in chunks": ("/admin/login/", CHUNKED, "9\r\nusername=\r\n"),
    "a forged session": ("/admin/", "Cookie: sessionid=abc\r\nContent-Length: 1000000", "x"),
    "Not found": ("/nope", "Content-Length: 1000", "["),
}
SOME = [*WITHOUT_A_KEY][::3]  # for every day
OTHERS = [name for name in WITHOUT_A_KEY if name not in SOME]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("attacked")


@pytest.fixture(scope="module")
def attacked(folder) -> Iterator[Service]:
    url = f"sqlite:///{folder / 'authz.sqlite3'}"
    service = start_service(folder, url, "--dev", "--workers", "1")
    yield service
    service.stop()


@pytest.fixture(scope="module", autouse=True)
def silent(attacked) -> Iterator[socket.socket]:
    """A connection that says nothing while the other tests run."""
    with socket.create_connection(("127.0.0.1", port(attacked)), timeout=45) as connection:
        yield connection


def port(service: Service) -> int:
    return int(service.origin.rpartition(":")[2])


def begin(service: Service, path: str, headers: str, body: str) -> socket.socket:
    """A request that is not finished."""
    connection = socket.create_connection(("127.0.0.1", port(service)), timeout=30)
    connection.sendall(HEAD.format(path=path, headers=headers, body=body).encode())
    return connection


def told(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    while chunk := connection.recv(1 << 16):
        received += chunk
    return received


@contextmanager
def unfinished(service: Service, *request: str) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(begin(service, *request)) for _ in range(MANY)]


def seconds_of_health(service: Service) -> float:
    """The best of a few: what else the machine does is not the matter."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        assert requests.get(f"{service.origin}/healthcheck", timeout=10).json() == {"message": "ready"}
        times.append(time.perf_counter() - started)
    return min(times)


def quick(service: Service) -> float:
    """The seconds that the health of a service may take: ten times what it takes while nobody attacks."""
    return max(AT_ONCE, 10 * seconds_of_health(service))


@pytest.mark.parametrize("requests_", [SOME, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["some", "others"])
def test_nobody_without_a_key_holds_the_service_up(attacked, requests_):
    """Those of each kind are begun while those of the others are not finished, and all of them are awaited at once."""
    client, at_once = attacked.client(), quick(attacked)
    with ExitStack() as stack:
        waiting = {}
        for name in requests_:
            waiting[name] = stack.enter_context(unfinished(attacked, *WITHOUT_A_KEY[name]))
            assert seconds_of_health(attacked) < at_once, name
            assert client.get("/facts").status_code == 200, name
        started = time.monotonic()
        answers = [(name, told(each)) for name, connections in waiting.items() for each in connections]
        assert time.monotonic() - started < 2 * BODY_TIMEOUT + 20
    for name, answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head[9:12] in (b"401", b"404", b"408", b"413", b"403"), (name, answer)
        assert b"x-request-id: " in head.lower() and body.startswith(b'{"message":'), (name, answer)


def test_a_slow_body_with_a_key_takes_nobody_elses_time(attacked):
    client, at_once = attacked.client(), quick(attacked)
    headers = f"Authorization: Bearer {client.key}\r\nContent-Length: 1000"
    client.get("/facts")
    with unfinished(attacked, "/api/batch", headers, "[") as connections:
        assert seconds_of_health(attacked) < at_once
        assert client.post("/batch", []).status_code == 200
        for each in connections:
            answer = told(each)
            assert answer[9:12] == b"408" and b"did not arrive within" in answer, answer


def test_who_has_no_key_is_answered_at_once(attacked):
    with begin(attacked, "/api/batch", "Content-Length: 1000", "[") as connection:
        connection.settimeout(BODY_TIMEOUT)
        assert connection.recv(1 << 16)[9:12] == b"401"


def test_a_body_that_comes_steadily_may_take_longer(attacked):
    """The least rate counts once the deadline is over, not before."""
    client = attacked.client()
    parts = [b"[", *(b" " * 200_000 for _ in range(6)), b"]"]

    def slowly():
        for part in parts:
            time.sleep(1.5)
            yield part

    started = time.monotonic()
    assert client.request("POST", "/batch", data=slowly()).status_code == 200
    assert time.monotonic() - started > BODY_TIMEOUT


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_chunked_bodies_wait_for_no_small_one(attacked, size):
    """Not even for one whose sender stops, since they take memory from when they are not small."""
    client = attacked.fresh_client()
    change = b'[{"inserts": []}]'
    client.get("/facts")  # from here on its key is known
    with begin(attacked, "/api/batch", f"Authorization: Bearer {client.key}\r\n{CHUNKED}", "1\r\n[\r\n"):
        started = time.monotonic()
        sent = iter([change[:-1], b" " * size, change[-1:]])
        assert client.request("POST", "/batch", data=sent).status_code == 200
        assert time.monotonic() - started < BODY_TIMEOUT / 3


def test_a_body_that_breaks_off_changes_nothing(attacked):
    client = attacked.fresh_client()
    fact = b'[{"inserts":[{"predicate":"p","args":[{"type":"T","id":"x"}]}]}]'
    length = f"Authorization: Bearer {client.key}\r\nContent-Length: {len(fact) + 10}"
    chunks = f"Authorization: Bearer {client.key}\r\n{CHUNKED}"
    for headers, body in ((length, fact.decode()), (chunks, f"{len(fact):x}\r\n{fact.decode()}\r\n")):
        client.get("/facts")  # from here on its key is known
        with begin(attacked, "/api/batch", headers, body) as connection:
            connection.shutdown(socket.SHUT_WR)
            assert told(connection)[9:12] in (b"", b"400")
    assert client.get("/facts").json() == []


def test_health_is_told_while_every_thread_is_busy(attacked, folder):
    """Writers that wait for another's transaction: twelve, for four threads."""
    client = attacked.client()
    fact = {"predicate": "p", "args": [{"type": "T", "id": "x"}]}
    codes: list[int] = []
    senders = [
        threading.Thread(target=lambda: codes.append(client.post("/facts", fact).status_code)) for _ in range(12)
    ]
    database = sqlite3.connect(folder / "authz.sqlite3", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    for sender in senders:
        sender.start()
    time.sleep(1)
    try:
        assert seconds_of_health(attacked) < AT_ONCE
        assert codes == []
    finally:
        database.execute("ROLLBACK")
        database.close()
    for sender in senders:
        sender.join(30)
    assert codes == [200] * 12


def test_a_length_that_is_said_twice_is_one_length(attacked):
    headers = (
        f"Authorization: Bearer {attacked.client().key}\r\nContent-Length: 2\r\nContent-Length: 2\r\nConnection: close"
    )
    with begin(attacked, "/api/batch", headers, "[]") as connection:
        assert told(connection)[9:12] in (b"200", b"400")


def test_one_request_cannot_pass_for_two_headers(attacked):
    """`X_Request_ID` would be the same variable as `X-Request-ID`, which a proxy may set."""
    answer = requests.get(f"{attacked.origin}/api/facts", headers={"X_Request_ID": "forged"}, timeout=10)
    assert answer.headers["X-Request-ID"] != "forged"


def test_a_query_string_with_unescaped_characters_is_read_as_utf_8(attacked):
    client = attacked.fresh_client()
    args = [{"type": "User", "id": "é€"}, {"type": "String", "id": "member"}, {"type": "Organization", "id": "acme"}]
    assert client.post("/facts", {"predicate": "has_role", "args": args}).status_code in (200, 201)
    path = "/api/facts?predicate=has_role&args.0.type=User&args.0.id=é€"
    head = HEAD.replace("POST", "GET").format(
        path=path, headers=f"Authorization: Bearer {client.key}\r\nConnection: close", body=""
    )
    with socket.create_connection(("127.0.0.1", port(attacked)), timeout=30) as connection:
        connection.sendall(head.encode())
        assert "é€".encode() in told(connection)


def test_silent_connections_are_closed(silent):
    """Nobody keeps a place without saying what for."""
    assert silent.recv(1) == b""
