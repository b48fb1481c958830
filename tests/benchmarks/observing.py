"""What it takes to be seen: microseconds of a processor for each answer, in one process, without a network.

    python -m tests.benchmarks.observing [--turns 40] [--what metrics] [--what decision-log]

Some requests are answered without metrics (or the decision log, the access log, the look at slow questions, all of
these, or traces), the next with them, and so on: each few are compared with their neighbours, so that it hardly matters
what else the machine does. `answered` is what is added in the thread that answers; `behind`, what the thread behind it
takes to count, to write, or to put spans into bytes, for each answer. To be met by metrics and logs: 0.95 of the
throughput without, of answers that take 170 µs or more as servers give them: so both together may take 8 µs.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import django
import orjson
from django.core.management import call_command
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

POLICY = 'actor User {}\nresource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
IN_A_TURN, AT_ONCE = 500, 25
OF_A_SERVER = 170.0  # µs that the quickest answers of one take


class Kind(NamedTuple):
    """A way to be seen."""

    begin: Callable[[], object]
    end: Callable[[], object]
    behind: Callable[[], object]  # what its thread does, a few times a second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--what", action="append", help="only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DATABASE_URL": f"sqlite:///{Path(folder) / 'facts.sqlite3'}",
            "DJANGO_SETTINGS_MODULE": "authz_project.settings",
            "PROMETHEUS_MULTIPROC_DIR": folder,
        }
        django.setup()
        measure(Path(folder), options.turns, options.what or [])


def measure(folder: Path, turns: int, wanted: list[str]) -> None:
    from authz_project.keys import create_key
    from policy import publishing
    from policy.models import default_environment

    call_command("migrate", verbosity=0)
    environment = default_environment()
    key = create_key(environment)[1]
    publishing.publish(environment.pk, POLICY, None)
    numbers = count()
    gc.freeze()  # as servers have it, by `authz_project/wsgi.py`
    print(f"{'':34}{'without':>9}{'answered':>10}{'behind':>8}{'share of it':>13}{'of a server':>13}")
    for name, number in (("new questions", lambda: next(numbers)), ("again and again", lambda: next(numbers) % 50)):
        requests = partial(made, key, number)
        microseconds(requests())
        for what, kind in kinds(folder).items():
            if not wanted or what in wanted:
                off, answered, behind = compared(kind, turns, requests)
                both = answered + behind
                print(
                    f"{name:18}{what:16}{off:9.1f}{answered:+10.1f}{behind:+8.1f}"
                    f"{off / (off + both):13.3f}{OF_A_SERVER / (OF_A_SERVER + both):13.3f}",
                    flush=True,
                )


def kinds(folder: Path) -> dict[str, Kind]:
    """All there are, none of them begun, and without threads of their own."""
    from authz_project import observing
    from authz_project.logs import access, formats
    from authz_project.logs.access import tell_if_question
    from authz_project.metrics.worker import Worker
    from authz_project.traces.telemetry import Traces
    from checks.decisions import log
    from checks.decisions.log import Writer

    formats.STANDARD_ERROR = os.open(folder / "access", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    access.AccessLog._run = lambda self: None  # type: ignore[method-assign]
    Writer._start = lambda self: None  # type: ignore[method-assign]
    worker, writer = Worker(1, {}), Writer(str(folder / "decisions"), log.line_of)
    plain, json = access.AccessLog(access.plain), access.AccessLog(access.json)

    def seen(observer: observing.Observer, behind: Callable[[], object], least: float = 0.0) -> Kind:
        return Kind(lambda: observing.observe(observer, least), lambda: observing.stop(observer), behind)

    def log_to(file: Writer[log.Entry] | None) -> None:
        log.writer = file

    found = {
        "metrics": seen(worker.tallies.seen, worker.write),
        "access log": seen(plain, plain.flush),
        "access log, JSON": seen(json, json.flush),
        "decision log": Kind(lambda: log_to(writer), lambda: log_to(None), writer.flush),
        "slow questions": seen(tell_if_question, lambda: None, 0.5),
    }
    spans = Spans()
    traces = Traces(spans.provider.get_tracer("benchmark"))
    return found | {
        "all": together([found[name] for name in found if name != "access log"]),
        "traces": seen(traces, spans.encode),
    }


class Spans(SpanProcessor):
    """Keeps spans that have ended until they are put into the bytes that would be sent."""

    def __init__(self) -> None:
        self._ended: list[ReadableSpan] = []
        self.provider = TracerProvider()
        self.provider.add_span_processor(self)

    def on_end(self, span: ReadableSpan) -> None:
        self._ended.append(span)

    def encode(self) -> None:
        encode_spans(self._ended).SerializeToString()
        self._ended.clear()


def together(several: list[Kind]) -> Kind:
    return Kind(*(lambda does=does: [each() for each in does] for does in zip(*several)))  # type: ignore[misc]


def compared(kind: Kind, turns: int, requests: Callable[[], list[dict[str, object]]]) -> tuple[float, float, float]:
    """Return the median time without it, and what it adds before an answer and behind it."""
    times: list[tuple[float, float]] = []
    behind: list[float] = []
    for _ in range(turns):
        without, with_it = requests(), requests()
        for start in range(0, IN_A_TURN, AT_ONCE):
            off = microseconds(without[start : start + AT_ONCE])
            kind.begin()
            on = microseconds(with_it[start : start + AT_ONCE])
            kind.end()
            times.append((off, on))
        began = time.thread_time()
        kind.behind()
        behind.append((time.thread_time() - began) / IN_A_TURN * 1e6)
    return median(off for off, _ in times), median(on - off for off, on in times), median(behind)


def microseconds(requests: list[dict[str, object]]) -> float:
    """Answer them as a server's thread does, which is given each by another; return the time of one."""
    from authz_project import wsgi
    from policy.ground import spans

    began = time.thread_time()
    for environ in requests:
        if spans.is_on:
            environ[spans.WAITS_SINCE] = spans.now()
        assert wsgi.short_answer(environ).status == 200
    return (time.thread_time() - began) / len(requests) * 1e6


def made(key: str, number: Callable[[], int]) -> list[dict[str, object]]:
    return [dict(environ) for environ in environs(key, number)]


def environs(key: str, number: Callable[[], int]) -> Iterator[dict[str, object]]:
    for _ in range(IN_A_TURN):
        who = {"actor_type": "User", "actor_id": f"u{number()}"}
        body = orjson.dumps(who | {"action": "read", "resource_type": "Doc", "resource_id": "d"})
        yield {
            "REQUEST_METHOD": "POST", "PATH_INFO": "/api/authorize", "QUERY_STRING": "",
            "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body), "HTTP_AUTHORIZATION": f"Bearer {key}",
        }  # fmt: skip


if __name__ == "__main__":
    main()
