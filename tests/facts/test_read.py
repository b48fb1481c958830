"""GET /facts and what lies under it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from facts import read, store
from facts.store import Inserts
from facts.wire import Argument, Fact
from policy.values import Value


def fact(predicate: str, *args: str) -> Fact:
    return Fact(predicate, tuple(Value(*arg.split(":")) for arg in args))


FACTS = [
    fact("is_public", "Repo:a"),
    fact("member", "User:ann", "Team:t"),
    fact("member", "User:bob", "Team:t"),
    fact("has_role", "User:ann", "String:admin", "Repo:a"),
    fact("has_role", "User:ann", "String:admin", "Org:a"),
    fact("quota", "User:ann", "Integer:7"),
]


@pytest.fixture
def filled(api):
    store.apply(api.environment.id, [Inserts(FACTS)])
    return api


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 6),
        ("?predicate=", 6),
        ("?predicate=member", 2),
        ("?predicate=nothing", 0),
        ("?predicate=has_role&args.0.type=User", 2),
        ("?predicate=has_role&args.2.type=Repo", 1),
        ("?predicate=has_role&args.0.type=User&args.0.id=ann&args.2.type=Repo&args.2.id=a", 1),
        ("?predicate=member&args.1.type=Team&args.1.id=t", 2),
        ("?args.0.type=User&args.0.id=ann", 4),
        ("?args.0.id=ann", 4),
        ("?args.1.type=Integer&args.1.id=007", 1),
        ("?predicate=member&args.2.type=Team", 0),
        ("?predicate=member&args.9.type=Team", 0),
        ("?predicate=member&args.0.type=User&args.0.id=", 0),
        ("?args.0.type=&predicate=member", 0),
    ],
)
def test_patterns_are_open_ended(filled, query, found):
    answer = filled.get(f"/facts{query}")
    assert answer.status_code == 200
    assert len(answer.json()) == found


def test_facts_come_by_predicate_and_then_by_arguments(filled):
    found = read.found(filled.environment.id, None, ()).facts
    assert found == sorted(FACTS, key=lambda each: (each.predicate, each.args))


@pytest.mark.parametrize(
    "query", ["?args.0.type=Integer&args.0.id=x", "?predicate=a%00b", "?args.0.type=T&args.0.id=%00"]
)
def test_impossible_queries_are_refused(filled, query):
    answer = filled.get(f"/facts{query}")
    assert answer.status_code == 400
    assert isinstance(answer.json()["message"], str)


def test_stats_count_roles_relations_and_all(filled):
    assert filled.get("/stats").json() == {"num_roles": 2, "num_relations": 0, "num_facts": 6}


IDS = [
    "Bob",
    "bob",
    "bob ",
    " bob",
    "caf\u00e9",
    "cafe\u0301",
    "a'b",
    'a"b',
    "%s",
    "$1",
    "?",
    "a\\b",
    "-- x",
    "\u2028",
    "\U0001f600",
    "x" * 512,
]


def test_ids_are_compared_byte_by_byte(api):
    store.apply(api.environment.id, [Inserts([Fact("p", (Value("User", text),)) for text in IDS])])
    assert len(read.found(api.environment.id, "p", ()).facts) == len(IDS)
    for text in IDS:
        assert [each.args[0].id for each in read.found(api.environment.id, "p", (Argument("User", text),)).facts] == [
            text
        ]


def test_five_longest_arguments_fit(api):
    longest = Fact("p", tuple(Value("T", chr(0x1F600 + n) * 128) for n in range(5)))
    store.apply(api.environment.id, [Inserts([longest])])
    assert read.found(api.environment.id, "p", ()).facts == [longest]


def test_readers_see_whole_batches(api):
    """Pairs of facts of ever new signatures go in together: no reader sees one half."""
    stop = []

    def write() -> None:
        for n in range(40):
            pair = [fact(f"p{n}", "User:a"), fact(f"q{n}", "User:a")]
            store.apply(api.environment.id, [Inserts(pair)])
        stop.append(True)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        while not stop and not writer.done():
            assert len(read.found(api.environment.id, None, ()).facts) % 2 == 0
        writer.result()
