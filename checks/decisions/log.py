"""The decision log: a line of JSON for each question that the interface answers.

A request only queues what there is to say, and waits for nothing. Several times a second, another thread makes lines of
what is queued, and writes them (`writer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from random import random
from typing import Any, NamedTuple

import orjson

from checks.decisions.answers import is_denial, summary_of, tally_of
from checks.decisions.memo import Memo
from checks.decisions.writer import Writer
from policy import noticing
from policy.active import Caller, caller_of_hash
from policy.clock import text_of
from policy.configured import configured
from policy.endpoint import Request, is_published_client
from policy.models import PolicyVersion
from policy.timeline import timeline

log = logging.getLogger("authz.decisions")

_OVERHEAD, _A_RESULT = 1_000, 100  # bytes: what a question takes at least, and each result about
_MOST_NAMES = 10_000
_CONTEXT = "context_facts"
_AUTHZEN = "/access/"  # how its paths begin
_PUBLISHED = b',"is_published_client":true'


class Entry(NamedTuple):
    """What there is to say of a question, before it is a line."""

    at: int  # nanoseconds since 1970
    began: float  # by `perf_counter`, and so is `ended`
    ended: float
    request_id: str
    environment_id: int
    key: str
    path: str
    question: bytes  # the request's body
    is_published: bool  # whether a published client sent it: lists for those have another form
    answer: object  # the body, or its JSON as bytes
    revision: int
    policy_version: int | None
    is_drawn: bool  # for the sample


_new = tuple.__new__  # takes half as long as to call the class


def _size_of(question: bytes, answer: object) -> int:
    if isinstance(answer, bytes):
        return _OVERHEAD + len(question) + len(answer)
    results = (answer.get("results") or answer.get("evaluations")) if isinstance(answer, dict) else answer
    return _OVERHEAD + len(question) + (_A_RESULT * len(results) if isinstance(results, list) else 0)


# ---- what answers call -------------------------------------------------------------------------------------------


def note(request: Request, who: Caller, answer: object, revision: int, version_id: int | None) -> None:
    """Queue an answered question for the log: any if denials are wanted, else a sample. Never raises an `Exception`."""
    if noticing.is_on:
        _notice(answer)
    if writer is None:
        return
    try:
        share = configured.DECISION_LOG_SAMPLE  # of all questions
        is_drawn = share >= 1 or random() < share  # noqa: S311  it is no secret
        if is_drawn or configured.DECISION_LOG_DENIED:
            entry = _entry(request, who, answer, revision, version_id, is_drawn)
            writer.put(entry, _size_of(entry.question, answer))
    except Exception as reason:
        writer.leave_out(1, reason)


def _decision(body: object) -> noticing.Noted:
    return ("decision", 0.0, 0.0, tally_of(body))


_part_of = Memo(_decision)


def _notice(answer: object) -> None:
    try:
        noticing.add(_part_of(answer))
    except Exception:
        log.exception("an answer was not counted")


def _entry(
    request: Request, who: Caller, answer: object, revision: int, version_id: int | None, is_drawn: bool
) -> Entry:
    return _new(
        Entry,
        (
            time.time_ns(),
            request.started,
            time.perf_counter(),
            request.id,
            who.environment_id,
            who.author or _names.get(who.key_hash) or _read(who.key_hash, _author),
            request.headers["PATH_INFO"],
            request.body,
            is_published_client(request),
            answer,
            revision,
            None if version_id is None else _names.get(version_id) or _read(version_id, _number),
            is_drawn,
        ),
    )


_names: dict[Any, Any] = {}  # authors by key, and numbers by version; they never change, except for a key's label
timeline.forgets(_names.clear)


def _read(key: Any, read: Callable[[Any], Any]) -> Any:
    if len(_names) >= _MOST_NAMES:
        _names.clear()
    found = _names[key] = read(key)
    return found


def _author(key_hash: str) -> str:
    return caller_of_hash(key_hash).author


def _number(version_id: int) -> int:
    return PolicyVersion.objects.values_list("number", flat=True).get(pk=version_id)


# ---- lines ---------------------------------------------------------------------------------------------------------


class _AnswerJson(NamedTuple):
    """What a line says of an answer."""

    text: bytes
    is_denial: bool


def line_of(entry: Entry) -> bytes | None:
    """Return the line with its newline; None if it is neither in the sample nor a denial.

    It is put together from pieces of JSON, most of which are the same for many lines.
    """
    (
        at, began, ended, request_id, environment_id, key, path, question, is_published, answer, revision, version,
        is_drawn,
    ) = entry  # fmt: skip
    answer_json, is_denial = _answer_json_of(answer)
    if not (is_drawn or is_denial):
        return None
    more = _PUBLISHED if is_published else b""
    if not configured.DECISION_LOG_CONTEXT:
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
    except orjson.JSONEncodeError:  # it nests too deep to be written again
        return b"{}", 1  # which says that this is not the whole question


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
            left_out += len(each.pop(_CONTEXT) or ())
    return orjson.dumps(body), left_out


def without_properties(question: bytes) -> tuple[bytes, int]:
    """Return a question of AuthZEN without its properties and context, and how many there were."""
    body = orjson.loads(question)
    left_out = 0
    for each in [body, *(body.get("evaluations") or ())]:
        if not isinstance(each, dict):
            continue
        left_out += len(each.pop("context", None) or ())
        for name in ("subject", "action", "resource"):
            if isinstance(each.get(name), dict):
                left_out += len(each[name].pop("properties", None) or ())
    return orjson.dumps(body), left_out


writer = Writer(configured.DECISION_LOG, line_of) if configured.DECISION_LOG else None
