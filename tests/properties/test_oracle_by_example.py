"""The oracle on policies small enough to be read: what it is trusted for, one idea at a time."""

import re

import pytest

from policy.language import parse
from policy.language.source import Source
from policy.values import STRING, Value
from tests.reference import UNMENTIONED, Row, World, answers, is_sayable, model_of

PLAIN = 'actor User {} actor Staff extends User {} resource Doc { relations = { up: Doc }; permissions = ["read"]; }\n'


def facts_of(text: str) -> list[tuple[str, Row]]:
    """`is_admin(User:a) likes(User:a, Doc:d)`."""
    written = re.findall(r"(\w+)\(([^)]*)\)", text)
    return [(predicate, tuple(Value(*arg.split(":")) for arg in args.split(", "))) for predicate, args in written]


def asked(rules: str, facts: str, query: str, now: int = 1000, **ids: tuple[str, ...]) -> tuple[set, bool]:
    """The ids of each answer to `p(x: User, y: Doc)`, `+` where nobody mentions one; and whether a list can say it."""
    policy = parse(Source(PLAIN + rules))
    stored = facts_of(facts)
    predicate, _, rest = query.strip(")").partition("(")
    params = [param.strip().split(": ") for param in rest.split(",")]
    mentioned = [Value(kind, an_id) for name, kind in params for an_id in ids.get(name, ())]
    world = World.of(policy, stored, mentioned, now)
    model = model_of(policy, stored, world)
    constraints = {name: (kind, ids.get(name)) for name, kind in params}
    rows = answers(model, world, [(predicate, tuple(constraints))], constraints)
    shown = {"".join("+" if value.id == UNMENTIONED else value.id for value in row) for row in rows}
    return shown, is_sayable(rows, world)


EXAMPLES = {
    "a rule joins": ("p(u: User, d: Doc) if q(u, e) and r(e, d);", "q(User:a, Doc:d) r(Doc:d, Doc:e)", "ae"),
    "two rules add up": ("p(u: User, d: Doc) if q(u, d); p(u: User, d: Doc) if r(u, d);",
                         "q(User:a, Doc:d) r(User:b, Doc:d)", "ad bd"),
    "nobody else is mentioned": ("p(u: User, _: Doc) if q(u);", "q(User:a) r(Doc:d)", "ad a+"),
    "an untyped variable has any type": ("p(x, d: Doc) if q(x, d);", "q(User:a, Doc:d) q(Staff:s, Doc:d)", "ad"),
    "a supertype's rule holds for a subtype, which is asked for by its own name": (
        "p(u: User, d: Doc) if q(u, d);", "q(Staff:s, Doc:d)", ""),
    "closure of a cycle ends": (
        "p(x: User, y: Doc) if q(x, y); p(x: User, z: Doc) if p(x, y) and r(y, z);",
        "q(User:a, Doc:d) r(Doc:d, Doc:e) r(Doc:e, Doc:d)", "ad ae"),
    "what follows is found in any order of the rules": (
        "p(u: User, d: Doc) if s(u, d); s(u, d) if t(u, d); t(u, d) if q(u, d);", "q(User:a, Doc:d)", "ad"),
    "closure by two calls": (
        "s(x, y) if r(x, y); s(x, z) if s(x, y) and s(y, z); p(u: User, d: Doc) if q(u, e) and s(e, d);",
        "q(User:a, Doc:d) r(Doc:d, Doc:e) r(Doc:e, Doc:f)", "ae af"),
    "what only the negation mentions exists inside it": (
        "p(u: User, d: Doc) if q(u, d) and not r(u, _x);", "q(User:a, Doc:d) q(User:b, Doc:d) r(User:a, Doc:e)", "bd"),
    "every required one": (
        "p(u: User, d: Doc) if q(u, d) and not (needs(d, x) and not has(u, x));",
        "q(User:a, Doc:d) q(User:b, Doc:d) needs(Doc:d, Doc:x) needs(Doc:d, Doc:y) has(User:a, Doc:x) "
        "has(User:a, Doc:y) has(User:b, Doc:y)", "ad"),
    "negation of a derived predicate": (
        "s(u: User) if t(u); p(u: User, d: Doc) if q(u, d) and not s(u);",
        "q(User:a, Doc:d) q(User:b, Doc:d) t(User:a)", "bd"),
    "or binds weaker than and": (
        "p(u: User, d: Doc) if q(u, d) and t(u) or r(u, d);", "q(User:a, Doc:d) r(User:b, Doc:d)", "bd"),
    "numbers compare as numbers": (
        "p(u: User, d: Doc) if q(u, n) and r(d, m) and n < m;", "q(User:a, Integer:9) r(Doc:d, Integer:10)", "ad"),
    "other values do not compare": (
        "p(u: User, d: Doc) if q(u, n) and r(d, m) and n < m;", "q(User:a, Integer:9) r(Doc:d, String:10)", ""),
    "it is now": (
        "p(u: User, d: Doc) if q(u, d, t) and @current_unix_time < t;",
        "q(User:a, Doc:d, Integer:1000) q(User:b, Doc:d, Integer:1001)", "bd"),
    "in generates": ('p(u: User, d: Doc) if q(u) and d in [Doc{"d"}, Doc{"e"}];', "q(User:a)", "ad ae"),
    "matches takes subtypes": ("p(u: User, d: Doc) if q(u, v) and v matches User and r(d);",
                               "q(User:a, Staff:s) r(Doc:d)", "ad"),
    "matches! does not": ("p(u: User, d: Doc) if q(u, v) and v matches! User and r(d);",
                          "q(User:a, Staff:s) r(Doc:d)", ""),
    "a policy's facts": ('p(User{"z"}, Doc{"d"});', "", "zd"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_follows(name):
    rules, facts, wanted = EXAMPLES[name]
    assert asked(rules, facts, "p(u: User, d: Doc)") == (set(wanted.split()), True)


def test_all_but_some_cannot_be_said_unless_they_are_granted_otherwise():
    rules = "p(u: User, d: Doc) if q(u) and not r(d); p(u: User, d: Doc) if s(u, d);"
    assert asked(rules, "q(User:a) r(Doc:d) r(Doc:e)", "p(u: User, d: Doc)") == ({"a+"}, False)
    assert asked(rules, "q(User:a) r(Doc:d) s(User:a, Doc:d)", "p(u: User, d: Doc)") == ({"a+", "ad"}, True)
    assert asked(rules, "q(User:a) r(Doc:d)", "p(u: User, d: Doc)", d=("d", "x")) == ({"ax"}, True)


def test_everyone_on_himself_cannot_be_said():
    rules, facts = "p(u: User, u: User);", "q(User:a)"
    assert asked(rules, facts, "p(u: User, v: User)") == ({"aa", "++"}, False)
    assert asked(rules, facts, "p(u: User, v: User)", u=("a",)) == ({"aa"}, True)


def test_allow_follows_permissions_unless_the_policy_has_its_own():
    facts = "has_permission(User:a, String:read, Doc:d)"
    query = "allow(u: User, a: String, d: Doc)"
    assert asked("", facts, query) == ({"areadd"}, True)
    own = "allow(u: User, a, d) if has_permission(u, a, d) and not q(u);"
    assert asked(own, facts + " q(User:a)", query) == (set(), True)


def test_shorthand_means_its_longhand():
    block = (
        'resource Org { roles = ["r"]; relations = { boss: User }; }\n'
        'resource Repo { roles = ["r", "s"]; permissions = ["w"]; relations = { org: Org };\n'
        'role if role on "org"; "w" if "r" and is_open(resource); "s" if "boss" on "org"; }'
    )
    facts = (
        "has_role(User:a, String:r, Org:o) has_relation(Repo:x, String:org, Org:o) "
        "has_relation(Org:o, String:boss, User:b) is_open(Repo:x)"
    )
    assert asked(block, facts, "has_role(u: User, r: String, d: Repo)") == ({"arx", "bsx"}, True)
    assert asked(block, facts, "allow(u: User, a: String, d: Repo)") == ({"awx"}, True)


def test_recursion_through_negation_has_no_model():
    with pytest.raises(AssertionError, match="recurses through negation"):
        asked("p(u: User, d: Doc) if q(u, d) and not p(u, d);", "q(User:a, Doc:d)", "p(u: User, d: Doc)")


def test_strings_are_strings():
    assert asked("p(x: String, y: String) if q(y, x);", "q(String:a, String:b)", "p(x: String, y: String)")[0] == {"ba"}
    assert Value(STRING, "a") != Value("User", "a")
