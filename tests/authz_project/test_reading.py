"""What is read of a body is let go, however its reading ends."""

import gc
from collections.abc import Callable
from weakref import ref

import orjson
import pytest
from granian._granian import RSGIProtocolClosed

from authz_project.errors import refusal_of
from authz_project.route import parsed
from authz_project.server.bodies import Whole


class BrokenBody:
    """As granian's future: it keeps the error that it raises, and no garbage collection finds its way through it."""

    def __init__(self) -> None:
        self.error = RSGIProtocolClosed()
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
        Whole(iter([body]).__next__, 10, told.append, told.append)
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


def test_a_request_that_runs_out_of_memory_may_be_tried_again():
    refusal = refusal_of(MemoryError(), "r1")
    assert refusal.status == 503 and refusal.headers["Retry-After"] == "1"
