"""Requests that wait for changes have no thread; one thread looks for all of them, and has them answered again."""

import time
from collections.abc import Iterator
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from types import SimpleNamespace
from unittest.mock import Mock

import orjson
import pytest
from django.db import OperationalError, connection

from authz_project import wsgi
from authz_project.keys import create_key, revoke_key
from authz_project.route import SENT_LATER
from authz_project.server import workers
from authz_project.server.workers import LongPolls
from policy.core import journal, spaces
from policy.core.journal import current_offset
from policy.endpoint import LONG_POLL, LongPoll, Request
from policy.models import Environment
from tests.conftest import Api
from tests.facts.test_feed import role
from tests.waiting import elsewhere, wait_for

WITHIN = 20.0  # seconds, for what takes a moment


class Polls:
    """Requests that wait, and the names of those that are to be answered again."""

    def __init__(self, size: int = 99):
        self.again: SimpleQueue[tuple[str, float]] = SimpleQueue()
        self.polls = LongPolls(size, lambda environ, _: self.again.put((environ["name"], time.monotonic())))

    def wait(self, name: str, environment_id: int, offset: int, seconds: float = 60, keys: str = "") -> bool:
        poll = LongPoll(partial(self.polls.enter, None))
        return poll.wait(Request("GET", {"name": name}, bytes, "", 0.0), environment_id, offset, seconds, keys=keys)

    def next(self) -> str:
        return self.again.get(timeout=WITHIN)[0]


@pytest.fixture(autouse=True)
def listeners() -> Iterator[None]:
    """No commit of other tests is told to the requests of these."""
    yield
    journal.commit_listeners.clear()


@pytest.fixture
def polls() -> Polls:
    return Polls()


def test_all_share_one_thread_that_looks_and_nobody_looks_if_nobody_waits(api, polls, monkeypatch):
    looks: list[dict[int, str]] = []
    monkeypatch.setattr(journal, "offsets_of", lambda numbers: looks.append(numbers) or dict.fromkeys(numbers, 0))
    began = time.monotonic()
    for number in range(8):
        assert polls.wait(str(number), 1, 0, seconds=1)
    again = [polls.again.get(timeout=WITHIN) for _ in range(8)]
    assert {name for name, _ in again} == set("01234567")
    assert all(at - began >= 1 for _, at in again)
    assert 4 <= len(looks) <= 20 and set(map(tuple, looks)) == {(1,)}
    number = len(looks)
    time.sleep(0.5)
    assert len(looks) == number and not polls.polls.busy


def test_a_change_of_any_process_is_found_and_one_of_this_process_at_once(api, polls, monkeypatch):
    number = api.environment.pk
    offset = current_offset(number)
    assert polls.wait("other", number, offset)
    elsewhere(lambda: Environment.objects.filter(pk=number).update(offset=offset + 1))
    assert polls.next() == "other"
    monkeypatch.setattr(workers, "NEWS_TICK", 60.0)
    assert polls.wait("own", number, offset + 1)
    time.sleep(0.3)
    polls.polls.tell(number + 1)  # of an environment that nobody waits for
    assert polls.again.empty()
    assert api.post("/facts", role("ann", "reader", "1")).status_code == 200
    assert polls.next() == "own"


def test_changed_keys_are_news_for_those_who_ask_for_them(api, polls, monkeypatch):
    monkeypatch.setattr(workers, "KEYS_TICK", 0.1)
    number = api.environment.pk
    offset, digest = current_offset(number), workers._keys_of(number, spaces.HOME)
    assert polls.wait("follower", number, offset, keys=digest)
    assert polls.wait("reader", number, offset)
    time.sleep(0.5)
    assert polls.again.empty()
    create_key(api.environment)
    assert polls.next() == "follower"
    assert polls.again.empty()


def test_no_more_wait_than_there_are_places(api, monkeypatch):
    polls = Polls(size=2)
    assert [polls.wait(name, api.environment.pk, 0, seconds=0.3) for name in "abc"] == [True, True, False]
    assert {polls.next(), polls.next()} == {"a", "b"}
    assert polls.wait("d", api.environment.pk, 0)
    assert not polls.wait("e", api.environment.pk, 0, seconds=0), "it has no time"


def test_nobody_waits_once_the_server_is_told_to_stop(api, polls, monkeypatch):
    draining = Event()
    monkeypatch.setattr(workers, "draining", draining)
    assert polls.wait("first", api.environment.pk, 0)
    draining.set()
    assert polls.next() == "first"
    assert not polls.wait("second", api.environment.pk, 0)


def test_a_failure_leaves_nobody_waiting(api, polls, monkeypatch):
    """The one thread that looks for news goes on: the requests say what is wrong when they are answered."""
    monkeypatch.setattr(journal, "offsets_of", Mock(side_effect=MemoryError))
    for name in ("first", "second"):
        assert polls.wait(name, api.environment.pk, 0)
        assert polls.next() == name


def test_who_waits_is_answered_after_no_thread_could_be_started(api, polls, monkeypatch):
    with monkeypatch.context() as scarce:
        scarce.setattr(Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError):
            polls.wait("first", api.environment.pk, 0, seconds=0.3)
    assert polls.wait("second", api.environment.pk, 0, seconds=0.3)
    assert polls.next() == "second" and polls.again.empty()


def test_a_space_that_cannot_be_read_keeps_nobody_else_waiting(api, polls, monkeypatch, caplog):
    monkeypatch.setattr(journal, "_unreadable", {})
    assert polls.wait("here", api.environment.pk, 0)
    with monkeypatch.context() as elsewhere_now:
        elsewhere_now.setattr(spaces.here, "name", "lost")
        assert polls.wait("lost", 0, 0)
    assert polls.next() == "lost", "its answer says what is wrong"
    assert polls.again.empty()
    elsewhere(lambda: Environment.objects.filter(pk=api.environment.pk).update(offset=1))
    assert polls.next() == "here"
    assert [each.message for each in caplog.records if each.name == "authz.changes"] == [
        "cannot check for changes: space `lost` is on a server that DATABASE_URLS does not name"
    ]


def test_a_space_whose_server_hangs_holds_up_others_for_little_of_the_time(api, monkeypatch):
    waiting, tries, now, entered = {0: "hung", api.environment.pk: spaces.HOME}, [], [100.0], spaces.entered

    def entered_slowly(space: str):
        if space != "hung":
            return entered(space)
        tries.append(space)
        now[0] += 0.1
        raise OperationalError("connection timeout expired")

    monkeypatch.setattr(journal, "_unreadable", {})
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(journal.spaces, "entered", entered_slowly)
    for _ in range(5):
        assert journal.offsets_of(waiting) == {api.environment.pk: 0}
        now[0] += 0.08
    assert len(tries) == 1
    now[0] += 0.3
    journal.offsets_of(waiting)
    assert len(tries) == 2, "it is looked at again"


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_the_thread_that_looks_keeps_no_connection_that_is_not_used(api, polls, monkeypatch):
    monkeypatch.setattr(workers, "UNUSED", 0.2)
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def number() -> int:
        with connection.cursor() as cursor:
            cursor.execute(others)
            return cursor.fetchone()[0]

    before = number()
    assert polls.wait("first", api.environment.pk, 0, seconds=0.5)
    wait_for(lambda: number() == before + 1)
    assert polls.next() == "first"
    wait_for(lambda: number() == before)


# ---- the change feed -----------------------------------------------------------------------------------------------


def polled(api: Api, path: str, enter) -> tuple[object, dict[str, object]]:
    path, _, query = path.partition("?")
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query, "HTTP_AUTHORIZATION": f"Bearer {api.key}",
        LONG_POLL: LongPoll(enter),
    }  # fmt: skip
    return wsgi.ROUTES[path].answer(environ), environ


def test_a_reader_waits_if_there_is_nothing_and_goes_on_where_it_was(api):
    waiting: list[LongPoll] = []
    enter = lambda poll, environ: waiting.append(poll) or time.monotonic() < poll.until  # noqa: E731
    assert api.post("/facts", role("ann", "reader", "1")).status_code == 200
    answer, environ = polled(api, "/api/changes?predicate=likes&wait=30", enter)
    assert answer is SENT_LATER
    assert (waiting[0].environment_id, waiting[0].offset) == (api.environment.pk, 1)
    assert 29 < waiting[0].until - time.monotonic() <= 30
    assert waiting[0].after.revision == 1
    likes = {"predicate": "likes", "args": [{"type": "User", "id": "ann"}]}
    assert api.post("/facts", likes).status_code == 200
    content = orjson.loads(wsgi.ROUTES["/api/changes"].answer(environ).content)
    assert [each["revision"] for each in content["changes"]] == [2] and content["next"] == 2


def test_a_reader_that_may_not_wait_is_told_at_once(api):
    answer, _ = polled(api, "/api/changes?wait=30", lambda poll, environ: False)
    assert orjson.loads(answer.content) == {"changes": [], "next": 0, "more": False}


@pytest.mark.parametrize("path", ["/api/changes?wait=30", "/api/follow?after=0&wait=5"])
def test_who_has_no_valid_key_does_not_wait(api, path):
    enter = Mock(return_value=True)
    assert polled(Api(api.environment, "e_default_unknown"), path, enter)[0].status == 401
    key, text = create_key(api.environment)
    waiting, environ = polled(Api(api.environment, text), "/api/changes?wait=30", enter)
    assert waiting is SENT_LATER and enter.call_count == 1
    revoke_key(key)
    assert wsgi.ROUTES["/api/changes"].answer(environ).status == 401
