"""Bodies, read while no thread waits for them, and only for so long."""

import threading
import time
from asyncio import Future
from collections.abc import Callable

from granian._granian import RSGIHTTPProtocol as HTTPProtocol
from granian._granian import RSGIProtocolClosed as ProtocolClosed

from policy.configured import configured

LEAST_RATE = 1 << 16  # bytes a second: what a body has to come at once `BODY_TIMEOUT` is over
LINGER = 2.0  # seconds for which a refused body is still taken, so that its sender hears the refusal
LINGER_SIZE = 1 << 26  # bytes
_TICK = 0.25  # seconds between looks at what is late


class Whole:
    """A small body that is wanted and whose length is known, taken when all of it is there: most are."""

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
            body.cancel()  # it then arrives, as cancelled

    def _arrived(self, body: Future[bytes]) -> None:
        _open.discard(self)
        self._body = None
        if body.cancelled():
            self._failed("late")
            return
        try:
            whole = body.result()
        except ProtocolClosed:
            self._failed("broken")
        else:
            self._done(whole)


class _Reading:
    """A body on its way, chunk by chunk. Chunks come one after the other."""

    def __init__(self, protocol: HTTPProtocol):
        self.size = 0
        self.started = time.monotonic()
        self._chunks = protocol.__aiter__()
        self._chunk: Future[bytes] | None = None
        _open.add(self)
        self._go_on()

    def take(self, part: bytes) -> bool:
        """Whether more is wanted. After the last part there is an empty one."""
        raise NotImplementedError

    def late(self) -> None:
        raise NotImplementedError

    def allowed(self) -> float:
        """Seconds from the start on."""
        raise NotImplementedError

    def expire(self, now: float) -> None:
        chunk = self._chunk
        if chunk is not None and now - self.started > self.allowed():
            chunk.cancel()  # it then arrives, as cancelled

    def _go_on(self) -> None:
        """Take what is there, and come back for what is not."""
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


class Body(_Reading):
    """A body that is wanted: `done` is told it, or `failed` that it is "long", "late" or "broken"."""

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
            self._done(b"".join(self._parts))
        elif not part:
            self._failed("broken")
        else:
            return True
        return False

    def _is_whole(self) -> bool:
        """At the end of chunks: a body that broke off ends with an empty part as well, but not its stream."""
        if self._length is not None:
            return False
        try:
            self._chunks.__anext__().cancel()
        except StopAsyncIteration:
            return True
        return False


class Rest(_Reading):
    """A body that nobody wants, taken for a while: closed at once, the connection would take the answer with it."""

    def allowed(self) -> float:
        return LINGER

    def late(self) -> None:
        pass

    def take(self, part: bytes) -> bool:
        return bool(part) and self.size < LINGER_SIZE


_open: set[Whole | _Reading] = set()


def _allowed(size: int) -> float:
    """Seconds for so much of a body to arrive."""
    return configured.BODY_TIMEOUT + size / LEAST_RATE if configured.BODY_TIMEOUT else float("inf")


def start_watch() -> None:
    threading.Thread(target=_watch, name="late bodies", daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(_TICK)
        _end_what_is_late()


def _end_what_is_late() -> None:
    """By itself, for its variables to go: granian closes a connection when nobody holds the body any more."""
    now = time.monotonic()
    for reading in tuple(_open):
        reading.expire(now)
