"""What a question costs this process: without replicas, by the primary beside replicas, and by a replica.

    python -m tests.benchmarks.replicas [--rounds 15] [--questions 400]

One process, asked as its server asks it, over a primary and a standby that stream here; the three take turns. Given are
microseconds of a processor of this process for each question, and of the clock: the medians of all rounds.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import django
import orjson

os.environ["ANSWER_CACHE"] = "0"
os.environ["DJANGO_SETTINGS_MODULE"] = "authz_project.settings"
os.environ.setdefault("DATABASE_URL", "postgres://nobody@127.0.0.1/nothing")  # until there is one
django.setup()

from django.conf import settings  # noqa: E402

from authz_project.keys import create_key  # noqa: E402
from authz_project.wsgi import short_answer  # noqa: E402
from policy.models import default_environment  # noqa: E402
from policy.replicas.watch import ReplicaWatch  # noqa: E402
from tests.replicas.cluster import cluster, connected, is_used, wait_for  # noqa: E402
from tests.replicas.conftest import POLICY, asked, role  # noqa: E402

FACTS = 1_000
WITHOUT, BY_PRIMARY, BY_REPLICA = "without replicas", "by the primary, beside replicas", "by a replica"


class Cost(NamedTuple):
    processor: float  # microseconds of a question
    clock: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--questions", type=int, default=400, help="of each turn")
    options = parser.parse_args()
    servers = cluster(standbys=1)
    if servers is None:
        sys.exit("no PostgreSQL can be started here")
    try:
        with connected((servers.url, servers.replica_urls), migrate=True) as watching:
            found = rounds(watching, options.rounds, options.questions)
    finally:
        servers.stop()
    for name, cost in found.items():
        print(f"{name:34}{cost.processor:6.0f} µs of a processor{cost.clock:6.0f} µs")
    ratio = found[BY_REPLICA].processor / found[WITHOUT].processor
    print(f"one by a replica takes {ratio:.2f} of the processor that one without replicas takes")
    return 0


def rounds(watching: ReplicaWatch, count: int, questions: int) -> dict[str, Cost]:
    _, key = create_key(default_environment())
    send(key, "/api/policy", {"src": POLICY})
    send(key, "/api/bulk_load", [role(f"user{number}", f"doc{number}") for number in range(FACTS)])

    def is_answered() -> bool:
        send(key, "/api/authorize", asked("user1", "doc1"))
        return all(each.answers and is_used(each, watching) for each in watching.replicas)

    wait_for(is_answered, "the replica answers")
    names, costs = dict(settings.REPLICAS), {WITHOUT: [], BY_PRIMARY: [], BY_REPLICA: []}
    ways: dict[str, Callable[[], None]] = {
        WITHOUT: lambda: choose({}, "after-writes"),
        BY_PRIMARY: lambda: choose(names, "positioned"),
        BY_REPLICA: lambda: choose(names, "after-writes"),
    }
    for turn in range(count + 1):
        for name in sorted(ways, reverse=bool(turn % 2)):
            ways[name]()
            before = watching.replicas[0].answers
            cost = measured(key, questions)
            answered = watching.replicas[0].answers - before
            assert (answered > questions * 0.9) == (name == BY_REPLICA), (name, answered)
            if turn:
                costs[name].append(cost)
    return {name: Cost(*map(median, zip(*each))) for name, each in costs.items()}


def choose(replicas: dict[str, str], reads: str) -> None:
    settings.REPLICAS, settings.REPLICA_READS = replicas, reads


def measured(key: str, questions: int) -> Cost:
    clock, processor = time.perf_counter(), time.process_time()
    for number in range(questions):
        send(key, "/api/authorize", asked(f"user{number % FACTS}", f"doc{number % FACTS}"))
    taken = time.process_time() - processor, time.perf_counter() - clock
    return Cost(*(seconds * 1_000_000 / questions for seconds in taken))


def send(key: str, path: str, body: object) -> None:
    text = orjson.dumps(body)
    environ = {
        "REQUEST_METHOD": "POST", "PATH_INFO": path, "QUERY_STRING": "", "CONTENT_LENGTH": str(len(text)),
        "wsgi.input": io.BytesIO(text), "HTTP_AUTHORIZATION": f"Bearer {key}",
    }  # fmt: skip
    answer = short_answer(environ)
    assert answer is not None and answer.status == 200, answer


if __name__ == "__main__":
    sys.exit(main())
