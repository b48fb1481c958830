"""Where the time of one request goes: each part on its own, in this process, by turns.

    python -m tests.benchmarks.parts [--facts 10000] [--database sqlite] [--profile]

The processor's time in microseconds, the best of many turns. `--profile` adds what cProfile says of whole requests.
What the server's own threads and sockets cost is the difference to `tests.benchmarks.service`.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count

import django
import orjson

from tests.benchmarks.clients import Clients, request
from tests.benchmarks.generate import Size
from tests.benchmarks.served import Served, served
from tests.benchmarks.service import EMPTY

TURNS, CALLS = 15, 300
Part = tuple[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--facts", type=int, default=10_000)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with served(options.database, Size(options.facts)) as server:
        with closing(Clients(server.port, 1)) as clients:
            over_http = [middle_of(clients, server.key, path) for path in ("/empty", "/authorize")]
        django.setup()
        for name, taken in measured(parts(server)):
            print(f"{name:42}{taken:8.1f}")
        print(f"{'over HTTP: the empty view, /authorize':42}{over_http[0]:8.1f}{over_http[1]:8.1f}")
        if options.profile:
            profile(server.key)


def middle_of(clients: Clients, key: str, path: str) -> float:
    times = sorted(clients.ask([request(key, path, EMPTY, lambda said: "allowed" in said)], 2).times)
    return times[len(times) // 2] * 1e6


def measured(parts: list[Part]) -> list[tuple[str, float]]:
    best = [float("inf")] * len(parts)
    for _ in range(TURNS):
        for index, (_, act) in enumerate(parts):
            started = time.thread_time()
            for _ in range(CALLS):
                act()
            best[index] = min(best[index], (time.thread_time() - started) / CALLS * 1e6)
    return [(name, taken) for (name, _), taken in zip(parts, best)]


def parts(server: Served) -> list[Part]:
    """From the outside in. Only here is it known what a request calls."""
    from authz_project.keys import caller_of_token
    from checks.asking import ask, run
    from checks.asking.askers import session_now
    from checks.asking.question import Question, allow
    from checks.serializers import AuthorizeQuery
    from policy.serializers import decoded

    body, who = orjson.dumps(EMPTY), caller_of_token(server.key)
    fields, numbers = decoded(AuthorizeQuery, EMPTY), count()

    def question() -> Question:
        return allow(fields["actor"], fields["action"], fields["resource"])

    def new() -> bytes:
        return orjson.dumps(EMPTY | {"nonce": next(numbers)})

    asked = question()
    ask.answer(who, asked)
    session = session_now(who)
    (ready,) = session.statements_for([asked])
    slots = ready.slots | {"key": who.key_hash}
    return [
        ("a request of the empty view", lambda: answered(server.key, "/api/empty", body)),
        ("a request of /authorize, a new one", lambda: answered(server.key, "/api/authorize", new())),
        ("a request of /authorize, asked before", lambda: answered(server.key, "/api/authorize", body)),
        ("  authentication: the key to its caller", lambda: caller_of_token(server.key)),
        ("  JSON in and out", lambda: (orjson.loads(body), orjson.dumps({"allowed": True}))),
        ("  serializer", lambda: decoded(AuthorizeQuery, EMPTY)),
        ("  the question, asked", lambda: ask.answer(who, asked)),
        ("    shape lookup: its statement and values", lambda: session.statements_for([asked])),
        ("    execution, by the driver", lambda: run.execute(ready.statement, slots)),
    ]


def answered(key: str, path: str, body: bytes) -> bytes:
    """What the application answers to a server that hands it this request."""
    from authz_project.wsgi import application

    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8080",
        "HTTP_HOST": "127.0.0.1:8080",
        "HTTP_AUTHORIZATION": f"Bearer {key}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.url_scheme": "http",
    }
    return b"".join(application(environ, lambda status, headers: None))


def profile(key: str) -> None:
    profiler, body = cProfile.Profile(), orjson.dumps(EMPTY)
    profiler.enable()
    for _ in range(2000):
        answered(key, "/api/authorize", body)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
