"""Others who write: those of a server, one that has what all of them take first, and one that drops history."""

import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event

import orjson
import pytest
from django.db import connection, transaction

from authz_project import wsgi
from authz_project.route import SEND_LATER, SENT_LATER, HTTPAnswer
from authz_project.server.workers import ChangeThreads
from facts import together
from facts.history import prune
from policy.core.journal import advance
from policy.core.spaces import HOME
from tests.conftest import Api


class Writers:
    """Threads that take changes as those of a server do."""

    def __init__(self, threads: int):
        self.changes = ChangeThreads(threads)

    def send(self, api: Api, method: str, path: str, body: object, name: str) -> Future[HTTPAnswer]:
        """The answer to be; the name is the request's id."""
        answered: Future[HTTPAnswer] = Future()
        text = orjson.dumps(body)
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": "", "CONTENT_LENGTH": str(len(text)),
            "wsgi.input": io.BytesIO(text), "HTTP_AUTHORIZATION": f"Bearer {api.key}", "HTTP_X_REQUEST_ID": name,
        }  # fmt: skip

        def note(environ: dict[str, object], answer: HTTPAnswer) -> None:
            self.changes.one_less()
            answered.set_result(answer)

        def work() -> bool:
            answer = wsgi.ROUTES[path].answer(environ)
            if answer is not SENT_LATER:
                answered.set_result(answer)
            return answer is not SENT_LATER

        environ[SEND_LATER] = note
        assert self.changes.do(work)
        return answered


def are_waiting(environment_id: int, number: int) -> bool:
    """Whether so many wait for their turn, or to be in the next group."""
    queue = together._queues.get((HOME, environment_id))
    return queue is not None and len(queue._writers) == number


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def another_writer(environment_id: int) -> AbstractContextManager[Event]:
    """Is at work until the end, or until the event is set."""
    return holding(lambda: advance(environment_id))


@contextmanager
def holding(take: Callable[[], object]) -> Iterator[Event]:
    """Hold what `take` locks in a transaction, until the end or until the event is set."""
    begun, done = Event(), Event()

    def work() -> None:
        try:
            with transaction.atomic():
                take()
                begun.set()
                done.wait(30)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        assert begun.wait(20)
        try:
            yield done
        finally:
            done.set()
            working.result()


def elsewhere(act: Callable[[], object]) -> None:
    """Do it as another process would."""

    def work() -> None:
        try:
            act()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()


def do_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str, act: Callable[[], object]) -> list[int]:
    """Have another do something before a function is called for the first time; how often that was."""
    usual, times = getattr(module, name), []

    def called(*args, **more):
        if not times:
            times.append(1)
            elsewhere(act)
        return usual(*args, **more)

    monkeypatch.setattr(module, name, called)
    return times


def prune_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> list[int]:
    """Drop all history before a function is called for the first time; how often that was."""
    return do_before(monkeypatch, module, name, lambda: prune(0))
