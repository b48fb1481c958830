"""Traces by OpenTelemetry, where its variables ask for them: `begin` looks, and `telemetry` makes spans.

Nothing of OpenTelemetry is imported before: `telemetry` alone does so, and nobody imports it but `begin`.
"""
