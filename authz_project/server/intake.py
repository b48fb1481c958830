"""Decides what happens to a request that arrives: it is refused, its body is read, or a thread answers it.

Nothing here waits, since granian's own thread delivers the requests. Bodies are read by callbacks (`reading`), and what
asks the database runs on other threads (`slots`, `changes`, `waiting`).
"""

from __future__ import annotations

import io
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import Error
from django.utils.module_loading import import_string
from granian._granian import RSGIHTTPProtocol as HTTPProtocol
from granian.rsgi import Scope

from authz_project import wsgi  # noqa: F401  first: it makes Django ready for the rest
from authz_project.database import HEALTH, MEMORY, READINESS
from authz_project.errors import too_large
from authz_project.logs.access import begin as begin_logs
from authz_project.route import Environ
from authz_project.server.bodies import (
    BODY_TIMEOUT,
    SMALL,
    Body,
    Rest,
    Whole,
    allowance,
    largest,
    quick_allowance,
    start_watch,
)
from authz_project.server.connection_limits import in_use
from authz_project.server.exchange import Withheld, answer, environ_of, say, say_broken, say_readiness
from authz_project.server.lookout import Lookout, health_application
from authz_project.server.upkeep import start_upkeep
from authz_project.server.workers import ChangeThreads, HeldRefusals, Slots, Waiting
from authz_project.side_listener import start_listener
from authz_project.traces import begin as begin_traces
from checks.asking.turns import turns
from policy.endpoint import MAY_WAIT
from policy.errors import KeyRefused
from policy.ground import memory, spans
from policy.ground.memory import NeedsTooMuchMemory, Room, budget

log = logging.getLogger("authz.server")

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
