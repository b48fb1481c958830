"""Passes over rules: what they make of a few small policies, as text, and that they keep the meaning of random ones.

pytest tests/checks/test_rule_passes.py --rewrite      # writes the texts anew; read the difference
python -m tests.properties.run_passes --minutes 10     # holds the meaning of many more
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from checks.engine.rules import recursion, rewrite
from checks.engine.rules.clauses import Call, Clause, ClausesOf, Const, Literal, Pattern, Scan, calls_made, terms_of
from checks.engine.rules.ruleset import Passes
from policy.errors import AuthzError
from policy.rules import compile_text
from policy.values import INTEGER, STRING, Value
from tests.checks.in_memory import NOW
from tests.policy.program_clauses import clauses_of
from tests.properties.passes_by_meaning import Held, accepted, held, named, patterns_from, rows_of_rules, values_of
from tests.properties.random_policies import random_case
from tests.reference import World, fixpoint
from tests.reference_rules import Meaning
from tests.reference_rules import World as SmallWorld

# ---- texts ----------------------------------------------------------------------------------------------------------

GOLDEN = Path(__file__).parent / "golden_rules"
QUESTIONS = {
    "types": 'has_role(User, "reader", Doc)',
    "dead_ends": 'may(User, "paint", Wall)',
    "transitive": "inside(Box, Box)",
    "guarded": "reaches(User, Box)",
    "renamed_roles": 'has_permission(User, "read", Repo)',
    "groups_and_folders": 'has_role(User, "reader", Folder)',
    "groups_and_projects": 'has_role(User, "reader", Repository)',
}


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_clauses_after_every_pass_are_as_they_were_read(name, golden):
    golden(GOLDEN / name, text_after_passes(name))


def test_every_pass_is_seen_to_do_something():
    texts = "".join((GOLDEN / f"{name}.expected").read_text() for name in QUESTIONS)
    assert set(re.findall(r"^-- ([^:\n]*)$", texts, re.MULTILINE)) == set(named(passes_of("types")))


def passes_of(name: str) -> Passes:
    return Passes.over(compile_text((GOLDEN / f"{name}.polar").read_text()))


def text_after_passes(name: str) -> str:
    """The clauses of all that the question leads to, after each pass that changes any of them."""
    lines, before = [f"==== {QUESTIONS[name]}"], ""
    for name_of_pass, clauses in named(passes_of(name)).items():
        text = text_of(clauses, question(QUESTIONS[name]))
        lines += ["", f"-- {name_of_pass}", "", text] if text != before else ["", f"-- {name_of_pass}: the same"]
        before = text
    return "\n".join(lines) + "\n"


def text_of(clauses: ClausesOf, start: Pattern) -> str:
    patterns = patterns_from(start, clauses)
    return "\n".join("\n".join([str(each), *map(line_of, clauses(each))]) for each in patterns)


def line_of(clause: Clause) -> str:
    head = ", ".join(map(str, clause.params))
    return f"    ({head}) if {' and '.join(map(with_types, clause.body)) or 'true'}"


def with_types(literal: Literal) -> str:
    match literal:
        case Scan(signature, args):
            return f"fact {Call(signature.predicate, signature.types, args)}"
    return str(literal)


def question(text: str) -> Pattern:
    predicate, args = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
    kinds = args.split(", ")
    consts = tuple(Const(kind.strip('"')) if kind.startswith('"') else None for kind in kinds)
    return Pattern(predicate, tuple(STRING if const else kind for kind, const in zip(kinds, consts)), consts)


# ---- meaning --------------------------------------------------------------------------------------------------------

EVERY_DAY = 200  # policies
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, EVERY_DAY, AT_ONCE))
def test_passes_keep_the_meaning_of_random_policies(first):
    wrong = [each for seed in range(first, first + AT_ONCE) for each in held_of(seed) if each.is_wrong]
    assert not wrong, "\n\n".join(map(str, wrong))


def held_of(seed: int) -> list[Held]:
    """Every third policy is a small ladder: recursion upon recursion."""
    case = random_case(Random(seed), ["small_ladder"] if seed % 3 == 0 else [])
    try:
        return list(held(case, Random(seed)))
    except AuthzError:  # it is no policy
        return []


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_rules_without_types_mean_what_the_oracle_of_policies_says(seed):
    """The first pass is held against them."""
    case = random_case(Random(seed), ["small_ladder"])
    program = compile_text(case.policy)
    facts = accepted(program, case.facts)
    values = values_of(program, facts)
    every = tuple(value for each in values.values() for value in each)
    of_type = {name: tuple(each for each in every if each.type in types) for name, types in program.subtypes.items()}
    model = fixpoint(clauses_of(program), facts, World(of_type, every, Value(INTEGER, str(NOW))))
    for predicate, row in case.goals:
        pattern = Pattern(predicate, tuple(value.type for value in row), (None,) * len(row))
        own = (each for each in model[predicate, len(row)] if tuple(value.type for value in each) == pattern.types)
        said = rows_of_rules(program, facts, values, pattern)
        assert said == {tuple(value.id for value in each) for each in own}


# ---- faults ---------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """What is put in place of which name, and a policy whose meaning it changes."""

    place: object
    name: str
    other: object
    policy: str


def no_rows(*_: object) -> Iterator[Clause]:
    return iter(())


def all_that_call(_: object, every: dict[Pattern, tuple[Clause, ...]]) -> set[Pattern]:
    return {pattern for pattern, clauses in every.items() if calls_made(clauses)}


class Everything:
    def __contains__(self, call: object) -> bool:
        return True


FAULTS = {
    "live": Fault(rewrite.Live, "_dead_among", all_that_call, "renamed_roles"),
    "linear": Fault(recursion, "_with_bases", lambda clauses, _: clauses[:-1], "transitive"),
    "renamed": Fault(rewrite.Renamed, "is_stored", lambda self, pattern: True, "types"),
    "needed": Fault(rewrite.Renamed, "implying", lambda self, call: Everything(), "renamed_roles"),
    "merged": Fault(rewrite, "_filled", lambda holed, ids: filled(holed, frozenset(sorted(ids)[:1])), "renamed_roles"),
    "separated": Fault(recursion, "_one_more_at_start", no_rows, "groups_and_folders"),
    "separated, backward": Fault(recursion, "_one_more_at_end", no_rows, "groups_and_folders"),
}
filled = rewrite._filled


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_of_a_pass_is_found_in_that_pass(name, monkeypatch):
    fault = FAULTS[name]
    assert not set(wrong_passes(fault.policy))
    monkeypatch.setattr(fault.place, fault.name, fault.other)
    assert name in wrong_passes(fault.policy)


def wrong_passes(policy: str) -> Iterator[str]:
    """Those after which the policy's question is answered otherwise than before, for some facts."""
    start = question(QUESTIONS[policy])
    for seed in range(10):
        passes = named(passes_of(policy))
        world = random_world(passes["specialised"], start, Random(seed))
        rows = {name: Meaning(clauses, world).rows(start) for name, clauses in passes.items()}
        yield from (name for before, name in pairwise(rows) if rows[before] != rows[name])


def random_world(clauses: ClausesOf, start: Pattern, rng: Random) -> SmallWorld:
    """Of few values, with facts of all that the clauses look for."""
    literals = [each for pattern in patterns_from(start, clauses) for c in clauses(pattern) for each in c.body]
    signatures = dict.fromkeys(each.signature for each in literals if isinstance(each, Scan))
    names = {arg.id for each in literals for arg in terms_of(each) if isinstance(arg, Const)}
    ids = {kind: ("1", "2", "3", "4") for signature in signatures for kind in signature.types}
    ids[STRING] = tuple(sorted(names))
    rows = {each: {tuple(rng.choice(ids[kind]) for kind in each.types) for _ in range(12)} for each in signatures}
    return SmallWorld(rows, ids, {})
