"""Who asks for metrics or health slowly, or not at all, keeps nobody else from them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from wsgiref.simple_server import WSGIServer

import pytest
import requests
from prometheus_client import values

from authz_project import metrics, side_listener
from authz_project.database import DATABASE_AWAY, READY
from authz_project.server.readiness_probe import ReadinessProbe, health_application
from authz_project.side_listener import AT_ONCE, THREADS, start_listener
from tests.postgresql import free_port

WITHIN = 30  # seconds, of a busy machine


@pytest.fixture
def port(tmp_path, monkeypatch):
    monkeypatch.setattr(side_listener, "WITHIN", 2.0)
    monkeypatch.setattr(side_listener._Handler, "timeout", 3600.0)
    found = free_port()
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # which it sets
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    with serving(metrics.listen("127.0.0.1", found, tmp_path)):
        yield found


@contextmanager
def serving(server: WSGIServer) -> Iterator[None]:
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def half_request(stack: ExitStack, port: int) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), WITHIN))
    client.sendall(b"GET /metr")
    return client


def is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_requests_keep_nobody_out(port):
    """However many there are: the oldest gives its place to the newest."""
    with ExitStack() as stack:
        asking = [half_request(stack, port) for _ in range(2 * THREADS)]
        assert requests.get(f"http://127.0.0.1:{port}/metrics", timeout=WITHIN).status_code == 200
        assert all(is_ended(client) for client in asking[: THREADS - AT_ONCE])


def test_who_never_ends_to_ask_is_hung_up_on(port):
    with ExitStack() as stack:
        assert all(is_ended(client) for client in [half_request(stack, port) for _ in range(3)])


def test_health_checks_have_a_listener(monkeypatch):
    found, port = [READY], free_port()
    application = health_application(ReadinessProbe(lambda: found[0]))
    with serving(start_listener("127.0.0.1", port, application, "health")):
        origin = f"http://127.0.0.1:{port}"
        for path in ("/healthcheck", "/api/healthcheck", "/readyz"):
            answer = requests.get(f"{origin}{path}", timeout=WITHIN, headers={"Host": "any.example"})
            assert (answer.status_code, answer.json()) == (200, {"message": "ready"}), path
        assert requests.get(f"{origin}/api/facts", timeout=WITHIN).status_code == 404
        monkeypatch.setattr("authz_project.server.readiness_probe.FRESH", 0.0)
        found[0] = DATABASE_AWAY
        answer = requests.get(f"{origin}/readyz", timeout=WITHIN)
        assert (answer.status_code, answer.json()) == (503, DATABASE_AWAY.body)
        assert requests.get(f"{origin}/healthcheck", timeout=WITHIN).status_code == 200


def test_processes_of_a_server_share_a_port():
    port = free_port()
    servers = [start_listener("127.0.0.1", port, None, "health", reuse_port=True) for _ in range(2)]
    for server in servers:
        with closing(server.socket):
            server.shutdown()
    one = start_listener("127.0.0.1", port, None, "metrics")
    with serving(one), pytest.raises(OSError, match="in use"):
        start_listener("127.0.0.1", port, None, "metrics")
