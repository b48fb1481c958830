"""Read the bodies of requests: how large they may be, and by when they must arrive."""

import logging
import threading
import time
from asyncio import Future
from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest, parse_cookie
from granian._granian import RSGIHTTPProtocol as HTTPProtocol
from granian._granian import RSGIProtocolClosed as ProtocolClosed

from authz_project.database import refresh_connection
from authz_project.keys import caller_of_token, is_remembered, token_of
from authz_project.route import Environ
from policy.ground.memory import budget, exhausted

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

log = logging.getLogger("authz.server")

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
    threading.Thread(target=_watch, name="late bodies", daemon=True).start()


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
