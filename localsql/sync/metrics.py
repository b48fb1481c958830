"""Metrics of a command that runs for long, for Prometheus: `http://127.0.0.1:PORT/metrics`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HELP = {
    "passes_total": ("counter", "Passes that ended, by how they ended."),
    "facts_changed_total": ("counter", "Facts that were added and deleted."),
    "facts": ("gauge", "Facts of a pattern in the last pass: equal, to be added, to be deleted."),
    "pattern_failed": ("gauge", "1 where a pattern failed in the last pass."),
    "last_pass_seconds": ("gauge", "How long the last pass took."),
    "last_pass_timestamp_seconds": ("gauge", "When the last pass ended."),
    "last_success_timestamp_seconds": ("gauge", "When the last pass ended that left nothing to be told."),
    "rows_drained_total": ("counter", "Rows of the outbox that were taken."),
}
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass
class Metrics:
    """Numbers by their names and labels."""

    prefix: str
    _numbers: dict[tuple[str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def set(self, name: str, value: float, **labels: str) -> None:
        with self._lock:
            self._numbers[name, _shown(labels)] = value

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        with self._lock:
            key = name, _shown(labels)
            self._numbers[key] = self._numbers.get(key, 0) + value

    def ended(self, outcome: str, took: float) -> None:
        """Count a pass that ended; its outcome is `ok` or `failed`."""
        self.add("passes_total", outcome=outcome)
        self.set("last_pass_seconds", took)
        self.set("last_pass_timestamp_seconds", time.time())
        if outcome == "ok":
            self.set("last_success_timestamp_seconds", time.time())

    @property
    def text(self) -> str:
        with self._lock:
            numbers = sorted(self._numbers.items())
        lines: list[str] = []
        for (name, labels), value in numbers:
            whole = f"{self.prefix}_{name}"
            if f"# TYPE {whole} {_HELP[name][0]}" not in lines:
                lines += [f"# HELP {whole} {_HELP[name][1]}", f"# TYPE {whole} {_HELP[name][0]}"]
            lines.append(f"{whole}{labels} {value:.10g}" if name.endswith("_total") else f"{whole}{labels} {value:.3f}")
        return "\n".join([*lines, ""])


def _shown(labels: dict[str, str]) -> str:
    told = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in sorted(labels.items()))
    return f"{{{told}}}" if told else ""


@contextmanager
def served(metrics: Metrics, port: int | None) -> Iterator[int | None]:
    """Serve the metrics on the loopback interface while entered; without a port, not at all. 0 is any free port."""
    if port is None:
        yield None
        return
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(metrics))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            body = metrics.text.encode() if self.path == "/metrics" else b"see /metrics\n"
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log no request: nobody would read it."""

    return Handler
