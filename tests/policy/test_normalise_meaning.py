"""Random nested formulas mean the same before and after normalisation and inference.

The oracle finds the model of the text; the same oracle, given the flat, typed rules, must find it again.
"""

from random import Random

from policy.language import parse
from policy.language.source import PolicyRejected, Source
from policy.rules import compile_policy
from policy.values import Value
from tests.policy.program_clauses import clauses_of
from tests.properties.test_rules_keep_meaning import visible
from tests.reference import World, fixpoint, model_of
from tests.sampling import seeds

BLOCKS = """
actor User {} actor Team {} resource Doc {} resource File extends Doc {}
declare a(User); declare b(User, Doc); declare c(Integer); declare b(Team, File); declare d(Doc);
"""
VALUES = [Value(name, "3") for name in ("User", "Team", "Doc", "File", "Integer")]
NOW = 3


def term(rng: Random, variables: str) -> str:
    if rng.random() < 0.8:
        return rng.choice(variables)
    return rng.choice(['User{"3"}', 'Doc{"3"}', 'File{"3"}', "3", '"s"', "_", "@current_unix_time"])


def formula(rng: Random, depth: int, variables: str = "xyzv") -> str:
    inner = [formula(rng, depth - 1, variables) for _ in range(rng.randint(2, 3))] if depth else []
    t = [term(rng, variables) for _ in range(2)]
    x, y = ("v" if each == "_" else each for each in t)  # the oracle compares no `_`
    variable = rng.choice(variables)
    listed = rng.choice(["3, 4", 'Doc{"3"}, File{"3"}', 'User{"3"}'])
    type_name = rng.choice(["User", "Doc", "Actor", "Resource", "Integer"])
    simple = [
        f"a({t[0]})", f"b({t[0]}, {t[1]})", f"c({t[0]})", f"e({t[0]})", f"d({t[0]})", f"b({t[0]}, {t[1]})",
        f"g({t[0]}, {t[1]})", f"h({t[0]})", f"{x} = {y}", f"{x} != {y}", f"{variable} < {rng.choice(['3', x])}",
        f"{x} >= {variable}", f"{variable} in [{listed}]", f"{variable} matches {type_name}", "true", "false",
    ]  # fmt: skip
    if not depth or rng.random() < 0.2:
        return rng.choice(simple)
    return rng.choice([f"({' or '.join(inner)})", f"({' and '.join(inner)})", f"not {inner[0]}"])


def random_text(rng: Random) -> str:
    rules = [f"{head} if {formula(rng, rng.randint(1, 3))};" for head in ("p(x)", "q(x, y)", "g(x: User, y)")]
    return BLOCKS + "h(x) if g(x, y) and b(x, y) or c(x);\n" + "\n".join(rules)


def facts_of(rng: Random) -> list:
    shapes = [("a", 1), ("b", 2), ("c", 1), ("e", 1), ("d", 1), ("h", 1)]
    return [(name, tuple(rng.choices(VALUES, k=arity))) for name, arity in rng.choices(shapes, k=12)]


def accepted_case(seed: int):
    """The first random text from this seed that is a policy."""
    rng = Random(seed)
    while True:
        source = Source(random_text(rng))
        try:
            policy = parse(source)
            return policy, compile_policy(policy, source), facts_of(rng)
        except PolicyRejected:
            continue


@seeds(range(90), 3)
def test_flat_rules_have_the_model_of_the_text(seed):
    policy, program, facts = accepted_case(seed)
    useful = [(name, row) for name, row in facts if program.accepts(name, tuple(value.type for value in row))]
    world = World.of(policy, facts, VALUES, NOW)
    expected = visible(model_of(policy, useful, world), program)
    assert visible(fixpoint(clauses_of(program), useful, world), program) == expected
