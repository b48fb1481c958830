"""Receive requests: read their bodies, and hand each request to a thread."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.db import Error
from django.http import HttpRequest, parse_cookie
from django.utils.module_loading import import_string
from granian.rsgi import HTTPProtocol, ProtocolClosed, Scope

from authz_project.access_log import begin as begin_logs
from authz_project.database import HEALTH, MEMORY, READINESS, refresh_connection
from authz_project.keys import caller_of_token, is_remembered, token_of
from authz_project.observers import begin_traces
from authz_project.route import ANSWER_AGAIN, SEND_LATER, Environ, HTTPAnswer, too_large
from authz_project.server.exchange import UnreadBody, answer, environ_of, say, say_broken, say_readiness, send
from authz_project.server.listening import in_use
from authz_project.server.readiness_probe import ReadinessProbe, health_application
from authz_project.server.upkeep import start_upkeep
from authz_project.server.workers import (
    ChangeThreads,
    CheckThreads,
    DelayedRejections,
    LongPolls,
    TaskQueue,
    run_logged,
)
from authz_project.side_listener import start_listener
from authz_project.spaces import in_place
from checks.asking.run import turns
from facts.together import end_late
from policy.core import memory, spans
from policy.core.memory import BodyAdmission, NeedsTooMuchMemory, budget, exhausted
from policy.core.threads import start_thread
from policy.endpoint import LONG_POLL, LongPoll
from policy.errors import KeyRefused

log = logging.getLogger("authz.server")

# ---- admission ----------------------------------------------------------------------------------------------------
# Sets the size limit of a request body by its sender, before any of the body is read.

SMALL = 1 << 16  # bytes; limit of a body for /admin/ without a login
LARGEST = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
PEOPLE = "/admin/"  # beginning of the paths whose users log in instead of sending a key


def quick_allowance(environ: Environ) -> int:
    """Return how many bytes may be read according to cached keys; 0 if the key has to be looked up in the database."""
    if _is_for_people(environ):
        return min(SMALL, LARGEST)
    return LARGEST if is_remembered(token_of(environ)) else 0


def allowance(environ: Environ) -> int:
    """Return how many bytes may be read, querying the database. Raise `KeyRefused` if a valid key is missing."""
    refresh_connection()
    if _is_for_people(environ):
        return LARGEST if _is_logged_in(environ) else min(SMALL, LARGEST)
    token = token_of(environ)
    refusal = in_place(token, partial(_refusal_of, token), bool)
    if refusal is None:
        return LARGEST
    if settings.FOLLOW is None:
        raise refusal
    return SMALL  # the main service may know the key


def _refusal_of(token: str) -> KeyRefused | None:
    try:
        caller_of_token(token)
    except KeyRefused as reason:
        return reason
    return None


def _is_for_people(environ: Environ) -> bool:
    return environ["PATH_INFO"].startswith(PEOPLE)


def _is_logged_in(environ: Environ) -> bool:
    session = parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    if not session:
        return False
    request = HttpRequest()
    request.session = SessionStore(session)
    user = get_user(request)
    return user.is_active and user.is_staff


# ---- reading bodies by callbacks, so that no thread waits for them, and with a timeout ----------------------------


BODY_TIMEOUT = 10.0  # seconds
LEAST_RATE = 1 << 16  # bytes per second; for each such amount, the timeout of a body is extended by a second
RATE_WHILE_AWAITED = 1 << 20  # the same while other bodies wait for memory
LINGER = 2.0  # seconds for which a rejected body is still received, so that its sender gets the response
LINGER_SIZE = 1 << 26  # bytes of a rejected body that are received at most
_TICK = 0.25  # seconds between checks for timed-out bodies


class SmallBody:
    """Reads a small body of known length in one piece, as most are. Calls `done(body)` or `failed(reason)`.

    `reason` is "late" or "broken".
    """

    def __init__(
        self, protocol: HTTPProtocol, length: int, done: Callable[[bytes], None], failed: Callable[[str], None]
    ):
        self._until = time.monotonic() + _allowed(length)
        self._done, self._failed = done, failed
        self._body: Future[bytes] | None = protocol()
        _open.add(self)
        self._body.add_done_callback(self._arrived)

    def expire(self, now: float) -> None:
        body = self._body
        if body is not None and now > self._until:
            body.cancel()  # this calls `_arrived`

    def _arrived(self, body: Future[bytes]) -> None:
        _open.discard(self)
        self._body = None
        if body.cancelled():
            self._failed("late")
            return
        try:
            whole = body.result()
        except ProtocolClosed as reason:
            reason.__traceback__ = None  # `body` keeps the error, which would keep this frame, and so `body`: a cycle
            self._failed("broken")
        else:
            self._done(whole)


BodyIterator = Any  # what `HTTPProtocol.__aiter__` returns; called twice for a request, it would not end


class _BodyReading:
    """Reads a body, or the rest of one, one chunk at a time; subclasses decide what to do with the chunks."""

    def __init__(self, chunks: BodyIterator, size: int = 0):
        self.size = size
        self.started = time.monotonic()
        self._chunks = chunks
        self._chunk: Future[bytes] | None = None
        _open.add(self)
        self._go_on()

    def take(self, part: bytes) -> bool:
        """Process a chunk and return whether more are wanted. The last chunk is followed by an empty one."""
        raise NotImplementedError

    def late(self) -> None:
        raise NotImplementedError

    def allowed(self) -> float:
        """Return the timeout of the body, in seconds from its start."""
        raise NotImplementedError

    def expire(self, now: float) -> None:
        chunk = self._chunk
        if chunk is not None and now - self.started > self.allowed():
            chunk.cancel()  # this calls `_arrived`

    def _go_on(self) -> None:
        """Process the chunks that have arrived, and register a callback for the next one."""
        while self in _open:
            try:
                chunk = self._chunk = self._chunks.__anext__()
            except StopAsyncIteration:  # on an event loop, the last chunk may arrive without an empty one after it
                self.take(b"")
                self._end()
                return
            if not chunk.done():
                chunk.add_done_callback(self._arrived)
                return
            self._take(chunk)

    def _arrived(self, chunk: Future[bytes]) -> None:
        self._take(chunk)
        self._go_on()

    def _take(self, chunk: Future[bytes]) -> None:
        if chunk.cancelled():
            self._end()
            self.late()
            return
        part = chunk.result()
        self.size += len(part)
        if not self.take(part):
            self._end()

    def _end(self) -> None:
        _open.discard(self)
        self._chunk = self._chunks = None


class Body(_BodyReading):
    """Reads a whole body. Calls `done(body)` or `failed(reason)`.

    `reason` is "long", "late", "broken", or "too much" if there is not enough memory for it.

    With `wait`, for a body of unknown length, it calls that once the body is not small, with what reads the rest.
    """

    def __init__(
        self, chunks: BodyIterator, length: int | None, limit: int, done: Callable[[bytes], None],
        failed: Callable[[str], None], wait: Callable[[Callable[[], object]], None] | None = None,
        parts: Sequence[bytes] = (),
    ):  # fmt: skip
        self._length, self._limit = length, limit
        self._done, self._failed, self._wait = done, failed, wait
        self._parts = [*parts]
        super().__init__(chunks, sum(map(len, parts)))

    def allowed(self) -> float:
        return _allowed(self.size)

    def late(self) -> None:
        self._failed("late")

    def take(self, part: bytes) -> bool:
        self._parts.append(part)
        if self.size > self._limit:
            self._failed("long")
            DiscardedBody(self._chunks)
            return False
        if self._wait is not None and self.size > SMALL:
            rest = partial(Body, self._chunks, None, self._limit, self._done, self._failed, parts=self._parts)
            self._wait(rest)
            return False
        if self.size == self._length or (not part and self._is_whole()):
            self._end_with_all()
        elif not part:
            self._failed("broken")
        else:
            return True
        return False

    def _joined(self) -> bytes:
        return b"".join(self._parts)

    def _end_with_all(self) -> None:
        try:
            whole = self._joined()
        except MemoryError:
            exhausted()
            self._failed("too much")
        else:
            self._done(whole)

    def _is_whole(self) -> bool:
        """Return whether a chunked body is complete, after an empty chunk.

        A body that was cut off ends with an empty chunk, too, but then its stream does not end.
        """
        if self._length is not None:
            return False
        try:
            self._chunks.__anext__().cancel()
        except StopAsyncIteration:
            return True
        return False


class DiscardedBody(_BodyReading):
    """Receives a rejected body for a while and drops it: closing the connection at once would lose the response."""

    def allowed(self) -> float:
        return LINGER

    def late(self) -> None:
        pass

    def take(self, part: bytes) -> bool:
        return bool(part) and self.size < LINGER_SIZE


_open: set[SmallBody | _BodyReading] = set()


def _allowed(size: int) -> float:
    """Return how many seconds a body of this size may take to arrive."""
    rate = RATE_WHILE_AWAITED if budget.is_awaited else LEAST_RATE
    return BODY_TIMEOUT + size / rate


def _watch() -> None:
    while True:
        time.sleep(_TICK)
        try:
            _end_what_is_late()
            end_late()
            budget.tick()
        except Exception:  # keep checking the other bodies
            log.exception("cannot close connections with timed-out request bodies")


def _end_what_is_late() -> None:
    """Expire all timed-out bodies. This is a function of its own so that its variables are dropped when it returns.

    Granian closes a connection only when nothing refers to its body any more.
    """
    now = time.monotonic()
    for reading in tuple(_open):
        reading.expire(now)


# ---- intake -------------------------------------------------------------------------------------------------------
# Decides what happens to an arriving request: it is rejected, its body is read, or it goes to a thread.
#
# Nothing here may block, since requests are delivered by granian's own thread. Bodies are read by callbacks
# (`_reading`), and whatever queries the database runs on other threads (`_slots`, `_changes`).


# Endpoints of changes that can be committed together: see `facts.store`.
CHANGES = frozenset(f"api/{name}" for name in ("batch", "facts", "bulk", "bulk_load", "bulk_delete"))
POLLED = frozenset(("api/changes", "api/follow"))  # their requests may wait for changes (long polling)
SHARE_OF_WAITING = 4  # of a worker's connections, one in so many may wait for changes
CROWDED = "the server is overloaded; try again"
FULL = "too many large request bodies at the same time; try again"
# Extra threads per thread, for slow requests. A connection costs SQLite little, but PostgreSQL a process.
MORE = {"django.db.backends.sqlite3": 4, "django.db.backends.postgresql": 1}


Threads = TaskQueue | ChangeThreads


class Intake:
    """The callable to which granian passes each request of a worker process; `threads` threads answer checks.

    While some of them are slow, up to `MORE` extra threads for each may work. The process with `keeps_up` also runs the
    periodic chores (`upkeep`). `number` identifies the process in metrics.
    """

    def __init__(self, threads: int, keeps_up: bool = False, number: int = 1, places: int = 256):
        memory.start(settings.MEMORY_BUDGET, replace_process)  # before threads start, each of which allocates an arena
        more = threads * MORE[settings.DATABASES["default"]["ENGINE"]]
        self._slots = CheckThreads(threads, more, at_once())
        # Not on SQLite, which confirms an answer in less time than a thread takes to begin.
        self._confirms_together = not (at_once() or settings.REPLICAS or settings.FOLLOW)
        turns.most_here = more  # this many may be slow, or wait to run slow statements; the other threads stay free
        # While one commits, another prepares the next commit. Those of a follower wait for the main service.
        self._changes = ChangeThreads(16 if settings.FOLLOW else max(2, threads))
        self._polls = LongPolls(places, self._answer_poll_again)
        self._lookout = ReadinessProbe()
        self._refusals = DelayedRejections()
        self._reading, self._parsing = budget.room_to_read(), budget.room_to_parse()
        if settings.HEALTH_LISTENER:
            host, port = settings.HEALTH_LISTENER
            start_listener(host, port, health_application(self._lookout), "health", reuse_port=True)
        if settings.METRICS_FOLDER:
            pools = {"questions": self._slots, "changes": self._changes, "feed": self._polls}
            import_string("authz_project.metrics.start")(number, pools)
        start_thread("late bodies", _watch)
        begin_logs()
        begin_traces()
        if "postgresql" in settings.DATABASES["default"]["ENGINE"]:
            import_module("authz_project.server.database_waits").start()  # by name, as it imports PostgreSQL's driver
        if keeps_up:
            start_upkeep()

    def __call__(self, arrived: Any) -> None:
        """Receive a request from granian. Exceptions are logged and answered here, because granian would drop them."""
        try:
            self._receive(arrived.scope, arrived.proto)
        except Exception as error:
            say_broken(arrived.scope, arrived.proto, error)

    def _receive(self, scope: Scope, protocol: HTTPProtocol) -> None:
        if scope.path in HEALTH and scope.method in ("GET", "HEAD"):
            say(scope, protocol, 200, "ready")
            return
        if scope.path == READINESS and scope.method in ("GET", "HEAD"):
            self._lookout.call_with_readiness(partial(say_readiness, scope, protocol))
            return
        length = _length(scope)
        if length != 0 and self._threads_for(scope.path).is_crowded:  # rejected before its body is read
            is_large = length is None or length > SMALL  # read a small one: the client can retry on this connection
            self._refusals.send_later(partial(_refuse, scope, protocol, 503, CROWDED, close=is_large))
            return
        environ = environ_of(scope)
        if length == 0:
            _note_waiting(environ)
            is_known = is_remembered(token_of(environ))
            threads = self._slots.known if is_known else self._slots.guests
            if environ["PATH_INFO"].lstrip("/") in POLLED:
                environ[LONG_POLL] = LongPoll(partial(self._polls.enter, protocol))
                self._do(self._changes if is_known else threads, scope, protocol, self._answer_poll, environ, protocol)
                return
            self._do(threads, scope, protocol, answer, environ, io.BytesIO(), 0, protocol)
            return
        limit = quick_allowance(environ)
        if length is not None and length > LARGEST:
            _refuse(scope, protocol, 413, too_large().message)
        elif limit == LARGEST or (length is not None and length <= limit):
            self._read(scope, protocol, environ, length, limit)
        elif not self._slots.guests.do(self._admit, scope, protocol, environ, length):
            _refuse(scope, protocol, 503, CROWDED)

    def _answer_poll(self, environ: Environ, protocol: HTTPProtocol) -> None:
        """Answer a request, or let it wait for changes; its thread is free either way."""
        answer(environ, io.BytesIO(), 0, protocol)

    def _answer_poll_again(self, environ: Environ, protocol: HTTPProtocol) -> None:
        _note_waiting(environ)
        self._changes.do_anyway(self._answer_poll, environ, protocol)

    def _threads_for(self, path: str) -> Threads:
        """Return the threads for a request with a body; if it is not from people, its key is known."""
        if path.startswith(PEOPLE):
            return self._slots.guests
        return self._changes if path.lstrip("/") in CHANGES else self._slots.known

    def _do(
        self, threads: Threads, scope: Scope, protocol: HTTPProtocol, work: Callable[..., object], *its: object
    ) -> bool:
        """Submit the work to the threads and return True; send a 503 and return False if they are overloaded.

        The request has arrived completely by then, so the connection stays open and the client can retry on it.
        """
        is_begun = threads.do(work, *its)
        if not is_begun:
            self._refusals.send_later(partial(say, scope, protocol, 503, CROWDED))
        return is_begun

    def _admit(self, scope: Scope, protocol: HTTPProtocol, environ: Environ, length: int | None) -> None:
        """Look up in the database how much this caller may send, and read the body, or answer without it if refused."""
        try:
            limit = allowance(environ)
        except (KeyRefused, Error) as reason:
            answer(environ, UnreadBody(reason), 1, protocol, close=True)
            DiscardedBody(protocol.__aiter__())
        except Exception as error:
            say_broken(scope, protocol, error)
        else:
            self._read(scope, protocol, environ, length, limit)

    def _read(self, scope: Scope, protocol: HTTPProtocol, environ: Environ, length: int | None, limit: int) -> None:
        """Read the body. A large one first waits for its share of the memory budget; until then, none of it is read.

        A chunked one is read until it is not small. It then waits for as much as it may have.
        """
        if length is not None and length > limit:
            _refuse(scope, protocol, 413, _long(limit))
            return
        body = _BodyMemory(self._reading, self._parsing)
        threads = self._threads_for(environ["PATH_INFO"])
        done = partial(self._arrived, threads, scope, protocol, environ, body)
        failed = partial(self._fail, scope, protocol, body, limit)
        if limit == LARGEST:  # the caller is authenticated, and may be slow to send the body
            in_use.add(scope.client)
        if length is not None and length <= SMALL:
            SmallBody(protocol, length, done, failed)
            return
        chunks = protocol.__aiter__()
        refuse = partial(_end, scope, body, partial(_refuse, scope, protocol, 503, FULL, chunks))
        if length is None:
            Body(chunks, None, limit, done, failed, wait=partial(body.wait_to_be_read, limit, refuse))
        else:
            body.wait_to_be_read(length, refuse, partial(Body, chunks, length, limit, done, failed))

    def _arrived(
        self, threads: Threads, scope: Scope, protocol: HTTPProtocol, environ: Environ, body: _BodyMemory, text: bytes
    ) -> None:
        """Answer the request, once there is memory for everything that is made of a large body."""
        if len(text) <= SMALL:
            body.end()
            self._begin(threads, scope, protocol, body, text, environ)
            return
        size = memory.size_of_parsed(text)
        if threads is not self._changes:  # ids of a check become parameters, and perhaps part of the response
            size += memory.COPIES * len(text)
        if 0 < budget.most < size:
            _end(scope, body)
            say(scope, protocol, 413, str(NeedsTooMuchMemory(budget.most)))
            return
        body.wait_to_be_parsed(
            size,
            partial(self._begin, threads, scope, protocol, body, text, environ),
            partial(_end, scope, body, partial(say, scope, protocol, 503, FULL)),
        )

    def _begin(
        self, threads: Threads, scope: Scope, protocol: HTTPProtocol, body: _BodyMemory, text: bytes, environ: Environ
    ) -> None:
        is_begun = False
        _note_waiting(environ)
        try:
            if isinstance(threads, ChangeThreads):
                environ[SEND_LATER] = partial(_send_later, protocol, body, threads.one_less)
            elif SEND_LATER in environ:  # it is answered again
                del environ[SEND_LATER]
            elif self._confirms_together:
                environ[SEND_LATER] = partial(_send_later, protocol, body, None)
                environ[ANSWER_AGAIN] = partial(self._begin, threads, scope, protocol, body, text)
            is_begun = self._do(threads, scope, protocol, self._answer, environ, protocol, body, text)
        finally:
            if not is_begun:
                _end(scope, body)

    def _answer(self, environ: Environ, protocol: HTTPProtocol, body: _BodyMemory, text: bytes) -> bool:
        is_answered = True
        try:
            is_answered = answer(environ, io.BytesIO(text), len(text), protocol)
        finally:  # granian's exceptions do not all derive from Exception
            if is_answered:
                body.end()
        return is_answered

    def _fail(self, scope: Scope, protocol: HTTPProtocol, body: _BodyMemory, limit: int, how: str) -> None:
        _end(scope, body)
        match how:
            case "long":
                say(scope, protocol, 413, _long(limit), close=True)
            case "late":
                message = f"the request body did not arrive within {BODY_TIMEOUT:g} seconds"
                say(scope, protocol, 408, message, close=True)
            case "too much":
                say(scope, protocol, MEMORY.status, MEMORY.message)
            case "broken":
                say(scope, protocol, 400, "the request body is incomplete", close=True)


class _BodyMemory:
    """What a body takes of the memory budget: nothing if it is small, as each connection has at most one body."""

    def __init__(self, reading: BodyAdmission, parsing: BodyAdmission):
        self._reading, self._parsing = reading, parsing
        self._read = self._parsed = 0  # bytes

    def wait_to_be_read(self, size: int, refuse: Callable[[], object], begin: Callable[[], object]) -> None:
        def begun() -> None:
            self._read = size
            begin()

        self._reading.enter(size, begun, refuse, settings.WRITE_TIMEOUT)

    def wait_to_be_parsed(self, size: int, begin: Callable[[], object], refuse: Callable[[], object]) -> None:
        """Move from the reading to the parsing budget, whose `size` includes the body as it was read."""

        def begun() -> None:
            self._parsed = size
            self._leave_reading()
            begin()

        def refused() -> None:
            self._leave_reading()
            refuse()

        self._parsing.enter(size, begun, refused, settings.WRITE_TIMEOUT)

    def end(self) -> None:
        """Return what the body takes to the memory budget."""
        self._leave_reading()
        if self._parsed:
            size, self._parsed = self._parsed, 0
            self._parsing.leave(size)

    def _leave_reading(self) -> None:
        if self._read:
            size, self._read = self._read, 0
            self._reading.leave(size)


def _send_later(
    protocol: HTTPProtocol,
    body: _BodyMemory,
    ended: Callable[[], object] | None,
    environ: Environ,
    answered: HTTPAnswer,
) -> None:
    run_logged(send, (environ, protocol, answered))
    body.end()
    if ended is not None:
        ended()


def _end(scope: Scope, body: _BodyMemory, refuse: Callable[[], object] | None = None) -> None:
    """Clean up after a request that the application did not answer, and call `refuse`, if given."""
    in_use.discard(scope.client)
    body.end()
    if refuse is not None:
        refuse()


def replace_process() -> None:
    """Make this process drain and exit, as at SIGTERM; its parent starts a replacement."""
    log.error("out of memory: this process exits and will be replaced")
    os.kill(os.getpid(), signal.SIGTERM)


def at_once() -> int:
    """Return how many threads may run at the same time while none of them is slow; 0 means all.

    While PostgreSQL executes one thread's statement, other threads can run. SQLite mostly finishes in less time than
    a thread switch takes. A longer statement lets the next thread begin (`policy/core/journal.py`).
    """
    return 1 if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3" else 0


def _note_waiting(environ: Environ) -> None:
    """Record, for observers, that the request waits for a thread from now on, or has waited and is answered again."""
    if spans.is_on:
        environ.setdefault(spans.WAITS_SINCE, spans.now())


def _length(scope: Scope) -> int | None:
    """Return the length of the body, 0 if the request has none, and None if it is chunked."""
    if scope.headers.get("transfer-encoding") is not None:
        return None
    return int(scope.headers.get("content-length", "0").partition(",")[0])  # granian checks that repeated values agree


def _refuse(
    scope: Scope, protocol: HTTPProtocol, status: int, message: str, chunks: BodyIterator = None, *, close: bool = True
) -> None:
    """Send an error before the body was read, and discard the body: the rest of `chunks`, if some of it was read."""
    say(scope, protocol, status, message, close=close)
    DiscardedBody(chunks or protocol.__aiter__())


def _long(limit: int) -> str:
    return (
        too_large().message if limit == LARGEST else (f"the request body is larger than {limit:,} bytes; log in first")
    )
