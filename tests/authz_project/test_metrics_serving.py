"""Who asks for metrics slowly, or not at all, keeps nobody else from them for long."""

import socket
import time
from contextlib import ExitStack

import pytest
import requests

from authz_project.metrics import serving
from tests.postgresql import free_port


@pytest.fixture
def port(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "WITHIN", 2.0)
    monkeypatch.setattr(serving._Handler, "timeout", 3600.0)
    found = free_port()
    with serving.served(tmp_path, "127.0.0.1", found, "SQLite"):
        yield found


def test_who_never_ends_to_ask_is_hung_up_on(port):
    """However slowly a request goes on, and whoever else waits meanwhile."""
    with ExitStack() as stack:
        asking = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(serving.AT_ONCE)]
        for each in asking:
            each.sendall(b"GET /metr")
        one_more = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        one_more.settimeout(30)
        assert one_more.recv(1) == b""
        for each in asking:
            each.settimeout(30)
            assert each.recv(1) == b""
        until = time.monotonic() + 30
        while True:
            try:
                assert requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).status_code == 200
                return
            except requests.ConnectionError:  # the last thread is about to end
                assert time.monotonic() < until
                time.sleep(0.05)
