"""The compiled rules say what the text says: the oracle finds the same model for both."""

from random import Random

from policy.language import parse
from policy.language.parser import COMPARISONS
from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.program import TYPED, Program
from tests.policy.program_clauses import clauses_of
from tests.properties.random_policies import random_case
from tests.reference import Model, Row, World, fixpoint, model_of
from tests.sampling import seeds

NOW = 1_700_000_000


def visible(model: Model, program: Program) -> set[tuple[str, Row]]:
    shown = [(predicate, rows) for (predicate, _), rows in model.items() if predicate not in program.helpers]
    return {(predicate, row) for predicate, rows in shown for row in rows}


def test_random_policies_compare_in_every_way():
    words = {word for seed in range(20) for word in random_case(Random(seed), ["values"]).policy.split()}
    assert {"=", *COMPARISONS} - words == set()
    assert {"!=", *TYPED} == set(COMPARISONS)


@seeds(range(30), 2)
def test_the_compiled_rules_have_the_model_of_the_text(seed):
    """And facts that the policy has no use for make no difference."""
    case = random_case(Random(seed))
    source = Source(case.policy)
    program, policy = compile_source(source), parse(source)
    facts = [*case.facts, *case.context]
    useless = {fact for fact in facts if not program.accepts(fact[0], tuple(value.type for value in fact[1]))}
    world = World.of(policy, facts, (), NOW)
    compiled = fixpoint(clauses_of(program), [fact for fact in facts if fact not in useless], world)
    assert visible(compiled, program) == visible(model_of(policy, facts, world), program) - useless
