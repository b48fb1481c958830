"""Relations that are reached by steps, where not every two steps may meet: what holds, and in how many statements."""

import pytest

from tests.checks.conftest import about, fact, publish, store
from tests.checks.in_memory import Engine
from tests.checks.plan_questions import question_of

BLOCKS = """
actor User {} actor Team {} resource Doc { permissions = ["read"]; relations = { owner: Team }; }
has_permission(u: User, "read", d: Doc) if joined(u, t) and t matches Team and has_relation(d, "owner", t);
"""
NEAR = "joined(x, z) if near(x, z);"
CHAIN = ("User:ann", "Team:1"), ("Team:1", "Team:2"), ("Team:2", "Team:3"), ("Team:3", "Team:4")


def readable(api, rules: str, *facts: dict, chain=CHAIN) -> list[str]:
    """The documents that ann can read; each team owns the one of its name."""
    publish(api, BLOCKS + NEAR + rules)
    owned = (fact("has_relation", f"Doc:{team}", "owner", f"Team:{team}") for team in (1, 2, 3, 4))
    store(api, *(fact("near", *ends) for ends in chain), *owned, *facts)
    asked = about("User:ann", action="read", resource_type="Doc", page_size=10_000)
    return sorted(api.post("/list", asked).json()["results"])


def test_nobody_is_led_past_what_the_guard_holds_back(api):
    rule = "joined(x: Actor, z: Actor) if joined(x, y) and joined(y, z) and not closed(y);"
    assert readable(api, rule, fact("closed", "Team:3")) == ["1", "2", "3"]


def test_a_guard_of_the_first_hop_says_nothing_of_those_that_follow(api):
    """From team 1 on, teams are joined without a guard; only where ann joins them, it counts."""
    rules = """
    joined(x: User, z: Team) if joined(x, y) and y matches Team and joined(y, z) and open(y);
    joined(x: Team, z: Team) if joined(x, y) and joined(y, z);
    """
    assert readable(api, rules, fact("open", "Team:1")) == ["1", "2", "3", "4"]


def test_a_guard_of_the_hops_that_follow_says_nothing_of_the_first(api):
    rules = """
    joined(x: User, z: Team) if joined(x, y) and y matches Team and joined(y, z);
    joined(x: Team, z: Team) if joined(x, y) and joined(y, z) and open(y);
    """
    assert readable(api, rules) == ["1", "2", "3", "4"]


def test_what_is_asked_of_the_end_counts_at_the_end_of_each_joined_pair_only(api):
    """No team on the way is open, but two of its hops join team 1 with 3, and 3 with 4, if those are."""
    rule = "joined(x: Actor, z: Actor) if joined(x, y) and joined(y, z) and open(z);"
    opened = [fact("open", f"Team:{team}") for team in (3, 4)]
    assert readable(api, rule, *opened) == ["1", "3", "4"]


def test_steps_lead_through_values_that_the_closure_is_not_about(api):
    """From an actor to an actor by way of a document is one step, though a document is no actor."""
    rule = "joined(x: Actor, z: Actor) if joined(x, y) and joined(y, z);"
    chain = ("User:ann", "Team:1"), ("Team:1", "Doc:way"), ("Doc:way", "Team:2"), ("Team:2", "Team:3")
    assert readable(api, rule, chain=chain) == ["1", "2", "3"]


def test_steps_that_go_both_ways_meet_where_the_guard_lets_them(api):
    rules = """
    joined(z: Actor, x: Actor) if joined(x, z);
    joined(x: Actor, z: Actor) if joined(x, y) and joined(y, z) and not closed(y);
    """
    chain = ("Team:1", "User:ann"), ("Team:2", "Team:1"), ("Team:2", "Team:3"), ("Team:4", "Team:3")
    assert readable(api, rules, fact("closed", "Team:3"), chain=chain) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "rules",
    [
        NEAR + "joined(x: Team, z: Team) if joined(x, y) and joined(y, z) and not closed(y);",
        NEAR + "joined(x: Team, z: Team) if joined(x, y) and joined(y, z); joined(z: Team, x: Team) if joined(x, z);",
        """
        joined(x: Actor, z: Actor) if near(x, z);
        joined(x: Actor, z: Actor) if joined(x, y) and joined(y, z) and not closed(y);
        """,
    ],
)
@pytest.mark.parametrize("question", ["joined(Team, Team?)", "joined(Team?, Team)", "joined(Team, Team)"])
def test_one_statement_answers(rules, question):
    engine = Engine(BLOCKS + rules)
    shape, _ = engine.shape([question_of(question)[0]])
    assert not engine.compiled_for(shape).rounds
