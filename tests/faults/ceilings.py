"""Requests that would take gigabytes: how much memory do the workers take at most, and what do they give back?

    python -m tests.faults.ceilings [--database postgres]

Sets of many facts of a kilobyte are joined with one another, listed, queried and explained: each question once, and
twelve times at once; then come twelve large batches at once, and bodies that are small as text and large once parsed.
All the while, memory is that of two workers together, what they share counted for each.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psutil
import requests

from tests.faults.limits import workers_of
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import World, fact, world
from tests.service import Client, Service

POLICY = """
actor User {}
resource Item { permissions = ["read"]; }
resource Key {}
joined(x: Item, y: Item) if left(x, k) and right(y, k) and k matches Key;
crossed(x: Item, y: Item) if left(x, _) and right(y, _);
pair(x: Item, k: Key) if left(x, k);
pair(x: Item, k: Key) if right(x, k);
reach(x: Item, y: Item) if next(x, y);
reach(x: Item, z: Item) if next(x, y) and reach(y, z);
double(x: Item, y: Item) if next(x, y);
double(x: Item, z: Item) if double(x, y) and double(y, z);
has_permission(_: User, "read", i: Item) if pair(i, _);
"""
WORKERS = 2
SIZE, CHAIN = 15_000, 3_000  # facts of each set; and of a chain
LONG = "x" * 490
MOST = 600.0  # MB of both workers
KEPT = 120.0  # MB of both workers more than before, once all is answered
AT_ONCE = 12
RIGHT = (200, 400, 413, 503)


class Attacked(NamedTuple):
    before: float  # MB
    most: float
    after: float
    statuses: list[int]


def main() -> int:
    options = parser_of(__doc__).parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            failed |= printed(marks(attacked(place)), f"\n{kind}")
    return failed


def marks(found: Attacked, most: float = MOST) -> list[Mark]:
    strange = [each for each in found.statuses if each not in RIGHT]
    return [
        none_of("neither answered nor refused", len(strange), len(found.statuses)),
        at_most("memory of the workers", most, found.most, " MB"),
        at_most("memory that is not given back", KEPT, found.after - found.before, " MB"),
        Mark("answered", "any", str(found.statuses.count(200)), True),
    ]


def attacked(place: World, size: int = SIZE, chain: int = CHAIN, at_once: int = AT_ONCE, **settings: str) -> Attacked:
    service = place.started("--workers", str(WORKERS), LOG_LEVEL="CRITICAL", **settings)
    client = service.client(place.key)
    _fill(client, size, chain)
    time.sleep(1)
    before, statuses = _megabytes(service), list[int]()
    with _peak(service) as peak, ThreadPoolExecutor(at_once) as pool:
        for ask in _hostile(client, size):
            statuses.append(ask())
            statuses += pool.map(lambda each: each(), [ask] * at_once)
        time.sleep(2)
    after = _megabytes(service)
    service.stop()
    return Attacked(before, max(peak), after, statuses)


def _fill(client: Client, size: int, chain: int) -> None:
    client.post("/policy", {"src": POLICY}).raise_for_status()
    for name in ("left", "right"):
        for start in range(0, size, 5_000):
            numbers = range(start, min(start + 5_000, size))
            facts = [fact(name, ("Item", f"{name}{n}{LONG}"), ("Key", f"k{n % 300}{LONG}")) for n in numbers]
            client.post("/batch", [{"inserts": facts}]).raise_for_status()
    facts = [fact("next", ("Item", f"n{n}{LONG}"), ("Item", f"n{n + 1}{LONG}")) for n in range(chain)]
    client.post("/batch", [{"inserts": facts}]).raise_for_status()


def _hostile(client: Client, size: int) -> Iterator[Callable[[], int]]:
    """Yield functions that send one request each, and return its status."""
    item, key = {"type": "Item"}, {"type": "Key"}
    both = {"constraints": {"x": item, "y": item}}
    for name in ("joined", "crossed", "reach", "double"):
        yield _posted(client, "/evaluate_query", both | {"predicate": [name, ["x", "y"]]})
    four = {"predicate": ["crossed", ["x", "y"]], "calls": [["crossed", ["z", "w"]]]}
    yield _posted(client, "/evaluate_query", four | {"constraints": dict.fromkeys("xyzw", item)})
    yield _posted(client, "/evaluate_query", {"predicate": ["pair", ["x", "k"]], "constraints": {"x": item, "k": key}})
    yield _posted(client, "/query", {"fact": {"predicate": "pair", "args": [None, None]}, "context_facts": []})
    about = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Item", "context_facts": []}
    yield _posted(client, "/list", about | {"page_size": 100_000})
    yield _posted(client, "/explain", about | {"resource_id": "none"})
    yield lambda: _status(lambda: client.get("/facts"))
    facts = [fact("left", ("Item", f"b{n}"), ("Key", "k")) for n in range(size * 6)]
    yield _posted(client, "/batch", [{"deletes": facts}])
    for text in (b"[]", b"{}", b'{"a":1}', b'"a"', b"1.5"):
        yield _posted(client, "/authorize_each", b"[" + b",".join([text] * (size * 600 // (len(text) + 1))) + b"]")


def _posted(client: Client, path: str, body: object) -> Callable[[], int]:
    if isinstance(body, bytes):
        return lambda: _status(lambda: client.request("POST", path, data=body))
    return lambda: _status(lambda: client.post(path, body))


def _status(ask: Callable[[], requests.Response]) -> int:
    try:
        return ask().status_code
    except requests.RequestException:
        return 0


@contextmanager
def _peak(service: Service) -> Iterator[list[float]]:
    """Measure all the while."""
    found, is_over = [_megabytes(service)], threading.Event()

    def measure() -> None:
        while not is_over.wait(0.02):
            with suppress(psutil.Error):
                found[0] = max(found[0], _megabytes(service))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def _megabytes(service: Service) -> float:
    return sum(each.memory_info().rss for each in workers_of(service)) / 1e6


if __name__ == "__main__":
    sys.exit(main())
