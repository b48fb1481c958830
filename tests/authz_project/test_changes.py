"""Changes that wait for one another take no threads, and each is told what became of it."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from unittest.mock import Mock

import orjson
import pytest
import requests
from django.db import connection

from authz_project.keys import create_key, revoke_key
from authz_project.route import HTTPAnswer
from authz_project.server import workers
from authz_project.server.workers import ChangeThreads
from facts import together
from tests.conftest import Api
from tests.facts.test_together import POLICY, role, users
from tests.service import Client
from tests.waiting import Writers, another_writer, are_waiting, wait_for

SECONDS = 3.0  # of a load, on each database


class Outbox(Writers):
    """Answers to requests that a pool of change threads has taken, by name."""

    def __init__(self, threads: int = 2):
        super().__init__(threads)
        self.answers: SimpleQueue[tuple[str, HTTPAnswer]] = SimpleQueue()

    def post(self, api: Api, path: str, body: object, name: str) -> None:
        answered = self.send(api, "POST", path, body, name)
        answered.add_done_callback(lambda answered: self.answers.put((name, answered.result())))

    def told(self, api: Api, user: str) -> None:
        self.post(api, "/api/facts", role(user), user)

    def received(self, number: int) -> dict[str, HTTPAnswer]:
        return dict(self.answers.get(timeout=30) for _ in range(number))

    @contextmanager
    def behind_another(self, environment_id: int, writers: int) -> Iterator[None]:
        """The block's writers wait for one that has the turn."""
        with another_writer(environment_id):
            yield
            wait_for(lambda: are_waiting(environment_id, writers))


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def test_writers_that_wait_take_no_threads(api, outbox):
    users = [f"u{number}" for number in range(40)]
    with outbox.behind_another(api.environment.pk, len(users)):
        for user in users:
            outbox.told(api, user)
    answers = outbox.received(len(users))
    assert {orjson.loads(answers[user].content)["args"][0]["id"] for user in users} == set(users)
    assert {user: dict(answers[user].headers)["X-Request-ID"] for user in users} == dict(zip(users, users))
    offsets = {dict(answers[user].headers)["OsoOffset"] for user in users}
    assert offsets == {str(number) for number in range(2, len(users) + 2)}
    wait_for(lambda: (outbox.changes.busy, outbox.changes.waiting) == (0, 0))


def test_each_writer_of_a_group_is_told_what_became_of_its_own_change(api, outbox):
    assert api.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    key, text = create_key(api.environment)
    revoked = Api(api.environment, text)
    assert revoked.post("/facts", role("zoe")).status_code == 200
    nonsense = {"predicate": "nonsense", "args": [{"type": "User", "id": "no"}]}
    with outbox.behind_another(api.environment.pk, 5):
        outbox.told(api, "ann")
        wait_for(lambda: are_waiting(api.environment.pk, 1))
        outbox.post(api, "/api/facts", nonsense, "nonsense")
        outbox.told(revoked, "dan")
        outbox.post(api, "/api/batch", [{"inserts": [role("eve")]}, {"deletes": [role("zoe")]}], "both")
        outbox.told(api, "bob")
        wait_for(lambda: are_waiting(api.environment.pk, 5))
        if connection.vendor == "postgresql":  # on SQLite, nobody can revoke it meanwhile
            revoke_key(key)
    answers = outbox.received(5)
    expected = {"ann": 200, "nonsense": 400, "dan": 200, "both": 200, "bob": 200}
    if connection.vendor == "postgresql":
        expected["dan"] = 401
    assert {name: answer.status for name, answer in answers.items()} == expected
    assert b"nonsense(User)" in answers["nonsense"].content
    assert users(api) == ["ann", "bob", *(["dan"] if expected["dan"] == 200 else []), "eve"]


def test_who_waits_too_long_is_told_so(api, outbox, settings):
    assert api.post("/facts", role("zoe")).status_code == 200
    assert api.post("/facts", role("yan")).status_code == 200
    settings.WRITE_TIMEOUT = 0.5
    with another_writer(api.environment.pk):
        began = time.monotonic()
        for user in ("ann", "bob", "cid"):
            outbox.told(api, user)
        answers = outbox.received(3)
        assert 0.4 < time.monotonic() - began < 10
    assert [answer.status for answer in answers.values()] == [503] * 3
    assert all(b"(WRITE_TIMEOUT)" in answer.content for answer in answers.values())
    outbox.told(api, "dan")
    assert outbox.received(1)["dan"].status == 200
    assert users(api) == ["dan", "yan", "zoe"]


def test_who_waits_too_long_is_told_so_though_no_thread_is_free(api, outbox, settings):
    settings.WRITE_TIMEOUT = 0.5
    free = threading.Event()
    with another_writer(api.environment.pk):
        for number, user in enumerate(("ann", "bob", "cid"), 1):
            outbox.told(api, user)
            wait_for(lambda number=number: are_waiting(api.environment.pk, number))
        for _ in range(2):
            outbox.changes.do(free.wait)
        assert outbox.received(1)["ann"].status == 503
        wait_for(lambda: together.end_late() or not outbox.answers.empty())
        assert outbox.received(1)["cid"].status == 503
        free.set()
        assert outbox.received(1)["bob"].status == 503  # it was to lead
    assert users(api) == []


def test_a_change_is_made_though_no_more_threads_can_be_had(monkeypatch):
    """All threads are there from the start. A pool that gets no thread keeps what it was to do."""
    changes, made = ChangeThreads(2), threading.Event()
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    changes.do(made.set)
    assert made.wait(10)


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
    changes, ended = ChangeThreads(1), threading.Event()
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
