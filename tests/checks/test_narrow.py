"""Typings that the facts there are can lead to: all that rules need of them, and few where there are few facts."""

from itertools import product
from random import Random

from checks.engine.rules import specialise
from checks.engine.rules.clauses import Pattern
from checks.engine.rules.rewrite import Live
from checks.engine.rules.specialise import Specialised, are_missing, narrowed
from policy.errors import AuthzError
from policy.rules import compile_text
from policy.rules.program import Program, Signature
from tests.properties.passes_by_meaning import patterns_from, patterns_of
from tests.properties.random_policies import random_case
from tests.sampling import seeds

CLOSURE = """
actor User {}
resource Doc {}
resource Item {}
resource Page {}
linked(x, y) if near(x, y);
linked(y, x) if linked(x, y);
linked(x, z) if linked(x, y) and linked(y, z);
owns(u: User, x) if linked(x, y) and bought(u, y);
"""
LINKED = ("linked", 2)


def narrowed_types(policy: str, *stored: Signature) -> dict[tuple[str, int], list[str]]:
    found = narrowed(compile_text(policy), frozenset(stored).__contains__)
    return {key: sorted(", ".join("|".join(sorted(names)) for names in each) for each in found[key]) for key in found}


def test_heads_have_the_types_that_facts_lead_to():
    found = narrowed_types(CLOSURE, Signature("near", ("Item", "Page")))
    assert found["near", 2] == ["Item, Page"]
    assert set(found["linked", 2]) == {"Item, Page", "Item|Page, Item|Page"}
    assert not found["owns", 2]


def test_where_all_kinds_of_facts_are_nothing_is_left_out():
    program = compile_text(CLOSURE)
    everything = narrowed(program, lambda signature: True)
    assert {key: set(found) for key, found in everything.items()} == {
        key: set(found) for key, found in program.types_by_predicate.items()
    }
    assert not are_missing(program, [LINKED], lambda signature: True)


def test_only_facts_that_are_asked_about_are_missing():
    program = compile_text(CLOSURE)
    assert not are_missing(program, [LINKED], lambda signature: signature.predicate != "bought")
    assert are_missing(program, [("owns", 2)], lambda signature: signature.predicate != "bought")


def test_what_takes_too_many_looks_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(specialise, "MOST_LOOKS", 3)
    program = compile_text(CLOSURE)
    assert narrowed(program, lambda signature: "Item" in signature.types) is program.types_by_predicate


def test_of_too_many_signatures_there_may_be_facts_of_each(monkeypatch):
    monkeypatch.setattr(specialise, "MOST_SIGNATURES", 3)
    program = compile_text(CLOSURE)
    assert narrowed(program, lambda signature: False)["near", 2] == program.accepted["near", 2]
    assert not are_missing(program, [LINKED], lambda signature: False)


@seeds(range(300), 3)
def test_only_what_nothing_makes_true_is_left_out(seed):
    """Clauses that can hold are the same as where every variable may have every type."""
    rng = Random(seed)
    try:
        case = random_case(rng, ["small_ladder"] if seed % 2 else [])
        program = compile_text(case.policy)
    except AuthzError:
        return
    stored = some_signatures(program, rng)
    narrow_one, wide_one = (Specialised(program, stored.__contains__) for _ in range(2))
    wide_one.__dict__["_types_by_predicate"] = program.types_by_predicate
    narrow_live, wide_live = Live(narrow_one), Live(wide_one)
    for start in patterns_of(case, program, rng):
        for pattern in patterns_from(start, wide_live):
            assert set(narrow_live(pattern)) == set(wide_live(pattern)), f"{pattern}\n{case.policy}"


def some_signatures(program: Program, rng: Random) -> set[Signature]:
    """Of which there are facts: of few kinds, as a rule."""
    share = rng.choice((0.05, 0.2, 0.5, 0.9))
    every = [
        Signature(name, types)
        for (name, _), patterns in program.accepted.items()
        for pattern in patterns
        for types in product(*map(sorted, pattern))
    ]
    return {each for each in every if rng.random() < share}


def test_a_pattern_that_nothing_leads_to_has_no_clauses():
    program = compile_text(CLOSURE)
    specialised = Specialised(program, frozenset((Signature("near", ("Item", "Page")),)).__contains__)
    assert specialised(Pattern("linked", ("Item", "Page"), (None, None)))
    assert not Live(specialised)(Pattern("linked", ("Doc", "Page"), (None, None)))
