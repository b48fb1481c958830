"""The access log and the slow query log."""

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import orjson
from django.conf import settings

from authz_project.log_formats import FACTS, most_at_once, write
from authz_project.observers import AnsweredRequest, observe
from checks.asking.advice import redacted, redacted_root
from checks.asking.question import Outline, StatementKey, tables_read
from policy.core.clock import text_of
from policy.core.threads import start_thread

# ---- access log: one line per request, with endpoint, caller, status and duration ---------------------------------
# Of the values that callers choose, a line has only the request id, which is printable. No response waits for the log:
# requests go into a bounded queue, and a thread writes their lines several times a second. If the queue is full,
# requests are dropped, and the log says how many.

log = logging.getLogger("authz.logs")

LOGGER = "authz.access"
ROOM = 20_000  # capacity of the queue, in requests
PAUSE = 0.1  # seconds between writes
COMPLAINT_EVERY = 60.0  # seconds

LineFormat = Callable[[AnsweredRequest], bytes]


def plain(seen: AnsweredRequest) -> bytes:
    milliseconds = int((seen.at + seen.seconds) * 1_000)
    when = f"{_local_second(milliseconds // 1_000)},{milliseconds % 1_000:03d}"
    whose = f" environment={seen.environment} key={seen.key_id}" if seen.key_id is not None else ""
    took = int(seen.seconds * 1_000_000)
    said = f"{seen.method} {seen.endpoint} {seen.status} {took}us request={seen.request_id}{whose}"
    return f"{when} INFO {LOGGER} {said}\n".encode()


def json(seen: AnsweredRequest) -> bytes:
    """Return the line as JSON, built from cached pieces of JSON that many lines share."""
    endpoint, method, status, _, seconds, began, request_id, environment, key_id, _, _ = seen
    second, microseconds = divmod(int((began + seconds) * 1_000_000), 1_000_000)
    return b'{"time":"%b.%06dZ",%b,"request_id":%b,"microseconds":%d}\n' % (
        _second(second),
        microseconds,
        _about(method, endpoint, status, environment, key_id),
        orjson.dumps(request_id),
        seconds * 1_000_000,
    )


@lru_cache(maxsize=4)
def _local_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


@lru_cache(maxsize=4)
def _second(seconds: int) -> bytes:
    return text_of(seconds * 1_000_000)[:19].encode()


@lru_cache(maxsize=1_000)
def _about(method: str, endpoint: str, status: int, environment: str, key_id: int | None) -> bytes:
    said = {"level": "INFO", "logger": LOGGER, "message": f"{method} {endpoint} {status}"}
    return orjson.dumps(said | _whose(environment, key_id) | _what(method, endpoint, status))[1:-1]


def _whose(environment: str, key_id: int | None) -> dict[str, object]:
    return {"environment": environment, "key_id": key_id} if key_id is not None else {}


def _what(method: str, endpoint: str, status: int) -> dict[str, object]:
    return {"method": method, "endpoint": endpoint, "code": status}


def facts_of(seen: AnsweredRequest) -> dict[str, object]:
    """Return the fields that all log lines about a request have in common."""
    return {
        "request_id": seen.request_id,
        **_whose(seen.environment, seen.key_id),
        **_what(seen.method, seen.endpoint, seen.status),
        "microseconds": int(seen.seconds * 1_000_000),
    }


class AccessLog:
    """An observer that queues requests; a thread writes their lines."""

    def __init__(self, line: LineFormat):
        self._line = line
        self._waiting: deque[AnsweredRequest] = deque()
        self._left_out, self._complained = 0, float("-inf")
        self._writing = threading.Lock()
        start_thread("access log", self._run)
        atexit.register(self.flush)

    def __call__(self, seen: AnsweredRequest) -> None:
        if len(self._waiting) < ROOM:
            self._waiting.append(seen)
        else:
            self._left_out += 1

    def flush(self) -> None:
        """Write the lines of all queued requests. Never raises an `Exception`."""
        with self._writing:
            try:
                for piece in pieces(self._lines(), most_at_once()):
                    write(piece)
            except OSError as reason:
                log.error("cannot write the access log: %s", reason)
            except Exception:
                log.exception("cannot write the access log")

    def _lines(self) -> list[bytes]:
        """Empty the queue and return its requests' lines. One that cannot be formatted is logged and skipped."""
        lines, line_of, next_one = [], self._line, self._waiting.popleft
        for _ in range(len(self._waiting)):
            try:
                lines.append(line_of(next_one()))
            except Exception:
                log.exception("cannot log a request to the access log")
        return lines

    def complain(self) -> None:
        """Log how many requests were dropped, at most once a minute."""
        now = time.monotonic()
        if self._left_out and now - self._complained > COMPLAINT_EVERY:
            left_out, self._left_out, self._complained = self._left_out, 0, now
            log.error("dropped %s access log entries: the log cannot keep up", left_out)

    def _run(self) -> None:
        while True:
            time.sleep(PAUSE)
            self.flush()
            self.complain()


def pieces(lines: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield chunks of whole lines, of at most `most` bytes each; a longer line is a chunk of its own."""
    text, start = b"".join(lines), 0
    while start < len(text):
        end = text.rfind(b"\n", start, start + most) + 1 or text.index(b"\n", start) + 1
        yield text[start:end]
        start = end


# ---- slow query log -----------------------------------------------------------------------------------------------
# Logs slow queries: their redacted form without ids, how many tables they read, and where the time went.

_slow_log = logging.getLogger("authz.slow")

SHOWN = 5  # queries of one request
LONGEST = 500  # characters of one query
QUESTIONS = frozenset({"compile", "found"})  # parts that only queries have


def tell_if_question(seen: AnsweredRequest) -> None:
    """Log the request if it was a query. An observer that is called only for slow requests."""
    keys = dict.fromkeys(part.facts["key"] for part in seen.parts if part.name in QUESTIONS)
    if not keys:
        return
    shapes, reads = _shapes(keys), _reads(keys)
    took = {name: sum(part.seconds for part in seen.parts if part.name == name) for name in ("compile", "statement")}
    statements = [part for part in seen.parts if part.name == "statement"]
    rows = sum(part.facts.get("rows", 0) for part in statements)
    shown = " | ".join(shapes[:SHOWN]) + (f" | and {len(shapes) - SHOWN} more" if len(shapes) > SHOWN else "")
    _slow_log.warning(
        "slow query: %s %d took %.0f ms, of which %.0f ms compiling and %.0f ms in %d statements (%d rows); plan "
        "reads %s tables: %s",
        seen.endpoint, seen.status, seen.seconds * 1000, took["compile"] * 1000, took["statement"] * 1000,
        len(statements), rows, "?" if reads is None else reads, shown,
        extra={
            FACTS: facts_of(seen)
            | {
                "shapes": shapes[:SHOWN],
                "shapes_left_out": max(0, len(shapes) - SHOWN),
                "plan_reads": reads,
                "compile_microseconds": int(took["compile"] * 1_000_000),
                "statement_microseconds": int(took["statement"] * 1_000_000),
                "statements": len(statements),
                "rows": rows,
            }
        },
    )  # fmt: skip


def _shapes(keys: dict[object, None]) -> list[str]:
    found: dict[str, None] = {}
    for key in keys:
        if isinstance(key, StatementKey):
            found |= dict.fromkeys(redacted_questions(key))
    return [each if len(each) <= LONGEST else f"{each[:LONGEST]}…" for each in found]


def _reads(keys: dict[object, None]) -> int | None:
    """Return the number of tables that the largest plan still in the caches reads; None if there is none."""
    known = [tables_read(key) for key in keys if isinstance(key, StatementKey)]
    return max((reads for reads in known if reads is not None), default=None)


# ---- startup ------------------------------------------------------------------------------------------------------


def begin() -> None:
    """Set up logging of warnings, crashed threads, requests and slow queries. Call it once per server process."""
    logging.captureWarnings(True)
    threading.excepthook = _ended
    if logging.getLogger(LOGGER).isEnabledFor(logging.INFO):
        observe(AccessLog(json if settings.LOG_FORMAT == "json" else plain))
    if settings.SLOW_QUESTION_MS:
        observe(tell_if_question, settings.SLOW_QUESTION_MS / 1000)


def _ended(thread: threading.ExceptHookArgs) -> None:
    """Log that a thread ended with an uncaught exception."""
    if thread.exc_type is SystemExit or thread.exc_value is None:
        return
    name = thread.thread.name if thread.thread is not None else "?"
    logging.getLogger("authz.server").critical("the thread `%s` has ended", name, exc_info=thread.exc_value)


def redacted_questions(key: StatementKey) -> list[str]:
    """Return a statement's questions as `allow(User _, String "read", Repository _)`, with only the policy's names."""
    local = " in SQL" if key.tables is not None else ""
    return [f"{redacted(each) if isinstance(each, Outline) else redacted_root(each)}{local}" for each in key.asked]
