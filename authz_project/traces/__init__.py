"""Traces by OpenTelemetry, where its variables ask for them: this reads the variables, and `telemetry` makes spans.

OpenTelemetry is imported only where traces are wanted: `telemetry` alone imports it, and `begin` alone imports that.
"""

from __future__ import annotations

import logging
from importlib import import_module

from django.conf import settings

log = logging.getLogger("authz.traces")

TELEMETRY = "authz_project.traces.telemetry"  # imported by name: it imports OpenTelemetry
PROTOCOL = "http/protobuf"


def begin() -> None:
    """Begin to trace, if that is wanted. Called once in each process that answers.

    If tracing is impossible, the reason is logged, and requests are answered all the same.
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
    """Say whether there is an endpoint to send traces to, and no variable turns them off."""
    return bool(settings.OTEL_ENDPOINT) and not settings.OTEL_SDK_DISABLED and settings.OTEL_TRACES_EXPORTER == "otlp"
