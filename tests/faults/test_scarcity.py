"""Too few files, too little memory, a worker that is gone: who can be answered is answered, and it passes."""

import resource
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests

from tests.authz_project.test_serve import refusal
from tests.faults.limits import limited_python, lowered, workers_of, workers_that_listen
from tests.faults.worlds import port_of
from tests.service import start_service

pytestmark = pytest.mark.long

WITHIN = 30  # seconds
MANY = 120  # connections; more than 200 files leave for callers


def url_in(folder) -> str:
    return f"sqlite:///{folder / 'authz.sqlite3'}"


def asked(connection: socket.socket) -> bytes:
    connection.sendall(b"GET /healthcheck HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return connection.recv(1 << 16)


def test_with_few_files_callers_wait_for_a_place_and_get_one(tmp_path):
    python = limited_python(tmp_path, sys.executable, "ulimit -n 200")
    service = start_service(tmp_path, url_in(tmp_path), "--dev", "--workers", "1", python=python)
    client = service.fresh_client()
    assert client.get("/facts").status_code == 200
    worker = workers_of(service)[0]
    with ExitStack() as stack:
        address = ("127.0.0.1", port_of(service))
        crowd = [stack.enter_context(socket.create_connection(address, timeout=WITHIN)) for _ in range(MANY)]
        assert b"200 OK" in asked(crowd[0]), "who came first is answered"
        before = sum(worker.cpu_times()[:2])
        time.sleep(2)
        assert sum(worker.cpu_times()[:2]) - before < 1, "nobody tries again and again to take who does not fit"
    assert client.post("/facts", {"predicate": "p", "args": [{"type": "T", "id": "x"}]}).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        assert {each.status_code for each in pool.map(lambda _: client.get("/facts"), range(40))} == {200}
    assert service.stop() == 0
    assert "Too many open files" not in service.log.read_text()


def test_too_few_files_to_answer_anybody_are_said(tmp_path, monkeypatch):
    python = limited_python(tmp_path, sys.executable, "ulimit -n 150")
    monkeypatch.setattr(sys, "executable", python)
    told = refusal(tmp_path, "--workers", "1")
    assert "the limit is 150" in told and "LimitNOFILE" in told and len(told.strip().splitlines()) == 1


def big(name: str) -> list[dict]:
    long = {"type": "T", "id": "x" * 400}
    facts = [{"predicate": "p", "args": [{"type": "T", "id": f"{name}{n}"}, long]} for n in range(16_000)]
    return [{"inserts": facts}]


def test_too_little_memory_refuses_what_is_large_and_answers_the_rest(tmp_path):
    service = start_service(tmp_path, url_in(tmp_path), "--dev", "--workers", "1")
    client = service.fresh_client()
    for _ in range(8):
        assert client.get("/facts").status_code == 200
    worker = workers_of(service)[0]
    with lowered(worker, resource.RLIMIT_AS, worker.memory_info().vms + 2_000_000):
        for turn in range(3):
            try:
                answer = client.post("/batch", big(f"b{turn}"), timeout=WITHIN)
            except requests.ConnectionError:
                break  # the process could not go on; another one takes its place
            assert answer.status_code in (200, 503), answer.text
            assert answer.status_code == 200 or (answer.json()["message"] and answer.headers["Retry-After"])
    until = time.monotonic() + WITHIN
    while not is_well(client) and time.monotonic() < until:
        time.sleep(0.2)
    stored = len(client.get("/facts").json())
    assert stored % 16_000 == 0, "a change is made whole or not at all"
    assert client.post("/batch", big("after"), timeout=WITHIN).status_code == 200
    assert service.stop() == 0


def is_well(client) -> bool:
    try:
        return client.get("/policy", timeout=WITHIN).status_code == 200
    except requests.ConnectionError:
        return False


def test_a_worker_that_is_killed_is_replaced(tmp_path):
    """As the system does it when memory is short."""
    service = start_service(tmp_path, url_in(tmp_path), "--dev", "--workers", "2")
    client = service.fresh_client()
    victim = workers_that_listen(service, 2, 3 * WITHIN)[0]
    victim.send_signal(signal.SIGKILL)
    victim.wait(WITHIN)
    workers_that_listen(service, 2, 3 * WITHIN)
    assert [client.get("/facts").status_code for _ in range(20)] == [200] * 20
    service.stop()


def test_signals_that_come_again_and_again_stop_it_once(tmp_path):
    """Ctrl-C goes to all processes of a terminal, each time."""
    service = start_service(tmp_path, url_in(tmp_path), "--dev", "--workers", "2")
    service.fresh_client()
    processes = [*workers_that_listen(service, 2, 3 * WITHIN), service.process]
    for _ in range(4):
        for each in processes:
            each.send_signal(signal.SIGINT)
    assert service.process.wait(3 * WITHIN) == 0
