"""What a running server writes to standard error: lines of one kind, whole, from all of its processes."""

import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
import requests

from tests.authz_project.test_logs import KEY, PLAIN
from tests.authz_project.test_serve import SECRET
from tests.faults.limits import workers_of
from tests.service import start_service

WITHIN = 30  # seconds, of a busy machine


def raw(service, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(service.origin.rpartition(":")[2])), timeout=WITHIN) as connection:
        connection.sendall(text)
        connection.recv(1 << 16)


def until(service, text: str) -> None:
    """Wait until it is in the log."""
    deadline = time.monotonic() + WITHIN
    while text not in service.log.read_text():
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


@pytest.mark.parametrize("kind", ["json", "plain"])
def test_a_server_writes_lines_of_one_kind(tmp_path, kind):
    variables = {"LOG_FORMAT": kind, "LOG_LEVEL": "INFO", "SECRET_KEY": SECRET, "SLOW_QUESTION_MS": "1"}
    service = start_service(tmp_path, "", "--workers", "2", **variables)
    key = re.search(r"e_default_\w+", service.log.read_text())[0]
    client = service.client(key)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(client.get, "/stats", headers={"X-Request-ID": f"r-{n}"}) for n in range(300)]
        assert {each.result().status_code for each in answers} == {200}
    requests.get(f"{service.origin}/api/{KEY}?key={KEY}", timeout=WITHIN)
    requests.get(f"{service.origin}/readyz", timeout=WITHIN)
    raw(service, b"GET /api/stats%0d%0aforged HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-ID: a\x0bforged\r\n\r\n")
    raw(service, b"POST /api/authorize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n")
    until(service, " 413" if kind == "plain" else '"code":413')
    for number in range(300):  # every process has written what it had
        until(service, f"request=r-{number} " if kind == "plain" else f'"r-{number}"')
    workers_of(service)[0].send_signal(signal.SIGKILL)  # of which the parent has something to say
    until(service, "was killed by SIGKILL")
    service.stop()
    text = service.log.read_text()
    assert text.count(key) == 1 and KEY[-40:] not in text and "forged" not in text
    if kind == "plain":
        head = text.index("\n", text.index("First API key")) + 1
        assert [line for line in text[head:].splitlines() if not PLAIN.fullmatch(line)] == []
        assert set(re.findall(r"request=(r-\d+)", text)) == {f"r-{n}" for n in range(300)}
        assert re.search(r"ERROR authz.server worker \d \(process \d+\) was killed by SIGKILL", text)
        return
    said = [orjson.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(each) for each in said)
    seen = [each for each in said if each["logger"] == "authz.access"]
    assert {each["request_id"] for each in seen} >= {f"r-{n}" for n in range(300)}
    assert {each["endpoint"] for each in seen} >= {"/api/stats", "other", "/readyz", "/api/authorize"}
    assert [each["level"] for each in said if "was killed by SIGKILL" in each["message"]] == ["ERROR"]


def test_nothing_is_written_of_requests_unless_it_is_wanted(service):
    client = service.fresh_client()
    client.get("/stats", headers={"X-Request-ID": "not-in-the-log"})
    time.sleep(0.5)
    assert "not-in-the-log" not in service.log.read_text()
