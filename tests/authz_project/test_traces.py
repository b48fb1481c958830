"""Traces by OpenTelemetry: spans of requests, where its variables ask for them."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

from authz_project import observers
from authz_project.traces import MOST, Traces
from tests.authz_project.test_observers import QUESTION, published, send, way  # noqa: F401  fixtures
from tests.authz_project.test_serve import SECRET
from tests.service import ROOT, start_service

WITHIN = 30  # seconds, of a busy machine
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Spans(InMemorySpanExporter):
    def named(self, name: str) -> list:
        return [span for span in self.get_finished_spans() if span.name == name]


def traced(sampler=None) -> Iterator[Spans]:
    spans = Spans()
    provider = TracerProvider(shutdown_on_exit=False, **({"sampler": sampler} if sampler else {}))
    provider.add_span_processor(SimpleSpanProcessor(spans))
    observer = Traces(provider.get_tracer("authz"))
    observers.observe(observer)
    yield spans
    observers.stop(observer)


@pytest.fixture
def spans() -> Iterator[Spans]:
    yield from traced()


@pytest.fixture
def sampled() -> Iterator[Spans]:
    """What is left where only callers decide what is traced."""
    yield from traced(ParentBased(ALWAYS_OFF))


def test_a_request_is_a_span_with_its_parts(way, db, spans):  # noqa: F811
    published(way)
    spans.clear()
    before = time.time_ns()
    assert send(way, "POST", "/api/authorize", QUESTION, HTTP_X_REQUEST_ID="mine") == 200
    (root,) = spans.named("POST /api/authorize")
    assert root.kind == SpanKind.SERVER and root.parent is None
    assert dict(root.attributes) == {
        "http.request.method": "POST", "http.route": "/api/authorize", "url.path": "/api/authorize",
        "url.scheme": "http", "http.response.status_code": 200, "authz.request_id": "mine",
        "authz.environment": "default", "authz.key_id": mock.ANY,
    }  # fmt: skip
    assert before - 1_000_000 <= root.start_time < root.end_time <= time.time_ns() + 1_000_000
    (statement, *_) = spans.named("SELECT")
    assert statement.kind == SpanKind.CLIENT
    assert dict(statement.attributes) == {
        "db.system.name": db, "db.operation.name": "SELECT", "db.response.returned_rows": 1,
    }  # fmt: skip
    assert spans.named("compile")[0].kind == SpanKind.INTERNAL
    for part in [*spans.named("SELECT"), *spans.named("compile")]:
        assert part.parent.span_id == root.context.span_id and part.context.trace_id == root.context.trace_id
        assert root.start_time <= part.start_time <= part.end_time <= root.end_time + 1_000


def test_nothing_that_a_caller_sends_is_in_a_span(way, spans):  # noqa: F811
    published(way)
    send(way, "POST", "/api/authorize", QUESTION | {"actor_id": "ann-7c1"})
    send(way, "GET", "/api/ann-7c1", QUERY_STRING="id=ann-7c1")
    send(way, "ANN-7c1", "/api/stats", HTTP_USER_AGENT="ann-7c1", HTTP_TRACEPARENT="ann-7c1")
    send(way, "GET", "/api/facts", QUERY_STRING="args.0.id=ann-7c1")
    told = "".join(span.to_json() for span in spans.get_finished_spans())
    assert "ann-7c1" not in told.lower() and way.key not in told and "FROM" not in told
    assert len(spans.named("GET")) == 1 and len(spans.named("HTTP /api/stats")) == 1


def test_a_request_is_part_of_the_callers_trace(way, spans):  # noqa: F811
    send(way, "GET", "/api/stats", HTTP_TRACEPARENT=f"00-{TRACE}-{PARENT}-01")
    (root,) = spans.named("GET /api/stats")
    assert f"{root.context.trace_id:032x}" == TRACE and f"{root.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("given", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "\n" * 99])
def test_a_trace_that_is_none_is_not_taken_up(way, spans, given):  # noqa: F811
    assert send(way, "GET", "/api/stats", HTTP_TRACEPARENT=given) == 200
    (root,) = spans.named("GET /api/stats")
    assert root.parent is None and f"{root.context.trace_id:032x}" != TRACE


def test_what_is_not_sampled_is_not_told(way, sampled):  # noqa: F811
    send(way, "GET", "/api/stats", HTTP_TRACEPARENT=f"00-{TRACE}-{PARENT}-00")
    send(way, "GET", "/api/stats")
    assert not sampled.get_finished_spans()
    send(way, "GET", "/api/stats", HTTP_TRACEPARENT=f"00-{TRACE}-{PARENT}-01")
    assert len(sampled.named("GET /api/stats")) == 1


def test_failures_are_told_with_their_kind(way, spans):  # noqa: F811
    published(way)
    with mock.patch("checks.asking.run._driver", side_effect=ValueError("ann-7c1")):
        assert send(way, "POST", "/api/authorize", QUESTION) == 500
    (root,) = spans.named("POST /api/authorize")
    assert root.status.status_code == StatusCode.ERROR and root.attributes["error.type"] == "500"
    (statement, *_) = spans.named("SELECT")
    assert statement.status.status_code == StatusCode.ERROR and statement.attributes["error.type"] == "ValueError"
    assert send(way, "GET", "/api/policy", QUERY_STRING="id=x") == 400
    assert spans.named("GET /api/policy")[0].status.status_code == StatusCode.UNSET


def test_waiting_for_a_thread_is_part_of_it(spans):
    noted = (("wait", 9.0, 0.5, {"of": "thread"}), *[("statement", 10.0, 0.001, {"rows": 1})] * (MOST + 10))
    for observer, _ in observers._observers:
        observer(observers.AnsweredRequest("/api/list", "POST", 200, 10.0, 1.0, 1_000.0, "id", "", None, "", noted))
    (root,) = spans.named("POST /api/list")
    (wait,) = spans.named("wait")
    assert (root.start_time, root.end_time) == (999 * 10**9, 1_001 * 10**9)
    assert (wait.start_time, wait.end_time) == (999 * 10**9, 999_500 * 10**6)
    assert wait.attributes["authz.waited_for"] == "thread"
    assert root.attributes["authz.parts_left_out"] == 11


# ---- only where it is asked for -------------------------------------------------------------------------------------

LOOK = """
import sys
import authz_project.wsgi
import authz_project.server.intake as intake
intake.Intake(1)
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")), end="")
"""


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_without_being_asked_nothing_is_imported(tmp_path, variables):
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env=os.environ | {
            "DATABASE_URL": "", "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "authz_project.settings",
        } | variables,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("[]", 0), done.stderr


@pytest.mark.parametrize(
    ("protocol", "missing", "told"),
    [("grpc", None, "OTLP_PROTOCOL"), ("http/protobuf", ImportError("x"), "authz-project[otel]")],
)
def test_what_is_missing_is_said(settings, caplog, protocol, missing, told):
    settings.OTEL_ENDPOINT, settings.OTEL_PROTOCOL = "http://127.0.0.1:1", protocol
    with mock.patch.object(observers, "import_module", side_effect=missing):
        observers.begin_traces()
    (line,) = caplog.messages
    assert line.startswith("tracing is disabled: ") and told in line


# ---- the running server ---------------------------------------------------------------------------------------------


@pytest.fixture
def collector():
    """Takes what is sent by OTLP over HTTP; the address, and what came."""
    came: list[ExportTraceServiceRequest] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            assert self.path == "/v1/traces"
            came.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", came
    server.shutdown()
    server.server_close()


def test_every_process_sends_its_traces(tmp_path, collector):
    address, came = collector
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=tests",
        "SECRET_KEY": SECRET,
    }  # fmt: skip
    service = start_service(tmp_path, "", "--workers", "2", **variables)
    client = service.client(re.search(r"e_default_\w+", service.log.read_text())[0])
    given = {f"{number:032x}" for number in range(1, 61)}
    for each in given:
        assert client.get("/stats", headers={"traceparent": f"00-{each}-{PARENT}-01"}).status_code == 200
    assert service.stop() == 0  # what was not sent yet is, now
    resources = [each for message in came for each in message.resource_spans]
    named = [{pair.key: pair.value.string_value for pair in each.resource.attributes} for each in resources]
    assert {each["service.name"] for each in named} == {"authz"}
    assert {each["deployment.environment.name"] for each in named} == {"tests"} and "service.version" in named[0]
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
    roots = [span for span in spans if span.name == "GET /api/stats"]
    assert {span.trace_id.hex() for span in roots} == given and len(roots) == len(given)
    assert {span.parent_span_id.hex() for span in roots} == {PARENT}
    assert "wait" in {span.name for span in spans}
    assert client.key not in json.dumps(named) and client.key.encode() not in b"".join(
        message.SerializeToString() for message in came
    )


def test_a_collector_that_is_away_holds_nobody_up(tmp_path):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "SECRET_KEY": SECRET}
    service = start_service(tmp_path, "", "--workers", "1", **variables)
    client = service.client(re.search(r"e_default_\w+", service.log.read_text())[0])
    assert {client.get("/stats").status_code for _ in range(20)} == {200}
    started = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - started < WITHIN
