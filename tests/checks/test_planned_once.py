"""What planning does once: values that are made and looked up, arms that are written, forms that are tried."""

import re
from dataclasses import FrozenInstanceError, field, replace
from itertools import product

import pytest

from checks.asking.question import Values
from checks.engine import compile as forms
from checks.engine.compile import Root, Shape
from checks.engine.plan import unfold
from checks.engine.rules.clauses import Call, Const, Other, Slot, Var, hashed_once, steps_taken, value
from checks.engine.sql import rounds
from checks.engine.sql.text import PostgreSQL, SQLite, Table, finished, fused
from policy.values import STRING
from tests.checks.in_memory import Engine

# ---- values ---------------------------------------------------------------------------------------------------------


@hashed_once
@value
class Point:
    x: int
    y: int = 7
    name: str = field(default="", compare=False)
    _hash: int = field(init=False, repr=False, compare=False)


def test_a_value_is_set_by_slots_and_frozen_as_before():
    made = Point(1, name="a")
    assert (made.x, made.y, made.name) == (1, 7, "a")
    assert made == Point(1, 7) and hash(made) == hash(Point(1, 7)) and made != Point(2)
    assert replace(made, x=2) == Point(2, 7, "a")
    with pytest.raises(FrozenInstanceError):
        made.x = 2
    with pytest.raises(TypeError):
        Point()


def test_a_value_is_just_what_it_is_made_of():
    class Derived:
        x: int

        def __post_init__(self) -> None: ...

    with pytest.raises(AssertionError, match="nothing is computed"):
        value(Derived)


def test_only_words_of_the_policy_are_part_of_a_statement():
    """Else each other word would have a statement of its own, and push another one out of the cache."""
    values = Values(frozenset({"read"}), {})
    assert [values.one(STRING, text) for text in ("read", "reed")] == [Const("read"), Other("v0")]
    assert values.one("User", "read") == Slot("v1")


# ---- texts ----------------------------------------------------------------------------------------------------------


def test_sql_that_stands_side_by_side_is_one_part():
    text = ("SELECT ", "1", " FROM ", Table("r0"), " WHERE ", "a0 = ", Slot("v0"), " AND ", "a1 = ", Const("x"))
    short = fused(text)
    assert short == ("SELECT 1 FROM ", Table("r0"), " WHERE a0 = ", Slot("v0"), " AND a1 = ", Const("x"))
    assert finished(short, SQLite()) == finished(text, SQLite())
    assert fused(()) == ()


# ---- forms of plans -------------------------------------------------------------------------------------------------

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if sees(u, d);
sees(u: User, d: Doc) if seen(u, d) and not shut(u, d);
sees(u: User, d: Doc) if linked(u, d) and not shut(u, d);
shut(u: User, d: Doc) if blocked(u, d);
shut(u: User, d: Doc) if closed(d);
linked(u: User, d: Doc) if near(u, d);
linked(u: User, d: Doc) if linked(u, e) and e matches Doc and near(e, d);
"""
FACTS = (
    ("seen", "User:ann", "Doc:1"), ("closed", "Doc:1"), ("seen", "User:ben", "Doc:4"), ("blocked", "User:ann", "Doc:3"),
    ("near", "User:ann", "Doc:2"), ("near", "Doc:2", "Doc:3"), ("near", "Doc:3", "Doc:4"),
)  # fmt: skip
ANSWERS = {"ann": ["2", "4"], "ben": ["4"], "eve": []}


def filled() -> Engine:
    engine = Engine(POLICY)
    for predicate, *args in FACTS:
        engine.store(predicate, *args)
    return engine


def test_statements_of_a_round_define_what_they_read_and_no_more(monkeypatch):
    for name in ("_written_out", "_tabled"):
        monkeypatch.setattr(forms._Fitting, name, lambda *_: None)
    monkeypatch.setattr(rounds, "MOST_BRANCHES", 1)
    engine = filled()
    made = engine.compiled("list", "read")
    steps = [step.statement.sql for each in made.rounds for step in each.steps]
    assert len(steps) > 2 and any(" r0" in sql for sql in steps)
    for sql in steps:
        defined = re.findall(r"(\w+)(?:\([\w, ]*\))? AS MATERIALIZED", sql)
        mentioned = set(re.findall(r"\b(?:r\d+|(?:all|new)_(?:goals|answers))\b(?! AS MAT)(?!\([\w, ]*\) AS)", sql))
        assert sorted(defined) == sorted(mentioned)
    found = {actor: engine.ask("list", "read", actor=actor) for actor in ANSWERS}
    assert found == ANSWERS


@pytest.mark.parametrize("shared, times", [(frozenset(), 1), (None, 2)], ids=["nothing shared", "some"])
def test_what_takes_too_many_steps_is_tabled_only_where_something_is_shared(shared, times, monkeypatch):
    monkeypatch.setattr(unfold, "MANY_STEPS", 3)
    planned, tried = forms.planned, []
    monkeypatch.setattr(forms, "planned", lambda *given: tried.append(given) or planned(*given))
    engine = filled()
    if shared is None:
        tabling = engine.rules.tabling
        monkeypatch.setattr(engine.rules, "tabling", lambda starts: replace_tabled(tabling(starts)))
    made = engine.compiled("list", "read")
    assert made.rounds and len(tried) == times


def test_the_more_roots_of_a_question_took_too_many_steps_the_fewer_the_next_may_take(monkeypatch):
    assert [unfold.many_steps(sprawling) for sprawling in (0, 1, 2, 10)] == [1_200, 600, 300, 150]
    monkeypatch.setattr(unfold, "MANY_STEPS", 3)
    planned, tried = forms.planned, []
    monkeypatch.setattr(forms, "planned", lambda *given: tried.append(given) or planned(*given))
    actors = (Slot(f"actor{number}") for number in range(3))
    roots = [Root((Call("allow", ("User", STRING, "Doc"), (actor, Const("read"), Var(0))),)) for actor in actors]
    assert filled().compiled_for(Shape(tuple(roots), 1)).rounds
    assert [planner.sprawling for planner, *_ in tried] == [0, 1, 2]


def test_what_weighs_too_much_alone_is_not_planned_again(monkeypatch):
    monkeypatch.setattr(forms, "MOST_WEIGHT", 0)
    planned, asked = forms._Fitting.planned, []
    monkeypatch.setattr(forms._Fitting, "planned", lambda self, root: asked.append(root) or planned(self, root))
    Engine(POLICY, PostgreSQL()).compiled("list", "read")
    assert len(asked) == 1


def test_rules_without_facts_are_looked_at_for_the_first_root_only():
    kinds = [f"T{number}" for number in range(10)]
    rules = "linked(x, z) if near(x, z); linked(x, z) if linked(x, y) and linked(y, z);"
    policy = "".join(f"actor {name} {{}}" for name in kinds) + rules
    roots = [Root((Call("linked", types, (Var(0), Var(1))),)) for types in product(kinds, kinds)]

    def steps(count: int) -> int:
        before = steps_taken()
        Engine(policy).compiled_for(Shape(tuple(roots[:count]), 2), knows=lambda signature: False)
        return steps_taken() - before

    assert steps(100) < 3 * steps(1)


def replace_tabled(rules):
    """The rule set as if something were tabled that nobody asks for."""
    rules.tabled = frozenset(["nothing that is called"])
    return rules
