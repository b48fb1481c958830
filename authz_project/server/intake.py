"""Take requests in: read their bodies, and give each to a thread."""

from __future__ import annotations

import io
import logging
import os
import signal
import time
from asyncio import Future
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.db import Error
from django.http import HttpRequest, parse_cookie
from django.utils.module_loading import import_string
from granian._granian import RSGIHTTPProtocol as HTTPProtocol
from granian._granian import RSGIProtocolClosed as ProtocolClosed
from granian.rsgi import Scope

from authz_project.database import HEALTH, MEMORY, READINESS, refresh_connection
from authz_project.errors import too_large
from authz_project.keys import caller_of_token, is_remembered, token_of
from authz_project.logs.access import begin as begin_logs
from authz_project.route import Environ
from authz_project.server.exchange import Withheld, answer, environ_of, say, say_broken, say_readiness
from authz_project.server.listening import in_use
from authz_project.server.readiness_probe import Lookout, health_application
from authz_project.server.upkeep import start_upkeep
from authz_project.server.workers import ChangeThreads, HeldRefusals, Slots, Waiting
from authz_project.side_listener import start_listener
from authz_project.traces import begin as begin_traces
from checks.asking.turns import turns
from policy.endpoint import MAY_WAIT
from policy.errors import KeyRefused
from policy.ground import memory, spans
from policy.ground.memory import NeedsTooMuchMemory, Room, budget, exhausted
from policy.ground.threads import start_thread

log = logging.getLogger("authz.server")

# ---- Read the bodies of requests: how large they may be, and by when they must arrive -----------------------------

# ---- admission ----------------------------------------------------------------------------------------------------
# Decides how large a request's body may be, depending on who sends it, before any of the body is read.

SMALL = 1 << 16  # bytes of body that /admin/ takes from somebody who is not logged in
UNLIMITED = 1 << 62


@cache
def largest() -> int:
    return settings.MAX_BODY_BYTES or UNLIMITED


def quick_allowance(environ: Environ) -> int:
    """Return how many bytes may be read without asking the database; 0 where the key has to be looked up first."""
    if _is_for_people(environ):
        return min(SMALL, largest())
    return largest() if is_remembered(token_of(environ)) else 0


def allowance(environ: Environ) -> int:
    """Return how many bytes may be read, asking the database. Raise `KeyRefused` where a good key is missing."""
    refresh_connection()
    if _is_for_people(environ):
        return largest() if _is_logged_in(environ) else min(SMALL, largest())
    caller_of_token(token_of(environ))
    return largest()


def _is_for_people(environ: Environ) -> bool:
    return environ["PATH_INFO"].startswith("/admin/")


def _is_logged_in(environ: Environ) -> bool:
    session = parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    if not session:
        return False
    request = HttpRequest()
    request.session = SessionStore(session)
    user = get_user(request)
    return user.is_active and user.is_staff


# ---- Reads bodies by callbacks, so that no thread waits for them, and within a deadline ---------------------------


BODY_TIMEOUT = 10.0  # seconds
LEAST_RATE = 1 << 16  # bytes a second: for each so many bytes, a body may take a second longer than `BODY_TIMEOUT`
RATE_WHILE_AWAITED = 1 << 20  # the same while other bodies wait for their room in memory
LINGER = 2.0  # seconds for which a refused body is still taken, so that its sender gets the response
LINGER_SIZE = 1 << 26  # bytes of a refused body that are taken at most
_TICK = 0.25  # seconds between checks for late bodies


class Whole:
    """Reads a small body of known length in one piece, as most are. Calls `done` with it, or `failed` with the reason.

    The reason is "late" or "broken".
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
            body.cancel()  # which calls `_arrived`

    def _arrived(self, body: Future[bytes]) -> None:
        _open.discard(self)
        self._body = None
        if body.cancelled():
            self._failed("late")
            return
        try:
            whole = body.result()
        except ProtocolClosed as reason:
            reason.__traceback__ = None  # `body` keeps the error, which would keep this frame, and so `body`, for ever
            self._failed("broken")
        else:
            self._done(whole)


class _BodyReading:
    """Reads a body chunk by chunk, one at a time; subclasses say what becomes of the chunks."""

    def __init__(self, protocol: HTTPProtocol):
        self.size = 0
        self.started = time.monotonic()
        self._chunks = protocol.__aiter__()
        self._chunk: Future[bytes] | None = None
        _open.add(self)
        self._go_on()

    def take(self, part: bytes) -> bool:
        """Take in a part, and say whether more is wanted. After the last part comes an empty one."""
        raise NotImplementedError

    def late(self) -> None:
        raise NotImplementedError

    def allowed(self) -> float:
        """Return how many seconds after its start the body is late."""
        raise NotImplementedError

    def expire(self, now: float) -> None:
        chunk = self._chunk
        if chunk is not None and now - self.started > self.allowed():
            chunk.cancel()  # which calls `_arrived`

    def _go_on(self) -> None:
        """Take the chunks that are there, and have the next one call back."""
        while self in _open:
            chunk = self._chunk = self._chunks.__anext__()
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
    """Reads a whole body. Calls `done` with it, or `failed` with the reason.

    The reason is "long", "late", "broken", or "too much" where there is no memory for it.
    """

    def __init__(
        self, protocol: HTTPProtocol, length: int | None, limit: int,
        done: Callable[[bytes], None], failed: Callable[[str], None],
    ):  # fmt: skip
        self._length, self._limit = length, limit
        self._done, self._failed = done, failed
        self._parts: list[bytes] = []
        super().__init__(protocol)

    def allowed(self) -> float:
        return _allowed(self.size)

    def late(self) -> None:
        self._failed("late")

    def take(self, part: bytes) -> bool:
        self._parts.append(part)
        if self.size > self._limit:
            self._failed("long")
        elif self.size == self._length or (not part and self._is_whole()):
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
        """Say, after an empty part, whether a body in chunks is complete.

        A body that broke off ends with an empty part as well, but then its stream does not end.
        """
        if self._length is not None:
            return False
        try:
            self._chunks.__anext__().cancel()
        except StopAsyncIteration:
            return True
        return False


class Rest(_BodyReading):
    """Takes a refused body for a while, and drops it: if the connection closed at once, the response would be lost."""

    def allowed(self) -> float:
        return LINGER

    def late(self) -> None:
        pass

    def take(self, part: bytes) -> bool:
        return bool(part) and self.size < LINGER_SIZE


_open: set[Whole | _BodyReading] = set()


def _allowed(size: int) -> float:
    """Return how many seconds so much of a body may take to arrive."""
    rate = RATE_WHILE_AWAITED if budget.is_awaited else LEAST_RATE
    return BODY_TIMEOUT + size / rate


def start_watch() -> None:
    start_thread("late bodies", _watch)


def _watch() -> None:
    while True:
        time.sleep(_TICK)
        try:
            _end_what_is_late()
            budget.tick()
        except Exception:  # the next one is not to wait for ever for that
            log.exception("cannot close connections with timed-out request bodies")


def _end_what_is_late() -> None:
    """Expire all that is late. This is a function so that its variables go away when it returns.

    Granian closes a connection only when nothing refers to its body any more.
    """
    now = time.monotonic()
    for reading in tuple(_open):
        reading.expire(now)


# ---- intake -------------------------------------------------------------------------------------------------------
# Decides what happens to a request that arrives: it is refused, its body is read, or a thread answers it.
#
# Nothing here waits, since granian's own thread delivers the requests. Bodies are read by callbacks (`reading`), and
# what asks the database runs on other threads (`slots`, `changes`, `waiting`).


# Endpoints of changes that may wait for one another: see `facts.group_commit`.
CHANGES = frozenset(f"api/{name}" for name in ("batch", "facts", "bulk", "bulk_load", "bulk_delete"))
FEED = "api/changes"  # its readers may wait for the next change
CROWDED = "the server is overloaded; try again"
FULL = "too many large request bodies at the same time; try again"
WAITING = 16  # changes that a process works on at once; more wait in line
# Additional threads for each thread, for what takes long. A connection costs SQLite little, and PostgreSQL a process.
MORE = {"django.db.backends.sqlite3": 4, "django.db.backends.postgresql": 1}


class Intake:
    """The callable to which granian passes each request of a worker process; `threads` threads answer questions.

    While some of them take long, up to `MORE` additional threads for each may work. One process of a server also
    `keeps_up`: it runs the periodic chores (`upkeep`). Metrics tell the processes apart by their `number`.
    """

    def __init__(self, threads: int, keeps_up: bool = False, number: int = 1):
        memory.start(settings.MEMORY_BUDGET, replace_process)  # before threads start, each of which takes an arena
        more = threads * MORE[settings.DATABASES["default"]["ENGINE"]]
        self._slots = Slots(threads, more, at_once())
        turns.most_here = more  # so many may take long, or wait to: the other threads stay free
        self._changes = ChangeThreads(WAITING, threads)
        self._waiting = Waiting((threads + 1) // 2, self._changes)  # half of all, intake's own included
        self._lookout = Lookout()
        self._refusals = HeldRefusals()
        self._reading, self._parsing = budget.room_to_read(), budget.room_to_parse()
        if settings.HEALTH_LISTENER:
            host, port = settings.HEALTH_LISTENER.split()
            start_listener(host, int(port), health_application(self._lookout), "health", reuse_port=True)
        if settings.METRICS_FOLDER:
            pools = {"questions": self._slots, "changes": self._changes, "feed": self._waiting}
            import_string("authz_project.metrics.start")(number, pools)
        start_watch()
        begin_logs()
        begin_traces()
        if "postgresql" in settings.DATABASES["default"]["ENGINE"]:
            import_module("authz_project.server.database_waits").start()  # by name: it imports PostgreSQL's driver
        if keeps_up:
            start_upkeep()

    def __call__(self, arrived: Any) -> None:
        """Take a request from granian. An exception is logged and answered here, since granian would lose it."""
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
        if length != 0 and self._threads_for(scope.path).is_crowded:  # its body is not even read
            is_large = length is None or length > SMALL  # a small one is taken, for a retry on this connection
            self._refusals.send_later(partial(_refuse, scope, protocol, 503, CROWDED, close=is_large))
            return
        environ = environ_of(scope)
        if length == 0:
            _note_waiting(environ)
            waits = _may_wait(environ)
            if not (waits and self._waiting.do(answer, environ | {MAY_WAIT: True}, io.BytesIO(), 0, protocol)):
                self._do(self._slots, scope, protocol, answer, environ, io.BytesIO(), 0, protocol)
            return
        limit = quick_allowance(environ)
        if length is not None and length > largest():
            _refuse(scope, protocol, 413, too_large().message)
        elif limit == largest() or (length is not None and length <= limit):
            self._read(scope, protocol, environ, length, limit)
        elif not self._slots.do(self._admit, scope, protocol, environ, length):
            _refuse(scope, protocol, 503, CROWDED)

    def _threads_for(self, path: str) -> Slots | ChangeThreads:
        return self._changes if path.lstrip("/") in CHANGES else self._slots

    def _do(
        self,
        threads: Slots | ChangeThreads,
        scope: Scope,
        protocol: HTTPProtocol,
        work: Callable[..., None],
        *its: object,
    ) -> bool:
        """Give the work to the threads and return True, or have 503 answered and return False.

        All of the request has arrived by then, so the connection stays open, and the client can retry on it.
        """
        is_begun = threads.do(work, *its)
        if not is_begun:
            self._refusals.send_later(partial(say, scope, protocol, 503, CROWDED))
        return is_begun

    def _admit(self, scope: Scope, protocol: HTTPProtocol, environ: Environ, length: int | None) -> None:
        """Ask the database how much this caller may send, and read it. A refused caller is answered without it."""
        try:
            limit = allowance(environ)
        except (KeyRefused, Error) as reason:
            answer(environ, Withheld(reason), 1, protocol, close=True)
            Rest(protocol)
        except Exception as error:
            say_broken(scope, protocol, error)
        else:
            self._read(scope, protocol, environ, length, limit)

    def _read(self, scope: Scope, protocol: HTTPProtocol, environ: Environ, length: int | None, limit: int) -> None:
        """Read the body. A large one waits until there is room for it, and meanwhile nothing of it is in memory."""
        size = limit if length is None else length
        if size > limit:
            _refuse(scope, protocol, 413, _long(limit))
            return
        body = _Held(size if size > SMALL else 0, self._reading, self._parsing)
        threads = self._threads_for(environ["PATH_INFO"])
        done = partial(self._arrived, threads, scope, protocol, environ, body)
        failed = partial(self._fail, scope, protocol, body, limit)
        if limit == largest():  # not a stranger's: it may take its time to send the body
            in_use.add(scope.client)
        if length is not None and length <= SMALL:
            Whole(protocol, length, done, failed)
        elif not body.size:
            Body(protocol, length, limit, done, failed)
        else:
            begin = partial(Body, protocol, length, limit, done, failed)
            refuse = partial(_refuse, scope, protocol, 503, FULL)
            body.wait_to_be_read(begin, partial(_end, scope, body, refuse))

    def _arrived(
        self,
        threads: Slots | ChangeThreads,
        scope: Scope,
        protocol: HTTPProtocol,
        environ: Environ,
        body: _Held,
        text: bytes,
    ) -> None:
        """Have the request answered, once there is room for all that is made of a large body."""
        if len(text) <= SMALL:
            body.end()
            self._begin(threads, scope, protocol, environ, body, text)
            return
        size = memory.size_of_parsed(text)
        if threads is self._slots:  # a question's ids become values of a statement, and perhaps part of the answer
            size += memory.COPIES * len(text)
        if 0 < budget.most < size:
            _end(scope, body)
            say(scope, protocol, 413, str(NeedsTooMuchMemory(budget.most)))
            return
        body.wait_to_be_parsed(
            size,
            partial(self._begin, threads, scope, protocol, environ, body, text),
            partial(_end, scope, body, partial(say, scope, protocol, 503, FULL)),
        )

    def _begin(
        self,
        threads: Slots | ChangeThreads,
        scope: Scope,
        protocol: HTTPProtocol,
        environ: Environ,
        body: _Held,
        text: bytes,
    ) -> None:
        is_begun = False
        _note_waiting(environ)
        try:
            is_begun = self._do(threads, scope, protocol, self._answer, environ, protocol, body, text)
        finally:
            if not is_begun:
                _end(scope, body)

    def _answer(self, environ: Environ, protocol: HTTPProtocol, body: _Held, text: bytes) -> None:
        try:
            answer(environ, io.BytesIO(text), len(text), protocol)
        finally:  # also where granian raises what is no Exception
            body.end()

    def _fail(self, scope: Scope, protocol: HTTPProtocol, body: _Held, limit: int, how: str) -> None:
        _end(scope, body)
        match how:
            case "long":
                _refuse(scope, protocol, 413, _long(limit))
            case "late":
                message = f"the request body did not arrive within {BODY_TIMEOUT:g} seconds"
                say(scope, protocol, 408, message, close=True)
            case "too much":
                say(scope, protocol, MEMORY.status, MEMORY.message)
            case "broken":
                say(scope, protocol, 400, "the request body is incomplete", close=True)


class _Held:
    """What a body takes of the memory budget: nothing if it is small, since each connection has at most one."""

    def __init__(self, size: int, reading: Room, parsing: Room):
        self.size = size
        self._reading, self._parsing = reading, parsing
        self._parsed = 0

    def wait_to_be_read(self, begin: Callable[[], object], refuse: Callable[[], object]) -> None:
        def refused() -> None:
            self.size = 0
            refuse()

        self._reading.enter(self.size, begin, refused, settings.WRITE_TIMEOUT)

    def wait_to_be_parsed(self, size: int, begin: Callable[[], object], refuse: Callable[[], object]) -> None:
        """Go from one room to the other: the body as it was read is part of what is made of it."""

        def begun() -> None:
            self._parsed = size
            self._leave_reading()
            begin()

        def refused() -> None:
            self._leave_reading()
            refuse()

        self._parsing.enter(size, begun, refused, settings.WRITE_TIMEOUT)

    def end(self) -> None:
        """Give back what it takes."""
        self._leave_reading()
        if self._parsed:
            size, self._parsed = self._parsed, 0
            self._parsing.leave(size)

    def _leave_reading(self) -> None:
        if self.size:
            size, self.size = self.size, 0
            self._reading.leave(size)


def _end(scope: Scope, body: _Held, refuse: Callable[[], object] | None = None) -> None:
    """Note that a request is over without having been answered by the application; then refuse it."""
    in_use.discard(scope.client)
    body.end()
    if refuse is not None:
        refuse()


def replace_process() -> None:
    """Have this process drain and end, as at SIGTERM; its parent starts another one in its place."""
    log.error("out of memory: this process exits and will be replaced")
    os.kill(os.getpid(), signal.SIGTERM)


def at_once() -> int:
    """Return how many threads work at the same time while none of them takes long; 0 means all.

    While PostgreSQL answers one thread, others can work. SQLite mostly answers in less time than it takes to give
    another thread the interpreter. Where it takes longer, the thread lets the next one begin
    (`policy/ground/waking.py`).
    """
    return 1 if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3" else 0


def _note_waiting(environ: Environ) -> None:
    """Note, for observers, that the request waits for a thread from now on."""
    if spans.is_on:
        environ[spans.WAITS_SINCE] = spans.now()


def _may_wait(environ: Environ) -> bool:
    return environ["PATH_INFO"].lstrip("/") == FEED and "wait=" in environ["QUERY_STRING"]


def _length(scope: Scope) -> int | None:
    """Return the length of the body, 0 where the request gives none; None for one that comes in chunks."""
    if scope.headers.get("transfer-encoding") is not None:
        return None
    return int(scope.headers.get("content-length", "0").partition(",")[0])  # granian checks that repeated ones agree


def _refuse(scope: Scope, protocol: HTTPProtocol, status: int, message: str, *, close: bool = True) -> None:
    """Answer with an error before the body was read, and drop what still comes of it."""
    say(scope, protocol, status, message, close=close)
    Rest(protocol)


def _long(limit: int) -> str:
    return (
        too_large().message
        if limit == largest()
        else (f"the request body is larger than {limit:,} bytes; log in first")
    )
