"""A line for each request: what was asked of whom, how it ended, how long it took. Nothing that the caller chose but
the request's id, which is of printable signs.

An answer waits for nothing here: what is seen goes into a queue with room for so many, and a thread writes it down a
few times a second. What has no room is left out, counted and told.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import orjson

from authz_project.logs.lines import most_at_once, write
from authz_project.observing import Seen
from policy.clock import text_of

log = logging.getLogger("authz.logs")

LOGGER = "authz.access"
ROOM = 20_000  # requests that wait to be written down
PAUSE = 0.1  # seconds between writes
COMPLAINT_EVERY = 60.0  # seconds

Line = Callable[[Seen], bytes]


def plain(seen: Seen) -> bytes:
    """Return the line for people."""
    at = seen.at + seen.seconds
    when = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))},{int(at * 1000) % 1000:03d}"
    whose = f" environment={seen.environment} key={seen.key_id}" if seen.key_id is not None else ""
    took = int(seen.seconds * 1_000_000)
    said = f"{seen.method} {seen.endpoint} {seen.status} {took}us request={seen.request_id}{whose}"
    return f"{when} INFO {LOGGER} {said}\n".encode()


def json(seen: Seen) -> bytes:
    """Return the line for programs, put together of pieces that are JSON: most are the same for many lines."""
    at = int((seen.at + seen.seconds) * 1_000_000)
    return (
        f'{{"time":"{_second(at // 1_000_000)}.{at % 1_000_000:06d}Z",'
        f"{_about(seen.method, seen.endpoint, seen.status, seen.environment, seen.key_id)}"
        f',"request_id":{orjson.dumps(seen.request_id).decode()},"microseconds":{int(seen.seconds * 1_000_000)}}}\n'
    ).encode()


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return text_of(seconds * 1_000_000)[:19]


@lru_cache(maxsize=1_000)
def _about(method: str, endpoint: str, status: int, environment: str, key_id: int | None) -> str:
    said = {"level": "INFO", "logger": LOGGER, "message": f"{method} {endpoint} {status}"}
    return orjson.dumps(said | _whose(environment, key_id) | _what(method, endpoint, status)).decode()[1:-1]


def _whose(environment: str, key_id: int | None) -> dict[str, object]:
    return {"environment": environment, "key_id": key_id} if key_id is not None else {}


def _what(method: str, endpoint: str, status: int) -> dict[str, object]:
    return {"method": method, "endpoint": endpoint, "code": status}


def facts_of(seen: Seen) -> dict[str, object]:
    """Return what lines about a request have in common."""
    return {
        "request_id": seen.request_id,
        **_whose(seen.environment, seen.key_id),
        **_what(seen.method, seen.endpoint, seen.status),
        "microseconds": int(seen.seconds * 1_000_000),
    }


class AccessLog:
    """An observer."""

    def __init__(self, line: Line):
        self._line = line
        self._waiting: deque[Seen] = deque()
        self._left_out, self._complained = 0, float("-inf")
        self._writing = threading.Lock()
        threading.Thread(target=self._run, name="access log", daemon=True).start()
        atexit.register(self.flush)

    def __call__(self, seen: Seen) -> None:
        if len(self._waiting) < ROOM:
            self._waiting.append(seen)
        else:
            self._left_out += 1

    def flush(self) -> None:
        """Write what is there. Never raises an `Exception`."""
        with self._writing:
            try:
                for piece in pieces(self._lines(), most_at_once()):
                    write(piece)
            except OSError as reason:
                log.error("the access log cannot be written: %s", reason)
            except Exception:
                log.exception("the access log cannot be written")

    def _lines(self) -> list[bytes]:
        """Of all that wait. One that cannot be built costs no other."""
        lines = []
        for _ in range(len(self._waiting)):
            try:
                lines.append(self._line(self._waiting.popleft()))
            except Exception:
                log.exception("a request is not in the access log")
        return lines

    def complain(self) -> None:
        """Say how many requests are not in the log, once a minute."""
        now = time.monotonic()
        if self._left_out and now - self._complained > COMPLAINT_EVERY:
            left_out, self._left_out, self._complained = self._left_out, 0, now
            log.error("%s requests are not in the access log: they came faster than it could be written", left_out)

    def _run(self) -> None:
        while True:
            time.sleep(PAUSE)
            self.flush()
            self.complain()


def pieces(lines: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Put whole lines together, so many bytes at once."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        if size + len(line) > most and piece:
            yield b"".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    if piece:
        yield b"".join(piece)
