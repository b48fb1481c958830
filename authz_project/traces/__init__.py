"""OpenTelemetry traces, enabled by its environment variables: this reads them, and `telemetry` makes the spans.

OpenTelemetry is imported only if tracing is enabled: only `telemetry` imports it, and only `begin` imports `telemetry`.
"""

from __future__ import annotations

import logging
from importlib import import_module

from django.conf import settings

log = logging.getLogger("authz.traces")

TELEMETRY = "authz_project.traces.telemetry"  # imported by name, as it imports OpenTelemetry
PROTOCOL = "http/protobuf"


def begin() -> None:
    """Start tracing if it is enabled. Call it once per server process.

    If tracing is impossible, the reason is logged, and requests are answered normally.
    """
    if not is_wanted():
        return
    if settings.OTEL_PROTOCOL != PROTOCOL:
        log.error("tracing is disabled: OTEL_EXPORTER_OTLP_PROTOCOL must be %s, the only supported protocol", PROTOCOL)
        return
    try:
        telemetry = import_module(TELEMETRY)
    except ImportError as reason:
        log.error('tracing is disabled: %s; run pip install "authz-project[otel]"', reason)
        return
    telemetry.start()


def is_wanted() -> bool:
    """Return whether an endpoint for traces is set, and no variable disables them."""
    return bool(settings.OTEL_ENDPOINT) and not settings.OTEL_SDK_DISABLED and settings.OTEL_TRACES_EXPORTER == "otlp"
