"""The decision log: the format of its lines, and the thread that writes them."""

import atexit
import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from random import random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from policy.active import Caller, caller_of_hash
from policy.core import spans
from policy.core.clock import microseconds_of, text_of, timeline
from policy.core.config import STANDARD_OUTPUT, settings
from policy.core.memory import Recent
from policy.core.threads import start_thread
from policy.errors import AuthzError
from policy.models import PolicyVersion

# ---- memo ---------------------------------------------------------------------------------------------------------
# Memoizes a function of response bodies: of cached JSON, which is the same object every time, and of plain yes and no.

_MOST = 8 << 20  # bytes of memoized bodies
_MEMO_OVERHEAD = 500

Remembered = TypeVar("Remembered")


class Memo(Generic[Remembered]):
    """Calls `look` on a body, but only once for the same JSON (bytes), or for the same yes or no."""

    def __init__(self, look: Callable[[object], Remembered]):
        self._look = look
        self._found: Recent[bytes, Remembered] = Recent(_MOST, lambda body, _: min(len(body) + _MEMO_OVERHEAD, _MOST))
        self._of_decisions: dict[bool, Remembered] = {}

    def __call__(self, answer: object) -> Remembered:
        if isinstance(answer, bytes):
            found = self._found.get(answer)
            if found is None:
                found = self._look(orjson.loads(answer))
                self._found.store(answer, found)
            return found
        if not isinstance(answer, dict) or len(answer) != 1 or "allowed" not in answer:
            return self._look(answer)
        is_allowed = answer["allowed"]
        found = self._of_decisions.get(is_allowed)
        if found is None:
            found = self._of_decisions[is_allowed] = self._look(answer)
        return found


# ---- What the decision log keeps of a response: enough to tell whether another one is the same --------------------
# {"allowed": true}                                           of a decision
# {"count": 2, "results": ["a", "b"]}                         of a list; of a long one the first, and a digest of all
# {"count": 3, "allowed": 1, "results": [true, false, …]}     of many decisions, also AuthZEN's
# {"characters": 120, "digest": "5f1c…"}                      of SQL
# {"recorded": true}                                          of an event of an agent, which nothing is decided about

SHOWN = 20  # results of a list to keep

Summary = dict[str, Any]
RECORDED: Summary = {"recorded": True}


def _results_of(body: Any) -> Any:
    """Return the decision, the decisions or the results in a response body; None if it is SQL."""
    if isinstance(body, list):  # of /bulk_actions
        return [each["results"] for each in body]
    if "evaluations" in body:
        return [each["decision"] for each in body["evaluations"]]
    return body.get("allowed", body.get("decision", body.get("results")))


def summary_of(body: Any) -> Summary:
    """Return the summary of a response body."""
    if body is RECORDED:
        return RECORDED
    results = _results_of(body)
    if results is None:
        return {"characters": len(body["sql"]), "digest": _digest(body["sql"].encode())}
    if not isinstance(results, list):
        return {"allowed": results}
    page = body if isinstance(body, dict) else {}
    goes_on = page.get("next_page_token") or page.get("page", {}).get("next_token")
    return _listed(results) | ({"has_next_page": True} if goes_on else {})


def _listed(results: list[Any]) -> Summary:
    found: Summary = {"count": len(results)}
    if results and isinstance(results[0], bool):
        found["allowed"] = results.count(True)
    found["results"] = results[:SHOWN]
    if len(results) > SHOWN:
        found["digest"] = _digest(orjson.dumps(results))
    return found


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()[:32]


def is_denial(summary: Summary) -> bool:
    """Return whether something that was asked for is denied, or nothing was found."""
    allowed, count = summary.get("allowed"), summary.get("count")
    if count is None:
        return allowed is False
    return count == 0 or (allowed is not None and allowed < count) or [] in summary["results"]


def shown(summary: Summary) -> str:
    """Return the summary in a few words: `allowed`, `2 found`, `1 of 3 allowed`."""
    allowed, count = summary.get("allowed"), summary.get("count")
    if summary == RECORDED:
        return "recorded"
    if count is None:
        return f"SQL of {summary['characters']:,} characters" if allowed is None else "allowed" if allowed else "denied"
    return f"{count:,} found" if allowed is None else f"{allowed:,} of {count:,} allowed"


def is_summary(found: dict[str, Any]) -> bool:
    """Return whether an object has the form of a summary."""
    if "count" in found:
        return isinstance(found["count"], int) and isinstance(found.get("results"), list)
    return isinstance(found.get("allowed"), bool) or isinstance(found.get("characters"), int) or found == RECORDED


# ---- counts of decisions ---------------------------------------------------------------------------------------------

LogTally = dict[str, int]  # `allowed` and `denied`; or `rows` of a list; empty for SQL

_ALLOWED, _DENIED = {"allowed": 1, "denied": 0}, {"allowed": 0, "denied": 1}  # shared, so never modified


def tally_of(body: Any) -> LogTally:
    """Return the counts of a response body."""
    results = _results_of(body)
    if results is None:
        return {}
    if not isinstance(results, list):
        return _ALLOWED if results is True else _DENIED
    if results and isinstance(results[0], bool):
        allowed = sum(each is True for each in results)
        return {"allowed": allowed, "denied": len(results) - allowed}
    return {"rows": sum(map(len, results)) if isinstance(body, list) else len(results)}


# ---- writer -------------------------------------------------------------------------------------------------------
# The queue of the decision log, and the thread that writes whole lines, even if several processes append to a file.
#
# No request waits for the queue: an entry for which there is no room is dropped and counted. The file is opened for
# each write, so that a new one is created after the old one was moved away (log rotation).

Queued = TypeVar("Queued")  # an entry that is not formatted yet


ROOM = 32 << 20  # maximum size of the queue in bytes
_PAUSE = 0.1  # seconds between writes
_COMPLAINT_EVERY = 60.0  # seconds
_LOCKED_WITHIN = 1.0  # seconds


def _notice_lines(**numbers: int) -> None:
    if spans.is_on and any(numbers.values()):
        spans.note("log", **numbers)


class Writer(Generic[Queued]):
    """A queue, and a thread that empties it, which starts with the first entry."""

    def __init__(self, path: str, line_of: Callable[[Queued], bytes | None]):
        self._path, self._line_of = path, line_of
        self._waiting: list[Queued] = []
        self._size = 0
        self._left_out, self._reason = 0, ""
        self._complained = -_COMPLAINT_EVERY
        self._is_torn = self._was_torn = False  # whether the last line may be incomplete: now; before the latest write
        self._written = 0  # lines
        self._changing, self._writing = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, entry: Queued, size: int) -> None:
        with self._changing:
            if self._size + size > ROOM:
                self._left_out, self._reason = self._left_out + 1, "the log cannot keep up"
                _notice_lines(dropped=1)
                return
            self._waiting.append(entry)
            self._size += size
            if self._thread is None:
                self._start()

    def leave_out(self, number: int, reason: Exception) -> None:
        _notice_lines(dropped=number)
        with self._changing:
            self._left_out, self._reason = self._left_out + number, f"{type(reason).__name__}: {reason}"
            if self._thread is None:
                self._start()

    def flush(self) -> None:
        """Write all that is queued. Never raises an `Exception`."""
        with self._writing:
            with self._changing:
                entries, self._waiting, self._size = self._waiting, [], 0
            lines: list[bytes] = []
            for entry in entries:
                try:
                    if line := self._line_of(entry):
                        lines.append(line)
                except Exception as reason:
                    self.leave_out(1, reason)
            before = self._written
            try:
                self._write(lines)
            except OSError as reason:
                self.leave_out(len(lines) - (self._written - before), reason)
            _notice_lines(written=self._written - before)

    def complain(self) -> None:
        """Log how many decisions were dropped, at most once a minute."""
        with self._changing:
            now = time.monotonic()
            if not self._left_out or now - self._complained < _COMPLAINT_EVERY:
                return
            left_out, self._left_out, self._complained = self._left_out, 0, now
        what = "1 decision" if left_out == 1 else f"{left_out:,} decisions"
        log.error("dropped %s from the decision log: %s", what, self._reason)

    def _start(self) -> None:
        self._thread = start_thread("decision log", self._run)
        atexit.register(self._end)

    def _run(self) -> None:
        while True:
            time.sleep(_PAUSE)
            self.flush()
            self.complain()

    def _end(self) -> None:
        self.flush()
        self._complained = -_COMPLAINT_EVERY
        self.complain()

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if self._path == STANDARD_OUTPUT:
            for line in lines:  # a pipe accepts a short line atomically
                self._put_out(1, line)
                self._written += 1
            return
        file = opened(self._path)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode):
                self._append(file, b"".join(lines))
            else:
                self._put_out(file, b"".join(lines))
            self._written += len(lines)
        finally:
            os.close(file)  # also releases its lock

    def _append(self, file: int, text: bytes) -> None:
        """Append to a file. If the disk is full, keep the lines that were written whole, and truncate the rest."""
        is_alone = _locked(file)
        start = os.fstat(file).st_size
        try:
            self._put_out(file, text)
        except OSError:
            added = os.fstat(file).st_size - start
            whole = text.rfind(b"\n", 0, max(0, added)) + 1
            if is_alone and 0 <= added <= len(text) and not self._was_torn:
                os.ftruncate(file, start + whole)
                self._is_torn = False
                self._written += text.count(b"\n", 0, whole)
            raise

    def _put_out(self, file: int, text: bytes) -> None:
        self._was_torn = self._is_torn
        left = memoryview(b"\n" + text if self._is_torn else text)
        self._is_torn = True
        while left:
            left = left[os.write(file, left) :]
        self._is_torn = False


def _locked(file: int) -> bool:
    """Lock the file, so that no other process appends to an incomplete line; return whether that succeeded.

    It fails on a file system without locks, or if another process does not release its lock in time.
    """
    until = time.monotonic() + _LOCKED_WITHIN
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_LOCKED_WITHIN / 100)
        except OSError:
            return False


def opened(path: str) -> int:
    """Open the file for appending. If it is created, only its owner can read it.

    A pipe that nobody reads is an error; without `O_NONBLOCK`, this would wait for a reader, even at exit.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    os.set_blocking(file, True)
    return file


# ---- Entries and their lines --------------------------------------------------------------------------------------
# A request only queues an entry, and waits for nothing. Several times a second, another thread formats the queued
# entries and writes them (`Writer`).

log = logging.getLogger("authz.decisions")

_OVERHEAD, _A_RESULT = 1_000, 100  # bytes: minimum size of an entry, and approximate size of a result
_MOST_NAMES = 10_000
_CONTEXT = "context_facts"
_AUTHZEN = "/access/"  # prefix of its paths
EVENTS = "agents/event/"  # prefix of the endpoints that record events of agents, below /api
_NAMES_OF_EVENT = ("agent_id", "session_id", "users", "tool_name", "timestamp")  # the rest is what was said or done
_LARGEST_MEMBER = 10_000  # bytes of a member of an event, as JSON
_PUBLISHED = b',"is_published_client":true'


class LogEntry(NamedTuple):
    """An answered question before it is formatted."""

    at: int  # nanoseconds since 1970
    began: float  # by `perf_counter`, like `ended`
    ended: float
    request_id: str
    environment_id: int
    key: str
    path: str
    question: bytes  # the request body
    is_published: bool  # whether a published client sent it: their lists have another form
    answer: object  # the response body, as an object or as JSON bytes
    revision: int
    policy_version: int | None
    is_drawn: bool  # whether the sample includes it


_new = tuple.__new__  # twice as fast as calling the class


def _size_of(question: bytes, answer: object) -> int:
    if isinstance(answer, bytes):
        return _OVERHEAD + len(question) + len(answer)
    results = (answer.get("results") or answer.get("evaluations")) if isinstance(answer, dict) else answer
    return _OVERHEAD + len(question) + (_A_RESULT * len(results) if isinstance(results, list) else 0)


# ---- called by endpoints -----------------------------------------------------------------------------------------


class LoggedRequest(Protocol):
    """What the log needs of a request (see `policy.endpoint`, which commands that only read the log do not import)."""

    id: str
    started: float
    headers: dict[str, Any]

    @property
    def body(self) -> bytes: ...

    @property
    def is_of_published_client(self) -> bool: ...


def note(request: LoggedRequest, who: Caller, answer: object, revision: int, version_id: int | None) -> None:
    """Queue an answered question if it is in the sample, or if denials are logged. Never raises an `Exception`."""
    if spans.is_on:
        _notice(answer)
    if writer is not None:
        _queue(writer, request, who, answer, revision, version_id)


def record(request: LoggedRequest, who: Caller, revision: int) -> bool:
    """Queue an event of an agent if it is in the sample; return whether there is a log."""
    if writer is not None:
        _queue(writer, request, who, RECORDED, revision, None)
    return writer is not None


def _queue(
    writer: Writer[LogEntry], request: LoggedRequest, who: Caller, answer: object, revision: int, version_id: int | None
) -> None:
    try:
        share = settings.DECISION_LOG_SAMPLE  # of all questions
        is_drawn = share >= 1 or random() < share  # noqa: S311  not a secret
        if is_drawn or settings.DECISION_LOG_DENIED:
            entry = _entry(request, who, answer, revision, version_id, is_drawn)
            writer.put(entry, _size_of(entry.question, answer))
    except Exception as reason:
        writer.leave_out(1, reason)


_part_of = Memo(lambda body: ("decision", 0.0, 0.0, tally_of(body)))


def _notice(answer: object) -> None:
    try:
        spans.add(_part_of(answer))
    except Exception:
        log.exception("cannot count a response")


def _entry(
    request: LoggedRequest, who: Caller, answer: object, revision: int, version_id: int | None, is_drawn: bool
) -> LogEntry:
    return _new(
        LogEntry,
        (
            time.time_ns(),
            request.started,
            time.perf_counter(),
            request.id,
            who.environment_id,
            who.author or _names.get(who.key_hash) or _read(who.key_hash, lambda each: caller_of_hash(each).author),
            request.headers["PATH_INFO"],
            request.body,
            request.is_of_published_client,
            answer,
            revision,
            None if version_id is None else _names.get(version_id) or _read(version_id, _number),
            is_drawn,
        ),
    )


# Authors by key, and numbers by version; they never change, except for a key's label.
_names: Recent[Any, Any] = Recent(_MOST_NAMES)
timeline.forgets(_names.clear)


def _read(key: Any, read: Callable[[Any], Any]) -> Any:
    found = read(key)
    _names.store(key, found)
    return found


def _number(version_id: int) -> int:
    return PolicyVersion.objects.values_list("number", flat=True).get(pk=version_id)


# ---- lines ---------------------------------------------------------------------------------------------------------


class _AnswerJson(NamedTuple):
    """The parts of a line that describe the answer."""

    text: bytes
    is_denial: bool


def line_of(entry: LogEntry) -> bytes | None:
    """Return the line with its newline; None if it is neither in the sample nor a denial.

    It is assembled from pieces of JSON, most of which are the same for many lines.
    """
    (
        at, began, ended, request_id, environment_id, key, path, question, is_published, answer, revision, version,
        is_drawn,
    ) = entry  # fmt: skip
    answer_json, is_denial = _answer_json_of(answer)
    if not (is_drawn or is_denial):
        return None
    more = _PUBLISHED if is_published else b""
    if answer is RECORDED:
        question, left_out = event_of(question, settings.DECISION_LOG_CONTEXT)
        more += b',"context_facts_left_out":%d' % left_out if left_out else b""
    elif not settings.DECISION_LOG_CONTEXT:
        question, left_out = _without_context_of(path, question)
        more += b',"context_facts_left_out":%d' % left_out if left_out else b""
    if b"\n" in question or b"\r" in question:  # in JSON, a raw newline can only be whitespace between tokens
        question = question.replace(b"\n", b" ").replace(b"\r", b" ")
    second, nanoseconds = divmod(at, 1_000_000_000)
    return b'{"time":"%b.%06dZ","request_id":%b%b%b%b,"revision":%d,"policy_version":%b,"microseconds":%d%b}\n' % (
        _second(second),
        nanoseconds // 1_000,
        orjson.dumps(request_id),
        _origin(environment_id, key, path),
        question,
        answer_json,
        revision,
        b"null" if version is None else b"%d" % version,
        (ended - began) * 1_000_000,
        more,
    )


def _without_context_of(path: str, question: bytes) -> tuple[bytes, int]:
    try:
        if path.startswith(_AUTHZEN):
            return without_properties(question)
        may_have_any = _CONTEXT.encode() in question or b"\\" in question  # a key may be written with escapes
        return without_context(question) if may_have_any else (question, 0)
    except orjson.JSONEncodeError:  # it nests too deep to be encoded again
        return b"{}", 1  # marks the question as incomplete


@lru_cache(maxsize=4)
def _second(seconds: int) -> bytes:
    return text_of(seconds * 1_000_000)[:19].encode()


@lru_cache(maxsize=1_000)
def _origin(environment_id: int, key: str, path: str) -> bytes:
    found = {"environment": environment_id, "key": key, "endpoint": path.removeprefix("/api/")}
    return b"," + orjson.dumps(found)[1:-1] + b',"question":'


def _summarised(body: object) -> _AnswerJson:
    summary = summary_of(body)
    return _AnswerJson(b',"answer":' + orjson.dumps(summary), is_denial(summary))


_answer_json_of = Memo(_summarised)


def without_context(question: bytes) -> tuple[bytes, int]:
    """Return a question without its context facts, and how many there were."""
    body = orjson.loads(question)
    bodies = body if isinstance(body, list) else [body, body.get("query")]
    left_out = 0
    for each in bodies:
        if isinstance(each, dict) and _CONTEXT in each:
            left_out += _number_in(each.pop(_CONTEXT))
    return orjson.dumps(body), left_out


def without_properties(question: bytes) -> tuple[bytes, int]:
    """Return an AuthZEN question without its properties and context, and how many there were."""
    body = orjson.loads(question)
    left_out = 0
    evaluations = body.get("evaluations")
    for each in [body, *(evaluations if isinstance(evaluations, list) else ())]:
        if not isinstance(each, dict):
            continue
        left_out += _number_in(each.pop("context", None))
        for name in ("subject", "action", "resource"):
            if isinstance(each.get(name), dict):
                left_out += _number_in(each[name].pop("properties", None))
    return orjson.dumps(body), left_out


def _number_in(member: object) -> int:
    """Return how many facts a member has; it may have any form where the endpoint ignores it, or refuses a part."""
    return len(member) if isinstance(member, dict | list) else int(bool(member))


def event_of(body: bytes, has_contents: bool) -> tuple[bytes, int]:
    """Return an event with large members replaced by their size and digest.

    Without contents, only its names are kept; the number is that of the other members.
    """
    if has_contents and len(body) <= _LARGEST_MEMBER:
        return body, 0
    event = orjson.loads(body)
    kept = {name: value for name, value in event.items() if has_contents or name in _NAMES_OF_EVENT}
    return orjson.dumps({name: _short(value) for name, value in kept.items()}), len(event) - len(kept)


def _short(member: object) -> object:
    try:
        text = orjson.dumps(member)
    except orjson.JSONEncodeError:
        return {"characters": 0, "digest": ""}  # it nests too deep to be encoded again
    return member if len(text) <= _LARGEST_MEMBER else {"characters": len(text), "digest": _digest(text)}


writer = Writer(settings.DECISION_LOG, line_of) if settings.DECISION_LOG else None


# ---- Reading the decision log -------------------------------------------------------------------------------------

_TEXTS = ("time", "request_id", "key", "endpoint")
_NUMBERS = ("environment", "microseconds")
_NUMBERS_OR_NULL = ("revision", "policy_version")


class BadLogLine(AuthzError):
    """A line of the file is not a line of a decision log."""

    def __init__(self, number: int, reason: str):
        super().__init__(f"line {number}: {reason}")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A logged question and its answer."""

    number: int  # line number in its file
    time: str
    request_id: str
    environment: int
    key: str
    endpoint: str
    question: Any  # the request body
    answer: Summary
    revision: int | None
    policy_version: int | None
    microseconds: int
    is_published_client: bool = False
    context_facts_left_out: int = 0

    @property
    def is_event(self) -> bool:
        """Return whether it is an event of an agent, which cannot be asked again."""
        return self.answer == RECORDED

    @property
    def at(self) -> int:
        """Return when it was answered, in microseconds since 1970."""
        return microseconds_of(datetime.fromisoformat(self.time))

    def __str__(self) -> str:
        known = "" if self.revision is None else f", revision {self.revision}"
        return f"line {self.number}: {self.endpoint} at {self.time}{known}, {self.key}, {shown(self.answer)}"


def lines_of(file: Iterable[bytes]) -> Iterator[LogLine | BadLogLine]:
    """Yield each nonempty line, or a `BadLogLine` that tells what is wrong with it."""
    for number, text in enumerate(file, 1):
        if text.strip():
            yield line_of_text(text, number)


def line_of_text(text: bytes | str, number: int) -> LogLine | BadLogLine:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return BadLogLine(number, "invalid JSON")
    if not isinstance(found, dict):
        return BadLogLine(number, "must be a JSON object")
    wrong = next((name for name in (*_TEXTS, *_NUMBERS, *_NUMBERS_OR_NULL) if not _is_right(name, found)), "")
    if wrong or not isinstance(found.get("answer"), dict) or "question" not in found:
        return BadLogLine(number, f"not a decision log entry: `{wrong or 'answer or question'}` is missing or invalid")
    line = LogLine(number, **{name: found[name] for name in LogLine.__slots__ if name in found and name != "number"})
    try:
        _ = line.at
    except (ValueError, TypeError):
        return BadLogLine(number, f"`{line.time[:40]}` is not a time with an offset from UTC")
    return line


def _is_right(name: str, found: dict[str, Any]) -> bool:
    value = found.get(name, ...)
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "question":
        return isinstance(value, dict | list)
    if name == "answer":
        return isinstance(value, dict) and is_summary(value)
    return (value is None and name in _NUMBERS_OR_NULL) or (isinstance(value, int) and not isinstance(value, bool))
