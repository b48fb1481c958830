"""A proof that facts of no kind tell two policies apart is never contradicted by facts that do."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from checks.analysis.questions import both_ways, differing
from checks.analysis.search import Claim, Solver
from policy.rules import compile_text
from policy.rules.program import Program
from tests.properties.bare import bare_case
from tests.properties.random_policies import case_of
from tests.sampling import seeds

MORE = 1  # ids beyond a bound
MOST = 3  # ids searched


def claims_of(seed: int) -> Iterator[Claim]:
    """Claims about a random policy and one with a rule less, or with the rules of another."""
    rng = Random(seed)
    text = case_of(seed).policy if seed % 2 else bare_case(rng, is_restricted=seed % 4 == 0).policy
    program = compile_text(text)
    for other in itertools.islice(others(program, rng), 3):
        for _, goal in differing(program, other)[:3]:
            yield from both_ways(program, other, goal)


def others(program: Program, rng: Random) -> Iterator[Program]:
    rules = [rule for rule in program.rules if rule.head.predicate not in program.helpers]
    for rule in rng.sample(rules, min(len(rules), 4)):
        yield replace(program, rules=tuple(each for each in program.rules if each is not rule))
        literals = [place for place, _ in enumerate(rule.body)]
        for place in literals[:1]:
            shorter = replace(rule, body=(*rule.body[:place], *rule.body[place + 1 :]))
            yield replace(program, rules=tuple(shorter if each is rule else each for each in program.rules))


@seeds(range(24), 2)
def test_a_proof_is_not_contradicted(seed):
    with Solver(120.0) as solver:
        for claim in claims_of(seed):
            bound, is_contained = claim.bound, claim.is_evident
            needed = max(bound.values(), default=0) if bound is not None else None
            if not is_contained and (needed is None or needed > MOST):
                continue
            claim.__dict__["bound"] = None  # search for more ids than the bound says
            small = needed if not is_contained and needed is not None else 0
            within, beyond = (is_found(claim, ids, solver) for ids in (max(small, 1), small + MORE))
            assert not (beyond and (is_contained or not within)), f"{claim.holds.goal}"


def is_found(claim: Claim, ids: int, solver: Solver) -> bool | None:
    model, is_complete = solver.solve(claim.program(ids, 1_795_000_000).text, 20.0)
    return model is not None if model is not None or is_complete else None
