"""Planning ends within its limit, says which limit it was, and does not begin again at once."""

import gc
import time

import pytest

from checks.asking import ask
from checks.asking.ask import rule_sets, rules_of_program
from checks.engine.compile import Root, Shape, compiled
from checks.engine.rules.clauses import Call, Slot, Var, bounded, tick
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.text import SQLite
from checks.errors import PlannedTooLong
from policy.language.source import Source
from policy.rules import compile_source
from tests.checks.conftest import about, fact, publish, store
from tests.checks.in_memory import Known

DIALECT = SQLite()
KINDS = [f"Kind{number}" for number in range(12)]
# A closure without types that goes both ways, over facts of any two of a dozen types.
ENDLESS = f"""
actor User {{}}
resource Doc {{ permissions = ["read", "see"]; }}
{" ".join(f"resource {kind} {{}}" for kind in KINDS)}
linked(x, y) if near(x, y);
linked(y, x) if linked(x, y);
linked(x, z) if linked(x, y) and linked(y, z) and linked(z, x);
has_permission(u: User, "read", d: Doc) if linked(d, e) and e matches Resource and linked(e, u);
has_permission(u: User, "see", d: Doc) if owner(u, d);
"""


def shape(width: int) -> Shape:
    ends = (Slot("d"), Var(0)) if width else (Slot("d"), Slot("e"))
    return Shape((Root((Call("linked", ("Doc", "Kind0"), ends),)),), width)


def planned(rules: RuleSet, width: int = 0) -> float:
    """Processor time, in seconds, after which planning was refused."""
    gc.freeze()  # the garbage collector's time for what other tests keep would count
    started = time.thread_time()
    with pytest.raises(PlannedTooLong, match=r"exceeds 0\.2 s of CPU time \(a fifth of STATEMENT_TIMEOUT\)"):
        compiled(rules, shape(width), DIALECT, Known(lambda signature: 1))
    seconds = time.thread_time() - started
    gc.unfreeze()
    return seconds


def test_planning_ends_within_its_limit_and_is_not_begun_again():
    rules = RuleSet(compile_source(Source(ENDLESS)), patience=0.2)
    assert planned(rules) < 0.6
    assert planned(rules) < 0.05
    assert planned(rules, width=1) > 0.1  # another question


def test_the_limit_is_a_fifth_of_the_time_of_a_request(settings):
    settings.STATEMENT_TIMEOUT = 1
    planned(rules_of_program(compile_source(Source(ENDLESS))))


def test_what_was_refused_is_planned_again_after_a_while(monkeypatch):
    monkeypatch.setattr("checks.engine.rules.clauses.REFUSED_FOR", 0.0)
    rules = RuleSet(compile_source(Source(ENDLESS)), patience=0.2)
    planned(rules)
    assert planned(rules) > 0.1


def test_a_bound_inside_of_another_cannot_take_longer():
    with bounded(0.05), pytest.raises(PlannedTooLong, match=r"0\.05 s"), bounded(100):
        while True:
            tick()


def test_others_are_answered_by_the_same_policy(api, monkeypatch):
    monkeypatch.setattr(ask, "planning_timeout", lambda: 0.2)
    rule_sets.clear()
    publish(api, ENDLESS)
    near = [fact("near", f"{one}:1", f"{other}:2") for one in (*KINDS, "Doc") for other in (*KINDS, "User")]
    store(api, fact("owner", "User:ann", "Doc:1"), *near)
    refused = api.post("/authorize", about("User:ann", "Doc:1", action="read"))
    assert refused.status_code == 400
    message = refused.json()["message"]
    assert "(a fifth of STATEMENT_TIMEOUT)" in message
    assert "the rule at line 7, `linked(x, z) if linked(x, y) and linked(y, z) and linked(z, x);`" in message
    assert api.post("/authorize", about("User:ann", "Doc:1", action="see")).json() == {"allowed": True}
