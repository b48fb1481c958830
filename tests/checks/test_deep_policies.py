"""Policies of many levels take time and text in proportion, or are refused: what doubles with each has no limit."""

import pytest

from checks.asking.advice import advice
from checks.engine.sql.text import PostgreSQL, SQLite
from checks.errors import NestedTooDeep, TooComplex
from policy.rules import compile_text
from tests.checks.in_memory import Engine
from tests.yardstick import within

BLOCKS = 'actor User {} resource Folder {} resource Doc { permissions = ["read"]; } '
READ = BLOCKS + 'has_permission(u: User, "read", d: Doc) if '


def levels(count: int, word: str, place: str = "Doc") -> str:
    """A ladder of predicates `p0`, …, each by two rules that call the next one, `word` before it."""
    rules = [
        f"p{level}(x, y) if {fact} and {word} p{level + 1}(x, y);"
        for level in range(count)
        for fact in (f"a{level}(x, y)", f"b{level}(y, x)")
    ]
    return " ".join([*rules, f"p{count}(x: User, y: {place}) if z(x, y);"])


def test_names_that_any_type_passes_on_are_found_at_once():
    types = " ".join(
        f'resource R{each} {{ permissions = ["read"]; relations = {{ up: Resource }}; }}' for each in range(9)
    )
    passed_on = 'if y matches Resource and has_relation(x, "up", y) and has_permission(u, a, y);'
    policy = f"actor User {{}} {types} has_permission(u: User, a: String, x: Resource) {passed_on}"
    terms = [("User", "ann"), ("String", "raed"), ("R0", "r")]
    found = within(0.5, lambda program: list(advice(program, "allow", terms)), lambda: compile_text(policy))
    assert found == ["the policy has no action `raed` on R0 (did you mean `read`? declared: `read`)"]


def test_a_rule_with_many_negations_compiles_at_once():
    negations = " and ".join(f"not r{each}(x)" for each in range(2_000))
    program = within(1, compile_text, lambda: f"{BLOCKS} p(x) if q(x) and {negations};")
    assert len(program.rules_by_predicate["p", 1][0].body) == 2_001


def test_whether_few_facts_lead_to_the_end_of_a_path_is_found_at_once():
    inside = "inside(x: Folder, z: Folder) if up(x, y) and y matches Folder and inside(y, z);"
    rule = "assigned(u, top) and inside(f, top) and p0(u, f); inside(x: Folder, y: Folder) if up(x, y);"

    def engine() -> Engine:
        made = Engine(f"{READ} {rule} {inside} {levels(16, '', 'Folder')}", PostgreSQL())
        made.is_narrow = lambda signature, index: True
        return made

    assert within(0.3, lambda made: made.compiled("authorize", "read"), engine).statement


@pytest.mark.parametrize("count", [300, 900])
def test_a_rule_with_many_calls_is_planned_no_longer_than_the_limit(count):
    calls = " and ".join(f"c{each}(u, x{each}) and e{each}(x{each}, d)" for each in range(count))
    rules = [
        f"c{each}(x: User, y: Doc) if {fact};" for each in range(count) for fact in (f"a{each}(x, y)", f"b{each}(y, x)")
    ]

    def refused(engine: Engine) -> None:
        with pytest.raises(TooComplex):
            engine.compiled("authorize", "read")

    within(2, refused, lambda: Engine(f"{READ} {calls}; {' '.join(rules)}", patience=1.0))


@pytest.mark.parametrize("dialect", [SQLite(), PostgreSQL()], ids=["sqlite", "postgresql"])
def test_tests_inside_of_tests_are_written_out_while_that_is_short(dialect):
    ladders = [READ + "p0(u, d); " + levels(count, "not") for count in (5, 14)]
    lengths = [len(Engine(each, dialect).compiled("authorize", "read").statement.sql) for each in ladders]
    assert lengths[0] > 1_000 and lengths[1] < 1_000_000


@pytest.mark.parametrize("dialect", [SQLite(), PostgreSQL()], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("count", [30, 60])
def test_what_nests_too_deep_is_refused(dialect, count):
    with pytest.raises(NestedTooDeep):
        Engine(READ + "p0(u, d); " + levels(count, "not"), dialect).compiled("authorize", "read")


@pytest.mark.parametrize("count", [5, 13, 14, 20])
def test_a_ladder_of_negations_means_the_same_in_each_form(count):
    engine = Engine(READ + "p0(u, d); " + levels(count, "not"))
    for level in range(count):
        engine.store(f"a{level}", "User:ann", "Doc:d")
    for holds in (False, True):
        assert engine.ask("authorize", "read", actor="ann", resource="d") is ((count % 2 == 0) == holds)
        engine.store("z", "User:ann", "Doc:d")
