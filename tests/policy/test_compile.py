"""The compiler as a whole: what it returns, all problems together, and how it bears large and hostile texts."""

import gc
from hashlib import sha256

import pytest

from policy.language.source import MAX_PROBLEMS, PolicyRejected, without_collections
from policy.rules import compile_text
from tests.policy.rules_text import problems_of, rules_of
from tests.yardstick import seconds_at_most

HEAD = 'actor User {} actor Team {} resource Doc { roles = ["r"]; permissions = ["p"]; relations = { up: Doc }; }\n'


def test_an_empty_text_is_a_policy_with_the_default_allow():
    program = compile_text("")
    assert [str(rule) for rule in program.rules] == [
        "allow(actor, action) if has_permission(actor, action);",
        "allow(actor, action, resource) if has_permission(actor, action, resource);",
    ]
    assert program.digest == sha256(b"").hexdigest()


@pytest.mark.parametrize(("rule", "defaults"), [
    ("allow(u: User, a: String, d: Doc) if p(u, a, d);", {2}),
    ("allow(u: User, a: String) if p(u, a);", {3}),
    ("allow(u: User) if p(u);", {2, 3}),
    ("allow_field(u: User) if p(u);", {2, 3}),
])  # fmt: skip
def test_a_default_stands_in_for_each_arity_that_is_missing(rule, defaults):
    rules = [rule for rule in compile_text(HEAD + rule).rules if rule.head.predicate == "allow" and not rule.origin.end]
    assert {len(rule.head.args) for rule in rules} == defaults


def test_problems_of_all_passes_are_told_together_in_the_order_of_the_text():
    text = 'test "t" { assert p(Usr{"x"}); }\np(x: User) if y < 3;\nresource Doc { "b" if "a"; }\n'
    text += "actor User {}\nq() if not q();\n"
    with pytest.raises(PolicyRejected) as refused:
        compile_text(text, "main.polar")
    places = [line.split(": ")[0] for text in refused.value.descriptions for line in [text.splitlines()[0]]]
    assert places == ["main.polar:1:21", "main.polar:2:15", "main.polar:3:16", "main.polar:3:23", "main.polar:5:8"]


def test_nobody_is_told_thousands_of_problems():
    assert len(problems_of("".join(f"p{i}(x: Unknown{i});" for i in range(1000)))) == MAX_PROBLEMS


def test_thousands_of_problems_are_found_soon():
    types = "".join(f"resource Type{i} {{}}\n" for i in range(900))
    with seconds_at_most(5):
        assert len(problems_of(types + "".join(f"p{i}(x: Usr{i}) if q(x);\n" for i in range(10000)))) == MAX_PROBLEMS


def test_many_types_with_many_relations():
    def relations(number):
        return ", ".join(f"r{j}: T{(number * 7 + j * 13) % 500}" for j in range(30))

    text = HEAD + "".join(f"resource T{i} {{ relations = {{ {relations(i)} }}; }}\n" for i in range(500))
    text += "".join(f'p(r: T{i}) if has_relation(r, "r0", o) and q(o);\n' for i in range(500))
    with seconds_at_most(5):
        assert compile_text(text).types["T0"].relations["r1"] == "T13"


def test_readers_at_once_leave_the_collector_as_it_was():
    first, second, third = without_collections(), without_collections(), without_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    third.__enter__()
    second.__exit__(None, None, None)
    assert not gc.isenabled()
    third.__exit__(None, None, None)
    assert gc.isenabled()


def test_the_collector_is_left_as_it_was():
    assert gc.isenabled()
    compile_text(HEAD)
    assert gc.isenabled()
    gc.disable()
    try:
        compile_text(HEAD)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "text",
    [
        HEAD
        + "".join(f'has_permission(u: User, "p{i}", d: Doc) if has_role(u, "r{i % 97}", d);\n' for i in range(3000)),
        HEAD + "".join(f"p{i}(x, y) if p{i + 1}(x, z) and p{i + 2}(z, y);\n" for i in range(3000)),
        HEAD + "".join(f"p{i}(x) if q{i % 7}(x, y) and (r(y) or s(x));\n" for i in range(2000)),
        HEAD + "p(x: User) if " + " and ".join(f"(a{i}(x) or b{i}(x, _y))" for i in range(3000)) + ";",
        HEAD + "p(x: User) if " + " and ".join(f"x{i} = x{i + 1}" for i in range(8000)) + " and q(x0, x);",
        HEAD + "".join(f"p{i}(x) if has_rol{i}(y);\n" for i in range(5000)),
        HEAD + "".join(f"p{i}(x) if q(x) and not p{(i + 1) % 3000}(x);\n" for i in range(3000)),
    ],
    ids=["longhand", "untyped", "alternatives", "one rule", "equalities", "single variables", "negated circle"],
)
def test_large_texts_are_done_soon(text):
    """Ten times what it takes; what is squared takes far longer."""
    with seconds_at_most(5):
        try:
            compile_text(text)
        except PolicyRejected as refused:
            assert len(refused.descriptions) == 1


def test_the_origin_of_a_rule_is_its_text():
    text = HEAD + "p(x: User) if q(x) and (r(x) or s(x));"
    program = compile_text(text)
    places = {str(rule.head): text[rule.origin.start : rule.origin.end] for rule in program.rules if rule.origin.end}
    assert places == {"p(x)": "p(x: User) if q(x) and (r(x) or s(x));", "or#1(x)": "s(x)"}
    assert len(rules_of(text)) == 3
