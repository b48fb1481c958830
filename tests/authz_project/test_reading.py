"""What is read of a body is let go, however its reading ends."""

import gc
from collections.abc import Callable
from unittest.mock import Mock
from weakref import ref

import orjson
import pytest
from granian.rsgi import ProtocolClosed

from authz_project.route import refusal_of
from authz_project.server import intake
from authz_project.server.intake import Body, SmallBody
from policy.core import memory
from policy.core.memory import NoMemory
from policy.endpoint import parsed


class BrokenBody:
    """As granian's future: it keeps the error that it raises, and no garbage collection finds its way through it."""

    def __init__(self) -> None:
        self.error = ProtocolClosed()
        self.call: Callable[[BrokenBody], None] | None = None

    def add_done_callback(self, call: Callable[["BrokenBody"], None]) -> None:
        self.call = call

    def cancelled(self) -> bool:
        return False

    def result(self) -> bytes:
        raise self.error


def test_a_body_that_breaks_off_is_let_go():
    gc.disable()
    try:
        body, told = BrokenBody(), []
        SmallBody(iter([body]).__next__, 10, told.append, told.append)
        call, body.call = body.call, None
        call(body)
        gone = ref(body)
        del body, call
        assert told == ["broken"] and gone() is None
    finally:
        gc.enable()


def test_a_parser_without_memory_does_not_blame_the_body(monkeypatch):
    def fail(_: bytes) -> None:
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    monkeypatch.setattr(orjson, "loads", fail)
    with pytest.raises(MemoryError):
        parsed(b"{}")


class WholeBody:
    """As granian's reader of a body that comes in one part."""

    def __init__(self, part: bytes):
        self.part = part

    def __aiter__(self) -> "WholeBody":
        return self

    __anext__ = __aiter__

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def result(self) -> bytes:
        return self.part


def test_a_body_that_there_is_no_memory_for_is_refused(monkeypatch):
    told, replaced = [], []
    monkeypatch.setattr(intake, "exhausted", lambda: replaced.append("now"))
    monkeypatch.setattr(intake.Body, "_joined", Mock(side_effect=MemoryError))
    Body(WholeBody(b"x" * 10), 10, 100, told.append, told.append)
    assert (told, replaced) == (["too much"], ["now"])


def test_what_a_library_would_have_no_memory_for_may_be_asked_for_again(monkeypatch):
    """The parser, and granian, which copies a large answer, end the process where they get none."""
    monkeypatch.setattr(memory, "SPARE", 1 << 60)
    memory.demand(1_000)
    assert parsed(b"[]") == []
    for need in (lambda: memory.demand(2_000_000), lambda: parsed(b"[" + b"{}," * 100_000 + b"{}]")):
        with pytest.raises(NoMemory) as refused:
            need()
        refusal = refusal_of(refused.value, "r1")
        assert refusal.status == 503 and refusal.headers["Retry-After"]


def test_a_parser_that_runs_out_of_memory_on_the_way_does_not_fail(monkeypatch):
    monkeypatch.setattr(orjson, "loads", Mock(side_effect=SystemError("returned a result with an exception set")))
    with pytest.raises(MemoryError):
        parsed(b"{}")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_request_that_runs_out_of_memory_may_be_tried_again(error):
    refusal = refusal_of(error, "r1")
    assert refusal.status == 503 and refusal.headers["Retry-After"] == "1"
