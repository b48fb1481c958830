"""What it takes to count a request: microseconds of a processor, by one thread in this process, without a network.

    python -m tests.benchmarks.observing [--turns 40]

The same requests are answered with metrics, and before and after without: a turn is compared with its neighbours, so
that it hardly matters what else the machine does. `answered` is what is added while a request is answered; `counted`,
what is added when all that waits is counted, for each request.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median

import django
import orjson
from django.core.management import call_command

POLICY = 'actor User {}\nresource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }'
IN_A_TURN = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DATABASE_URL": f"sqlite:///{Path(folder) / 'facts.sqlite3'}",
            "DJANGO_SETTINGS_MODULE": "authz_project.settings",
            "PROMETHEUS_MULTIPROC_DIR": folder,
        }
        django.setup()
        measure(turns)


def measure(turns: int) -> None:
    from authz_project import observing, wsgi
    from authz_project.keys import create_key
    from authz_project.metrics.worker import Worker
    from policy import publishing
    from policy.models import default_environment

    call_command("migrate", verbosity=0)
    environment = default_environment()
    key = create_key(environment)[1]
    publishing.publish(environment.pk, POLICY, None)
    worker, numbers = Worker(1, {}), count()

    def microseconds(requests: list[dict[str, object]]) -> float:
        began = time.thread_time()
        for each in requests:
            assert wsgi.short_answer(each).status == 200
        return (time.thread_time() - began) / len(requests) * 1e6

    def counted() -> float:
        began = time.thread_time()
        worker.write()
        return (time.thread_time() - began) / IN_A_TURN * 1e6

    for name, number in (("new questions", lambda: next(numbers)), ("again and again", lambda: next(numbers) % 50)):
        microseconds(made(key, number))
        found: list[tuple[float, float, float]] = []
        for _ in range(turns):
            before = microseconds(made(key, number))
            observing.observe(worker.tallies.seen)
            on = microseconds(made(key, number))
            after = counted()
            observing.stop(worker.tallies.seen)
            off = (before + microseconds(made(key, number))) / 2
            found.append((off, on - off, after))
        off, answered, after = (median(each) for each in zip(*found))
        print(f"{name:20}{off:8.1f} µs without, answered +{answered:.1f}, counted +{after:.1f}", flush=True)


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
