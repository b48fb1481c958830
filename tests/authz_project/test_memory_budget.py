"""A server with a small memory budget: what is too large is refused, what is many waits, and the rest is answered."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.limits import workers_of
from tests.faults.worlds import KINDS, fact, world

BUDGET = 20_000_000
SIZE = 4_000
LONG = "x" * 490
POLICY = """
actor User {}
resource Item {}
resource Key {}
pair(x: Item, k: Key) if left(x, k);
pair(x: Item, k: Key) if right(x, k);
crossed(x: Item, y: Item) if left(x, _) and right(y, _);
"""


def about(predicate: str, second: str) -> dict:
    constraints = {"x": {"type": "Item"}, "y": {"type": second}}
    return {"predicate": [predicate, ["x", "y"]], "constraints": constraints}


@pytest.fixture(scope="module", params=KINDS)
def served(request):
    """A server of one worker, with two sets of facts of a kilobyte."""
    with world(request.param) as place:
        service = place.started("--workers", "1", MEMORY_BUDGET=str(BUDGET), LOG_LEVEL="ERROR")
        client = service.client(place.key)
        client.post("/policy", {"src": POLICY}).raise_for_status()
        for name in ("left", "right"):
            for start in range(0, SIZE, 1_000):
                numbers = range(start, start + 1_000)
                facts = [fact(name, ("Item", f"{name}{n}{LONG}"), ("Key", f"k{n}{LONG}")) for n in numbers]
                client.post("/batch", [{"inserts": facts}]).raise_for_status()
        yield service, client, request.param
        service.stop()


def rss(service) -> float:
    return sum(each.memory_info().rss for each in workers_of(service)) / 1e6


def test_an_answer_over_the_budget_is_refused_by_the_name_of_the_setting(served):
    service, client, _ = served
    before = rss(service)
    for _ in range(3):
        refused = client.post("/evaluate_query", about("pair", "Key"))
        assert refused.status_code == 413 and "MEMORY_BUDGET allows (20 MB" in refused.json()["message"]
    assert client.get("/facts").status_code == 413
    assert client.get("/policy").status_code == 200
    time.sleep(1)  # it is given back a moment later
    assert rss(service) < before + 25


def test_what_a_statement_takes_in_sqlite_is_limited(served):
    service, client, kind = served
    if kind != "sqlite":
        pytest.skip("what PostgreSQL takes for a statement is PostgreSQL's")
    before = rss(service)
    refused = client.post("/evaluate_query", about("crossed", "Item"))
    assert refused.status_code == 413 and "MEMORY_BUDGET" in refused.json()["message"]
    time.sleep(1)
    assert rss(service) < before + 25


def test_bodies_that_do_not_fit_together_wait_for_one_another(served):
    _, client, _ = served
    facts = [[fact("left", ("Item", f"w{n}-{m}"), ("Key", "k")) for m in range(7_000)] for n in range(4)]
    bodies = [[{"inserts": each}] for each in facts]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda body: client.post("/batch", body), bodies))
    assert [each.status_code for each in answers] == [200] * 4


def test_a_body_that_is_large_once_parsed_is_refused(served):
    _, client, _ = served
    refused = client.request("POST", "/authorize_each", data=b"[" + b"{}," * 150_000 + b"{}]")
    assert refused.status_code == 413 and "MEMORY_BUDGET" in refused.json()["message"]
