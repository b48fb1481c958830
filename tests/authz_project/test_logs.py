"""What is written to standard error: whole lines, plain or JSON, with nothing in them that is secret."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from unittest import mock

import pytest
from django.conf import settings
from django.db import Error, OperationalError, connection, transaction

from authz_project import access_log as access
from authz_project import log_formats as formats
from authz_project import observers, route
from authz_project.access_log import AccessLog, pieces
from authz_project.log_formats import FACTS, Json, OncePerSecond, Plain, shortened
from authz_project.management.commands import serve
from policy.core import spans
from policy.core.spans import current, enter, leave
from tests.authz_project.test_observers import send, way  # noqa: F401  fixtures
from tests.authz_project.test_serve import refusal
from tests.logged import logged
from tests.service import ROOT

pytestmark = pytest.mark.one_database

WITHIN = 30  # seconds, of a busy machine
PLAIN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+ \S.*")
HOSTILE = 'ann\n2026-11-22 00:00:00,000 ERROR authz forged\r\x1b[31m\x85\u2028\u202e"\\\x00'
KEY = "e_default_0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"


def record(text: str, *args: object, **members: object) -> logging.LogRecord:
    found = logging.LogRecord("authz.request", logging.ERROR, "file", 1, text, args, None)
    vars(found).update(members)
    return found


def failed(text: str) -> tuple:
    try:
        raise ValueError(text)
    except ValueError:
        return sys.exc_info()


# ---- formats --------------------------------------------------------------------------------------------------------


def test_a_plain_line_cannot_be_forged():
    line = Plain().format(record("no such path: %s", HOSTILE))
    assert PLAIN.fullmatch(line) and line.isprintable()
    assert r"ann\n2026-11-22 00:00:00,000 ERROR authz forged\r\x1b[31m\x85\u2028\u202e" in line


def test_no_line_of_a_traceback_looks_like_another():
    first, *rest = Plain().format(record("failed", exc_info=failed(HOSTILE))).split("\n")
    assert PLAIN.fullmatch(first)
    assert "Traceback" in rest[0] and any("forged" in line for line in rest)
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_json_is_an_object_on_one_line():
    line = Json().format(record("no such path: %s", HOSTILE, exc_info=failed(HOSTILE), **{FACTS: {"code": 404}}))
    assert "\n" not in line
    said = json.loads(line)
    assert said["message"] == f"no such path: {HOSTILE}"
    assert (said["level"], said["logger"], said["code"]) == ("ERROR", "authz.request", 404)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", said["time"])
    assert "ValueError: ann" in said["traceback"]


REPEATED, COPIED = "bob-7\n\nDETAIL:  bob-7", "bob-7\tbob-7\n"  # here, since tracebacks show lines of functions


def repeat_a_row(cursor) -> None:
    cursor.execute("INSERT INTO pg_temp.told SELECT %s FROM generate_series(1, 2)", [REPEATED])


def copy_a_wrong_row(cursor) -> None:
    with connection.wrap_database_errors, cursor.copy("COPY pg_temp.told FROM STDIN") as target:
        target.write(COPIED)


@pytest.mark.parametrize("mistake", [repeat_a_row, copy_a_wrong_row])
@pytest.mark.parametrize("kind", [Plain, Json])
@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_values_that_a_database_tells_of_stand_in_no_log(db, kind, mistake, caplog, monkeypatch):
    """PostgreSQL says which rows are in each other's way, and what it read in a COPY."""
    with pytest.raises(Error) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE told (id text PRIMARY KEY) ON COMMIT DROP")
        mistake(cursor)
    error = caught.value
    assert "bob-7" in str(error)
    said = kind().format(record("failed", exc_info=(type(error), error, error.__traceback__)))
    assert type(error).__name__ in said and "bob-7" not in said
    monkeypatch.setattr(route, "_once", OncePerSecond())  # which says the same once a second
    route.refusal_of(OperationalError(str(error)), "one")
    assert "unreachable" in caplog.text and "bob-7" not in caplog.text


@pytest.mark.parametrize("text", ["\ud800 half", "x" * 100_000, "é" * 9_000, "\x00" * 9_000, '"' * 9_000])
@pytest.mark.parametrize("kind", [Plain, Json])
def test_a_line_fits_whatever_is_said(kind, text):
    line = shortened(kind().format(record("%s", text, exc_info=failed(text) if kind is Json else None)), 4095)
    assert len(line.encode("utf-8", "backslashreplace")) <= 4095
    if kind is Json:
        assert set(json.loads(line)) >= {"time", "level", "logger", "message"}
    else:
        assert PLAIN.fullmatch(line)


def test_a_long_traceback_keeps_its_beginning_and_its_end():
    line = Json().format(record("failed", **{FACTS: {"traceback": "first\n" + "x" * 9_000 + "\nlast"}}))
    said = json.loads(shortened(line, 4095))
    assert said["traceback"].startswith("first") and said["traceback"].endswith("last")
    assert said["message"] == "failed"


def test_a_long_plain_one_does_too():
    assert re.fullmatch("first x+ … x+ last", shortened("first " + "x" * 9_000 + " last", 4095))


def test_what_is_known_of_the_request_is_said():
    enter("mine", "/api/authorize")
    current.caller = mock.Mock(environment="staging", key_id=7)
    said = json.loads(Json().format(record("it failed")))
    leave()
    assert (said["request_id"], said["endpoint"]) == ("mine", "/api/authorize")
    assert (said["environment"], said["key_id"]) == ("staging", 7)
    assert not {"request_id", "endpoint", "environment", "key_id"} & set(json.loads(Json().format(record("later"))))


def test_errors_of_a_request_say_whose_it_was(way):  # noqa: F811
    broken = mock.patch("authz_project.keys.note_use", side_effect=KeyError("ours"))
    with logged("authz.request") as said, broken:
        assert send(way, "GET", "/api/stats", HTTP_X_REQUEST_ID="mine") == 500
    (line,) = said
    assert (line["request_id"], line["endpoint"], line["level"]) == ("mine", "/api/stats", "ERROR")
    assert "KeyError" in line["traceback"]


@pytest.mark.parametrize("value", ["yaml", "jsonl"])
def test_another_format_is_refused(tmp_path, value):
    assert "LOG_FORMAT must be plain or json" in refusal(tmp_path, LOG_FORMAT=value)


def test_a_thread_that_ends_is_said_in_a_line(caplog):
    from_thread = threading.ExceptHookArgs((ValueError, ValueError("lost"), None, threading.current_thread()))
    access._ended(from_thread)
    assert "has ended" in caplog.text


def test_serve_speaks_json_where_all_is_to(settings, capsys):
    settings.LOG_FORMAT = "json"
    serve.Command().say("  read      here")
    assert json.loads(capsys.readouterr().out)["message"] == "read      here"


def test_observing_nothing_notes_nothing():
    assert not spans.is_on


# ---- whole lines ----------------------------------------------------------------------------------------------------


@contextmanager
def standard_error():
    """A pipe in its place: what is written there."""
    reader, writer = os.pipe()
    found: list[bytes] = []

    def read() -> None:
        while piece := os.read(reader, 1 << 16):
            found.append(piece)

    thread = threading.Thread(target=read)
    thread.start()
    formats.most_at_once.cache_clear()
    try:
        with mock.patch.object(formats, "STANDARD_ERROR", writer):
            yield found
    finally:
        os.close(writer)
        thread.join(WITHIN)
        os.close(reader)
        formats.most_at_once.cache_clear()


def test_lines_of_threads_and_processes_stay_whole(tmp_path):
    program = tmp_path / "writer.py"
    program.write_text(
        "import logging, sys, threading\n"
        "from authz_project.log_formats import Json\n"
        "from authz_project.log_formats import LineHandler\n"
        "handler = LineHandler(); handler.setFormatter(Json())\n"
        "log = logging.getLogger('x'); log.addHandler(handler); log.propagate = False\n"
        "def write(n):\n"
        "    for k in range(100): log.error('%s', str(n) * (k * 90))\n"
        "threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]\n"
        "[each.start() for each in threads]; [each.join() for each in threads]\n"
    )
    variables = os.environ | {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "authz_project.settings"}
    reader, writer = os.pipe()
    command = [sys.executable, program]
    started = [subprocess.Popen(command, stderr=writer, env=variables, cwd=tmp_path) for _ in range(3)]
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        time.sleep(1)  # the pipe is full, and all wait
        found = [json.loads(line) for line in file]
    assert [each.wait(WITHIN) for each in started] == [0, 0, 0]
    assert len(found) == 3 * 4 * 100
    assert {len(set(each["message"]) - set(" …")) for each in found} == {0, 1}


def test_pieces_are_of_whole_lines():
    given = [b"%d\n" % n * 3 for n in range(100)]
    found = [*pieces(given, 50)]
    assert b"".join(found) == b"".join(given)
    assert all(len(each) <= 50 and each.endswith(b"\n") for each in found)
    assert [*pieces([b"x" * 60 + b"\n", b"y\n"], 50)] == [b"x" * 60 + b"\n", b"y\n"]


def test_what_nobody_reads_harms_nobody():
    reader, writer = os.pipe()
    os.close(reader)
    handler = formats.LineHandler()
    handler.setFormatter(Plain())
    with mock.patch.object(formats, "STANDARD_ERROR", writer):
        handler.emit(record("lost"))
    os.close(writer)


# ---- requests -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["plain", "json"])
def access_log(request):
    """What it writes of requests inside."""
    log = AccessLog(getattr(access, request.param))
    observers.observe(log)

    @contextmanager
    def written():
        found: list[str] = []
        with standard_error() as pieces_written:
            yield found
            log.flush()
        found += b"".join(pieces_written).decode().splitlines()

    written.kind = request.param
    yield written
    observers.stop(log)


def test_a_request_is_one_line(way, access_log):  # noqa: F811
    with access_log() as found:
        assert send(way, "GET", "/api/stats", HTTP_X_REQUEST_ID="mine") == 200
    (line,) = found
    if access_log.kind == "json":
        said = json.loads(line)
        assert said.pop("microseconds") > 0 and said.pop("time") and isinstance(said.pop("key_id"), int)
        assert said == {
            "level": "INFO", "logger": "authz.access", "message": "GET /api/stats 200", "request_id": "mine",
            "environment": "default", "method": "GET", "endpoint": "/api/stats", "code": 200,
        }  # fmt: skip
    else:
        assert PLAIN.fullmatch(line)
        text = r" INFO authz\.access GET /api/stats 200 \d+us request=mine environment=default key=\d+"
        assert re.search(text, line)


def test_nothing_that_a_caller_sends_is_in_a_line(way, access_log):  # noqa: F811
    secrets = ("ann-7c1", "doc-9b2", way.key[-40:], KEY[-40:], "forged")
    question = {
        "actor_type": "User", "actor_id": "ann-7c1", "action": "read", "resource_type": "Doc", "resource_id": "doc-9b2",
    }  # fmt: skip
    fact = {"predicate": "has_role-forged", "args": [{"type": "User", "id": f"ann-7c1{HOSTILE}"}]}
    with access_log() as found:
        send(way, "POST", "/api/authorize", question)
        send(way, "POST", "/api/facts", fact)
        send(way, "GET", "/api/facts", QUERY_STRING="predicate=x&args.0.type=User&args.0.id=ann-7c1")
        send(way, "GET", f"/api/{KEY}", QUERY_STRING=f"key={KEY}")
        send(way, "GET", "/doc-9b2\r\nforged: 1")
        send(way, "POST", f"/admin/{KEY}/")
        send(way, "FORGED\n", "/api/stats", HTTP_USER_AGENT=HOSTILE, HTTP_REFERER=HOSTILE)
        send(way, "GET", "/api/stats", HTTP_X_REQUEST_ID="a\nforged")
        send(way, "GET", "/api/stats", HTTP_AUTHORIZATION=f"Bearer {KEY}", HTTP_TRACEPARENT=HOSTILE)
    assert len(found) == 9
    assert [line for line in found if any(each in line for each in secrets)] == []
    assert all(line.isprintable() for line in found)
    for line in found:
        assert json.loads(line) if access_log.kind == "json" else PLAIN.fullmatch(line)


def test_what_has_no_room_is_left_out_and_told(caplog):
    log = AccessLog(access.json)
    seen = observers.AnsweredRequest("/api/stats", "GET", 200, 0.0, 0.1, 0.0, "id", "default", 1, "", ())
    with mock.patch.object(access, "ROOM", 0):
        for _ in range(3):
            log(seen)
    log.complain()
    log.complain()
    assert [each for each in caplog.messages if "dropped 3 access log entries" in each] and len(caplog.messages) == 1


def test_a_line_that_cannot_be_built_costs_no_other(caplog):
    def line(seen: observers.AnsweredRequest) -> bytes:
        return access.plain(seen._replace(at=seen.at / (seen.status - 1)))

    log, seen = (
        AccessLog(line),
        observers.AnsweredRequest("/api/stats", "GET", 200, 0.0, 0.1, 0.0, "id", "default", 1, "", ()),
    )
    with standard_error() as pieces_written:
        for each in (seen, seen._replace(status=1), seen):
            log(each)
        log.flush()
    assert b"".join(pieces_written).count(b"GET /api/stats 200") == 2
    assert "cannot log a request to the access log" in caplog.text


# ---- what strangers can cause ---------------------------------------------------------------------------------------


def test_refusals_of_a_kind_are_one_short_line_a_second(monkeypatch):
    """A line of each request with its traceback would fill the disk of whoever is sent enough of them."""
    now = [100.0]
    monkeypatch.setattr(formats.time, "monotonic", lambda: now[0])
    briefly, written = formats.UntrustedLogFilter(), []
    for second in range(2):
        for _ in range(313):
            for name in ("django.security.DisallowedHost", "django.security.TooManyFieldsSent"):
                each = record("Invalid host %s", "x\n" * 5000, name=name, exc_info=failed("secret"))
                if briefly.filter(each):
                    written.append(Plain().format(each))
        now[0] += 1.0 + second
    assert len(written) == 4
    assert not written[0].endswith("more)") and all(line.endswith("(and 312 more)") for line in written[2:])
    assert all(PLAIN.fullmatch(line) and len(line) < 500 and "secret" not in line for line in written)


def test_suspicious_requests_are_logged_briefly():
    """By Django's own loggers: the decision log and our own lines are not thinned out."""
    handlers = settings.LOGGING["handlers"]
    assert handlers["briefly"]["filters"] == ["briefly"] and "filters" not in handlers["console"]
    assert settings.LOGGING["loggers"]["django.security"] == {"handlers": ["briefly"], "propagate": False}
