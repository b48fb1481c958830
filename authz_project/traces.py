"""OpenTelemetry traces: the spans of an answered request, one for it and one for each part that took time.

They follow OpenTelemetry's semantic conventions. Of the values that callers choose, spans have only the request id and
the parent in `traceparent`: no unknown paths, no statements, no values.
"""

import atexit
from collections.abc import Mapping

from django.conf import settings
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from authz_project import __version__, observers
from authz_project.observers import AnsweredRequest
from policy.core.spans import Part

NAME = "authz"
MOST = 128  # spans per request
FLUSH_WITHIN = 3_000  # milliseconds to wait at exit until the spans are sent
SYSTEMS = {"django.db.backends.postgresql": "postgresql", "django.db.backends.sqlite3": "sqlite"}

Attributes = dict[str, str | int]
_contexts = TraceContextTextMapPropagator()


def start() -> None:
    """Send spans to the endpoint in OpenTelemetry's variables, from now on until the process ends."""
    described = Resource.create({SERVICE_VERSION: __version__})  # adds attributes from the variables
    if str(described.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        described = described.merge(Resource({SERVICE_NAME: NAME}))
    provider = TracerProvider(resource=described, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    observers.observe(Traces(provider.get_tracer(NAME, __version__)))
    atexit.register(provider.force_flush, FLUSH_WITHIN)


class Traces:
    """An observer that makes the spans of each request."""

    def __init__(self, tracer: Tracer):
        self._tracer = tracer
        self._system = SYSTEMS.get(settings.DATABASES["default"]["ENGINE"], "other_sql")

    def __call__(self, seen: AnsweredRequest) -> None:
        parts = [part for part in seen.parts if part.seconds]
        began = min([seen.began, *(part.began for part in parts[:1])])  # a wait for a thread comes before `seen.began`
        span = self._tracer.start_span(
            _name(seen),
            context=_contexts.extract({"traceparent": seen.traceparent}) if seen.traceparent else Context(),
            kind=SpanKind.SERVER,
            attributes=_attributes(seen, len(parts) - MOST),
            start_time=_at(seen, began),
        )
        if span.is_recording():
            if seen.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            within = set_span_in_context(span, Context())
            for part in parts[:MOST]:
                self._tell(seen, part, within)
        span.end(_at(seen, seen.began + seen.seconds))

    def _tell(self, seen: AnsweredRequest, part: Part, within: Context) -> None:
        is_statement = part.name == "statement"
        span = self._tracer.start_span(
            "SELECT" if is_statement else part.name,
            context=within,
            kind=SpanKind.CLIENT if is_statement else SpanKind.INTERNAL,
            attributes=_of_statement(part.facts, self._system) if is_statement else _of_part(part.facts),
            start_time=_at(seen, part.began),
        )
        if "failed" in part.facts:
            span.set_status(Status(StatusCode.ERROR))
        span.end(_at(seen, part.began + part.seconds))


def _name(seen: AnsweredRequest) -> str:
    return f"{_method(seen)} {seen.endpoint}" if _is_route(seen) else _method(seen)


def _method(seen: AnsweredRequest) -> str:
    return "HTTP" if seen.method == observers.ANY_OTHER else seen.method


def _is_route(seen: AnsweredRequest) -> bool:
    return seen.endpoint.startswith("/")


def _attributes(seen: AnsweredRequest, left_out: int) -> Attributes:
    found: Attributes = {
        "http.request.method": seen.method,
        "http.response.status_code": seen.status,
        "url.scheme": "http",
        "authz.request_id": seen.request_id,
    }
    if _is_route(seen):
        found |= {"http.route": seen.endpoint, "url.path": seen.endpoint}
    if seen.status >= 500:
        found["error.type"] = str(seen.status)
    if seen.key_id is not None:
        found |= {"authz.environment": seen.environment, "authz.key_id": seen.key_id}
    if left_out > 0:
        found["authz.parts_left_out"] = left_out
    return found


def _of_statement(facts: Mapping[str, object], system: str) -> Attributes:
    found: Attributes = {"db.system.name": system, "db.operation.name": "SELECT"}
    if "rows" in facts:
        found["db.response.returned_rows"] = int(str(facts["rows"]))
    return found | _of_failure(facts)


def _of_part(facts: Mapping[str, object]) -> Attributes:
    found: Attributes = {"authz.waited_for": str(facts["of"])} if "of" in facts else {}
    return found | _of_failure(facts)


def _of_failure(facts: Mapping[str, object]) -> Attributes:
    return {"error.type": str(facts["failed"])} if "failed" in facts else {}


def _at(seen: AnsweredRequest, moment: float) -> int:
    """Convert a `perf_counter` time, as parts have it, to nanoseconds since 1970."""
    return int((seen.at + moment - seen.began) * 1_000_000_000)
