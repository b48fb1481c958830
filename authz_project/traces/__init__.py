"""Traces by OpenTelemetry, where its variables ask for them: `begin` reads the variables, and `telemetry` makes spans.

OpenTelemetry is imported only where traces are wanted: `telemetry` alone imports it, and `begin` alone imports that.
"""
