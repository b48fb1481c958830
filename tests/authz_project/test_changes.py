"""Changes wait for one another on threads of their own, and nobody waits for those threads."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import pytest
import requests

from authz_project.server import workers
from authz_project.server.workers import ChangeThreads
from policy.core.journal import run_with_connection
from tests.service import Client

SECONDS = 3.0  # of a load, on each database


def test_changes_that_wait_for_one_another_all_end():
    changes, told, ended = ChangeThreads(4, 1), [threading.Event() for _ in range(40)], threading.Semaphore(0)

    def change(index: int) -> None:
        if index % 4:  # the first of four makes the change of all four
            assert told[index].wait(10)
        else:
            run_with_connection(lambda: [each.set() for each in told[index : index + 4]])
        ended.release()

    for index in range(40):
        changes.do(change, index)
    assert all(ended.acquire(timeout=10) for _ in range(40))


def test_a_change_is_made_by_a_thread_with_a_connection_and_says_what_became_of_it():
    changes, seen, ended = ChangeThreads(1, 1), [], threading.Event()

    def change() -> None:
        seen.append(threading.current_thread().name)
        seen.append(run_with_connection(lambda: threading.current_thread().name))
        try:
            run_with_connection(partial(int, "x"))
        except ValueError as error:
            seen.append(str(error))
        ended.set()

    changes.do(change)
    assert ended.wait(10)
    assert [text.partition("_")[0] for text in seen[:2]] == ["change", "commit"] and "'x'" in seen[2]


def test_a_change_is_made_though_no_more_threads_can_be_had(monkeypatch):
    """Those that make changes are there from the start. A pool that gets no thread keeps what it was to do."""
    changes, made, ended = ChangeThreads(1, 2), [], threading.Event()
    changes.do(ended.set)
    assert ended.wait(10)
    ended.clear()
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    changes.do(lambda: made.append(run_with_connection(lambda: "made")) or ended.set())
    assert ended.wait(10) and made == ["made"]


def test_where_a_thread_is_missing_from_the_start_the_others_do_not_wait_for_it(monkeypatch):
    start, started = threading.Thread.start, []

    def once(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    with ThreadPoolExecutor(2) as pool, pytest.raises(RuntimeError):
        workers._start_all(pool, 2)
    assert not started[0].is_alive()


def test_a_change_that_fails_costs_no_thread(caplog):
    changes, ended = ChangeThreads(1, 1), threading.Event()
    for _ in range(3):
        changes.do(lambda: 1 / 0)
    changes.do(ended.set)
    assert ended.wait(10)
    assert caplog.text.count("request failed") == 3


def test_many_writers_and_readers_at_once_hold_nobody_up_for_long(service):
    """More writers than there are threads for them, and every other one by a path with two slashes."""
    client, until = service.fresh_client(), time.monotonic() + SECONDS
    stored, asked, slowest, wrong = [], [], [], []

    def use(send, done: list) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {client.key}"
        for number in range(100_000):
            began = time.monotonic()
            if began >= until:
                return
            answer = send(session, number)
            slowest.append(time.monotonic() - began)
            (done if answer.status_code == 200 else wrong).append(answer.text)

    def write(writer: int, session: requests.Session, number: int) -> requests.Response:
        path = "/api/facts" if writer % 2 else "//api/facts"
        args = [{"type": "User", "id": f"u{writer}"}, {"type": "Doc", "id": f"d{number}"}]
        return session.post(f"{client.origin}{path}", json={"predicate": "seen", "args": args}, timeout=20)

    def ask(session: requests.Session, number: int) -> requests.Response:
        return session.get(f"{client.origin}/api/stats", timeout=20)

    threads = [threading.Thread(target=use, args=(partial(write, writer), stored)) for writer in range(40)]
    threads += [threading.Thread(target=use, args=(ask, asked)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not wrong
    assert len(stored) > 40 and len(asked) > 10, "both went on"
    assert max(slowest) < 10
    assert len(Client(client.origin, client.key).get("/facts?predicate=seen").json()) == len(stored)
