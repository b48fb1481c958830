"""Policies of many types over random facts: every decision and list is the oracle's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import pytest

from checks.engine.sql.text import MANY, READS, NumberTest, SQLite, Text, finished, settled, union
from policy.language import parse
from policy.language.source import Source
from policy.rules import compile_text
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER, STRING, Value
from tests.checks.conftest import about, fact, publish, store
from tests.checks.in_memory import Engine
from tests.checks.large_policies import GROUPS, NESTED, chain, diamond, untyped
from tests.checks.plan_questions import signatures_of
from tests.reference import Row, World, model_of
from tests.sampling import in_turns

GROUPED = "actor Group {}\n" + GROUPS + NESTED
CHANGING = """actor User {}
resource T0 { roles = ["viewer", "editor"]; permissions = ["read"]; "read" if "viewer"; "viewer" if "editor"; }
resource T1 {
  roles = ["viewer", "editor"]; permissions = ["read"]; relations = { parent: T0 };
  "read" if "viewer"; "viewer" if "editor"; "viewer" if "editor" on "parent"; "editor" if "editor" on "parent";
}
resource T2 {
  roles = ["viewer", "editor"]; permissions = ["read"]; relations = { parent: T1 };
  "read" if "viewer"; "viewer" if "editor"; "viewer" if "editor" on "parent"; "editor" if "editor" on "parent";
}
"""
GUARDED = """
has_role(u: User, "viewer", x: T2) if lent(x, y) and y matches T0 and has_role(u, "viewer", y) and not barred(u, x);
"""
DRIVEN = """actor Robot {}
has_role(u: User, r: String, x: Resource) if b matches Robot and drives(u, b) and has_role(b, r, x);
"""
# What is asked of the end is no guard of where two steps meet, so both calls are answers of the recursion: rounds.
LINKED = """actor User {}
resource T0 { permissions = ["read"]; }
resource T1 {}
linked(x, y) if near(x, y);
linked(x, z) if linked(x, y) and linked(y, z) and not blocked(z);
has_permission(u: User, "read", x: T0) if linked(u, x);
"""
POLICIES = {
    "links of anything with anything": (LINKED, "read", "T0"),
    "a chain": (chain(4) + GROUPED, "read", "T3"),
    "a chain by two ways": (chain(3) + GROUPED + DRIVEN, "read", "T2"),
    "a chain with a guard": (chain(3) + GROUPED + GUARDED, "read", "T2"),
    "roles that change": (CHANGING + GROUPED, "read", "T2"),
    "a diamond": (diamond(4, "or") + GROUPED, "read", "T3"),
    "attributes": (untyped(10), "read", "T9"),
    "attributes, and no lock": (untyped(10), "write", "T9"),
}

NAMES = {"has_role": ("viewer", "viewer", "editor", "r"), "has_relation": ("parent", "left", "right")}
IDS = 3


@pytest.mark.parametrize("seed", in_turns(range(2)))
@pytest.mark.parametrize("name", list(POLICIES))
def test_every_decision_and_list_is_the_oracles(api, name, seed):
    text, action, resource_type = POLICIES[name]
    publish(api, text)
    facts = list(dict.fromkeys(random_facts(text, Random(f"{name} {seed}"))))
    store(api, *(fact(predicate, *map(written, row)) for predicate, row in facts))
    policy = parse(Source(text))
    model = model_of(policy, facts, World.of(policy, facts))
    allowed = {
        (who.id, what.id) for who, act, what in model["allow", 3] if act.id == action and what.type == resource_type
    }
    assert allowed, "nobody may do anything, which shows nothing"
    for number in range(IDS):
        asked = about(f"User:User{number}", action=action, resource_type=resource_type, page_size=10_000)
        listed = {each for who, each in allowed if who == f"User{number}"}
        assert set(api.post("/list", asked).json()["results"]) == listed
        for each in (f"{resource_type}{other}" for other in range(IDS)):
            asked = about(f"User:User{number}", f"{resource_type}:{each}", action=action)
            assert api.post("/authorize", asked).json() == {"allowed": each in listed}


def random_facts(text: str, rng: Random) -> Iterator[tuple[str, Row]]:
    for signature in sorted(signatures_of(compile_text(text)), key=str):
        for _ in range(rng.choice((2, 3, 4))):
            yield (
                signature.predicate,
                tuple(random_value(signature, index, rng) for index in range(len(signature.types))),
            )


def random_value(signature: Signature, index: int, rng: Random) -> Value:
    kind = signature.types[index]
    if kind == STRING:
        return Value(STRING, rng.choice(NAMES.get(signature.predicate, ("team", "desk"))))
    if kind in (INTEGER, BOOLEAN):
        return Value(kind, rng.choice(("1", "2") if kind == INTEGER else ("true", "false")))
    return Value(kind, f"{kind}{rng.randrange(IDS)}")


def written(value: Value) -> str:
    return value.id if value.type == STRING else f"{value.type}:{value.id}"


# ---- in rounds ------------------------------------------------------------------------------------------------------


def test_in_rounds_many_arms_that_differ_in_numbers_are_one():
    """Also where a negation inside of them has one of these numbers: a row of numbers is one of them alone."""
    engine = Engine(LINKED)
    (rounds,) = engine.compiled("list", "read", "User", "T0").rounds
    statements = [step.statement.sql for step in rounds.steps]
    assert any("(VALUES (" in sql and "NOT EXISTS (SELECT 1 FROM authz_fact f3 WHERE f3.sig = n.column" in sql
               for sql in statements)  # fmt: skip
    assert sum(map(len, statements)) < 50_000  # 430_000 without


@pytest.mark.parametrize("seed", range(4))
def test_they_find_in_each_round_what_they_find_apart(seed, monkeypatch):
    facts = list(dict.fromkeys(random_facts(LINKED, Random(seed))))

    def answers() -> list:
        engine = Engine(LINKED)
        for predicate, row in facts:
            engine.store(predicate, *(f"{value.type}:{value.id}" for value in row))
        made = engine.compiled("list", "read", "User", "T0")
        return [sorted(engine.rows(made, {"actor": f"User{number}", "now": 0})) for number in range(IDS)]

    together = answers()
    monkeypatch.setattr("checks.engine.sql.rounds.MANY", 1_000_000)
    assert answers() == together and any(together)


# ---- arms that differ in numbers ------------------------------------------------------------------------------------


def test_many_arms_that_differ_in_numbers_read_them_from_a_table():
    assert sql_of(arm(number, number + 100) for number in range(MANY)) == (
        "SELECT 1 FROM (VALUES (0, 100), (1, 101), (2, 102), (3, 103), (4, 104), (5, 105), (6, 106), (7, 107)) n"
        " CROSS JOIN fact f0 WHERE f0.sig = n.column1 AND f0.a1 = 'x' AND sig = n.column2"
    )


def test_a_number_that_all_share_stays():
    assert "sig = 5" in sql_of(arm(number, 5) for number in range(MANY))


def test_few_arms_stay():
    assert "VALUES" not in sql_of(arm(number, number) for number in range(MANY - 1))


def test_arms_that_differ_in_what_is_inside_of_them_stay():
    """For none of these numbers is something else than not for one of them."""
    inside = [("SELECT 1 WHERE NOT EXISTS (", *settled(arm(number, number)), ")") for number in range(MANY)]
    assert sql_of(inside).count("NOT EXISTS") == MANY


def arm(first: int, second: int) -> Text:
    return (
        "SELECT 1",
        READS,
        "fact f0 WHERE ",
        NumberTest("f0.sig", first),
        " AND f0.a1 = 'x' AND ",
        NumberTest("sig", second),
    )


def sql_of(arms: Iterable[Text]) -> str:
    return finished(union(arms, distinct=False), SQLite()).sql
