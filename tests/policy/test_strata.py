"""Recursion through `not`: refused where a question leads back to itself, and nowhere else."""

from contextlib import suppress
from random import Random

import pytest

from policy.language import parse
from policy.language.source import PolicyRejected, Source
from policy.rules import compile_source
from policy.values import Value
from tests.policy.program_clauses import clauses_of
from tests.policy.rules_text import problems_of
from tests.reference import World, fixpoint
from tests.sampling import seeds

BLOCKS = "actor User {} resource Doc {} resource Folder {} "
ROLES = 'actor User {} resource F { roles = ["member", "guest", "banned"]; relations = { up: F }; %s } '


@pytest.mark.parametrize(
    "text",
    [
        BLOCKS + "p(x: User) if q(x) and not p(Doc{\"d\"}); p(x: Doc) if r(x);",
        BLOCKS + "p(x: Doc) if not p(y) and up(x, y) and y matches Folder; p(x: Folder) if q(x);",
        BLOCKS + 'p(x, "a") if q(x) and not p(x, "b"); p(x, "b") if r(x);',
        BLOCKS + 'p(x, "a") if not p(x, "b"); p(x, "b") if not p(x, "c"); p(x, y) if q(x, y);',
        BLOCKS + 'p(x, y) if up(x, z) and p(z, y); p(x, "a") if q(x) and not p(x, "b");',
        ROLES % '"member" if "guest" and not "banned";',
        ROLES % '"member" if "guest" and not "banned"; role if role on "up"; "guest" if "member" on "up";',
        ROLES % '"member" if "guest" and not ("banned" or is_locked(resource)); "banned" if "banned" on "up";',
        BLOCKS + "p(x: User) if q(x) and not (r(x) and not s(x)); s(x: User) if t(x);",
        BLOCKS + 'has_permission(a: User, "p2", d: Doc) if f matches Folder and has_relation(d, "parent", f) and '
        'has_permission(a, "p1", f) and not is_banned(a); has_permission(a: User, "p1", f: Folder) if q(a, f);',
        BLOCKS + "p(x: User) if not not p(x) and q(x);",
    ],
)  # fmt: skip
def test_this_is_stratified(text):
    assert problems_of(text) == []


@pytest.mark.parametrize(
    "text",
    [
        BLOCKS + "p(x: User) if not p(x);",
        BLOCKS + "p(x) if q(x) and not r(x); r(x) if not p(x);",
        BLOCKS + "p(x: Doc) if up(x, y) and not p(y);",
        BLOCKS + 'p(x, "a") if not p(x, "b"); p(x, "b") if not p(x, "a");',
        BLOCKS + 'p(x, y) if up(x, z) and p(z, y) and not p(x, "b");',
        BLOCKS + 'p(x, "a") if q(x, y) and not p(x, y);',
        BLOCKS + "p(x) if q(x) and (r(x) or not p(x));",
        BLOCKS + "p(x) if q(x) and not (r(x) and (s(x) or p(x)));",
        BLOCKS + "p(x) if not not not p(x);",
        ROLES % '"member" if not "banned"; "banned" if not "member";',
        ROLES % 'role if role on "up" and not "banned";',
        ROLES % '"banned" if "guest" and not "member"; "member" if "member" on "up" and not "banned";',
    ],
)  # fmt: skip
def test_this_is_not(text):
    messages = problems_of(text)
    assert messages and all(message.startswith("recursion through `not`: ") for message in messages)


def test_the_chain_is_told_in_words():
    text = BLOCKS + "p(x: User) if q(x) and not r(x); r(x: User) if s(x, y) and t(x, y); t(x: User, _: Doc) if p(x);"
    assert problems_of(text) == [
        "recursion through `not`: `r(User)` depends on `t(User, Doc)` depends on `p(User)` depends on `r(User)`"
    ]


def test_too_many_questions_are_decided_coarsely():
    """Five arguments that change places, with fifty constants in each: refused, and soon."""
    rules = (
        f'p{i}(x: User, a: String, b: String, c: String, d: String) if p{i}(x, "k{i}", a, b, c) and not q{i}(x) '
        f"and not p{(i + 1) % 50}(x, b, c, d, a);"
        for i in range(50)
    )
    assert len(problems_of(BLOCKS + "\n".join(rules))) == 1


def test_a_long_chain_of_negations_is_told_apart_by_its_names():
    rules = (f'p(x: User, "k{i}") if p(x, "k{i + 1}") and not p(x, "n{i}");\n' for i in range(3000))
    assert problems_of(BLOCKS + "".join(rules)) == []


def random_rules(rng: Random) -> str:
    def call(head: bool = False) -> str:
        first = rng.choice(["x", "x: User", "x: Doc"] if head else ["x", "x", "y"])
        return f"{rng.choice('pq')}({first}, {rng.choice(['n', chr(34) + 'a' + chr(34), chr(34) + 'b' + chr(34)])})"

    def rule() -> str:
        body = [f"{rng.choice(['', '', 'not '])}{call()}" for _ in range(rng.randint(1, 2))]
        return f"{call(head=True)} if link(x, y) and name(n) and {' and '.join(body)};"

    return (
        BLOCKS
        + "declare name(String); declare p(Folder, String);"
        + "\n".join(rule() for _ in range(rng.randint(2, 5)))
    )


@seeds(range(200))
def test_an_accepted_policy_has_one_meaning(seed):
    """The oracle fails if something is neither certainly true nor certainly false."""
    rng = Random(seed)
    source, program = Source(""), None
    while program is None:
        source = Source(random_rules(rng))
        with suppress(PolicyRejected):
            program = compile_source(source)
    things = [Value("User", "1"), Value("Doc", "1"), Value("Folder", "1"), Value("Doc", "2")]
    names = [Value("String", name) for name in "abc"]
    links = [("link", (rng.choice(things), rng.choice(things))) for _ in range(6)]
    facts = [*links, *(("name", (name,)) for name in names), ("p", (Value("Folder", "1"), names[0]))]
    fixpoint(clauses_of(program), facts, World.of(parse(source), facts, (), 0))
