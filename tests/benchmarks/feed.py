"""How fast changes are read, and how long after its commit a change is told.

    python -m tests.benchmarks.feed [--facts 200000] [--limit 1000] [--woken 50] [--databases sqlite,postgres]

prints, of a server with one process over SQLite and over durable PostgreSQL: changes a second of one reader over HTTP,
of revisions of 1,000 facts, of revisions of one fact and of one large load in parts; and the milliseconds from a
change's answer to the answer of somebody who waits for it, in the same server and in another one (median, slowest).
The marks are 50,000 changes a second and 300 ms.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import orjson
import requests

from tests import postgresql
from tests.benchmarks.loads import made_up_facts
from tests.service import Client, Service, start_service

BATCH = 1000  # facts
SINGLES = 3000  # changes


def main() -> None:
    options = parsed()
    for kind in options.databases.split(","):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = f"sqlite:///{folder / 'facts.sqlite3'}"
            if kind == "postgres":
                server = postgresql.start(durable=True)
                if server is None:
                    raise SystemExit("no PostgreSQL can be started here")
                stack.callback(server.stop)
                url = server.create("benchmark")
            service, other = (stack.enter_context(started(folder, url)) for _ in range(2))
            measure(kind, service, other, options)


@contextmanager
def started(folder: Path, url: str) -> Iterator[Service]:
    secret = "4 benchmarks: 0123456789 abcdefgh"
    service = start_service(folder, url, "--dev", "--workers", "1", SECRET_KEY=secret)
    try:
        yield service
    finally:
        service.stop()


def measure(kind: str, service: Service, other: Service, options: argparse.Namespace) -> None:
    facts = made_up_facts(options.facts)

    def show(name: str, store: Callable[[Client], int]) -> None:
        client = service.fresh_client()
        expected = store(client)
        rates = [read(client, options.limit, expected) for _ in range(3)]
        print(f"{kind:<10}{name:<36}{max(rates):>10,.0f} changes/s", flush=True)

    show(f"revisions of {BATCH:,} facts", lambda client: in_batches(client, facts, BATCH))
    show("revisions of one fact", lambda client: in_batches(client, facts[:SINGLES], 1))
    show("one revision, in parts", lambda client: in_batches(client, facts[:50_000], 50_000))
    for name, writing in (("the same server", service), ("another server", other)):
        client = service.fresh_client()
        late = [woken(client, Client(writing.origin, client.key), facts[n]) for n in range(options.woken)]
        print(f"{kind:<10}told of {name:<28}{median(late):>7.1f} ms, at most {max(late):.1f} ms", flush=True)


def in_batches(client: Client, facts: list[dict], size: int) -> int:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {client.key}"
    for start in range(0, len(facts), size):
        answer = session.post(f"{client.origin}/api/batch", orjson.dumps([{"inserts": facts[start : start + size]}]))
        assert answer.status_code == 200, answer.text
    return len({orjson.dumps(each) for each in facts})


def read(client: Client, limit: int, expected: int) -> float:
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {client.key}"
    after, texts, began = 0, [], time.perf_counter()
    while True:
        texts.append(session.get(f"{client.origin}/api/changes?after={after}&limit={limit}").content)
        end = orjson.loads(b"{" + texts[-1][texts[-1].rindex(b'"next"') :])
        after = end["next"]
        if not end["more"]:
            break
    seconds = time.perf_counter() - began
    assert sum(len(change["inserted"]) for text in texts for change in orjson.loads(text)["changes"]) == expected
    return expected / seconds


def woken(reader: Client, writer: Client, fact: dict) -> float:
    """Milliseconds from the answer to a change to the answer to who waits for it; 0 where that comes first."""
    after, told = last(reader), []

    def wait() -> None:
        changes = reader.get(f"/changes?after={after}&wait=10").json()["changes"]
        told.append((time.perf_counter(), len(changes)))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    writer.post("/facts", fact)
    committed = time.perf_counter()
    thread.join()
    assert told[0][1] == 1
    return max(0.0, told[0][0] - committed) * 1000


def last(client: Client) -> int | str:
    """Where the changes end."""
    after: int | str = 0
    while True:
        answer = client.get(f"/changes?after={after}").json()
        after = answer["next"]
        if not answer["more"]:
            return after


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, default=200_000)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--woken", type=int, default=50, help="changes that somebody waits for")
    parser.add_argument("--databases", default="sqlite,postgres")
    return parser.parse_args()


if __name__ == "__main__":
    main()
