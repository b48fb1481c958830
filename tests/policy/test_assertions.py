"""The tests of a policy as the program holds them."""

from policy.rules import compile_text
from policy.rules.desugar import MAX_FACTS
from policy.rules.program import Atom, Var
from policy.values import Value
from tests.policy.rules_text import problems_of

BLOCKS = 'actor User {} resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; } '
ANN, BOB, DOC = Value("User", "ann"), Value("User", "bob"), Value("Doc", "d")


def role(user: Value) -> Atom:
    return Atom("has_role", (user, Value("String", "reader"), DOC))


def test_a_test_has_its_facts_and_those_of_its_fixtures_once():
    (test,) = compile_text(
        BLOCKS
        + """
        test fixture outer { fixture inner; has_role(User{"ann"}, "reader", Doc{"d"}); }
        test fixture inner { has_role(User{"bob"}, "reader", Doc{"d"}); }
        test "t" {
          setup { has_role(User{"ann"}, "reader", Doc{"d"}); fixture outer; fixture inner; }
          assert allow(User{"ann"}, "read", Doc{"d"});
        }"""
    ).tests
    assert test.name == "t"
    assert test.facts == (role(ANN), role(BOB))


def test_an_assertion_keeps_its_text_and_its_variable():
    (test,) = compile_text(
        BLOCKS + 'test "t" { assert allow(u: User, "read",  Doc{"d"}) iff u not in [User{"ann"}]; assert_not p(3); }'
    ).tests
    first, second = test.assertions
    assert first.atom == Atom("allow", (Var("u"), Value("String", "read"), DOC))
    assert (first.variable_type, first.iff_negated, first.iff_values) == ("User", True, (ANN,))
    assert first.text.startswith('assert allow(u: User, "read",  Doc{"d"}) iff u not in [User{"ann"}]')
    assert (second.expected, second.variable_type, second.iff_values) == (False, None, None)


def test_setup_is_optional_and_may_be_empty():
    program = compile_text(BLOCKS + 'test "a" { setup {} assert p(1); } test "b" { assert_not p(1); }')
    assert [test.facts for test in program.tests] == [(), ()]


def test_ill_typed_assertions_are_no_mistake():
    assert (
        problems_of(BLOCKS + 'test "t" { assert_not allow(true, "read", "Doc"); assert_not nothing(Doc{"d"}); }') == []
    )


def test_facts_that_the_policy_does_not_use_are_refused():
    assert problems_of(BLOCKS + 'test fixture f { has_roles(User{"a"}, "reader", Doc{"d"}); }') == [
        "`has_roles` is not used in policy"
    ]


def test_nested_fixtures_do_not_explode():
    fixtures = "".join(f"test fixture f{i} {{ fixture f{i - 1}; fixture f{i - 1}; p({i}); }}\n" for i in range(1, 500))
    fixtures = f"declare p(Integer); test fixture f0 {{ p(0); }}\n{fixtures}"
    text = fixtures + 'test "t" { setup { fixture f499; } assert p(0); }'
    assert len(compile_text(text).tests[0].facts) == 500


def test_facts_of_all_tests_have_a_limit():
    fixture = f"test fixture all {{ {' '.join(f'p({i});' for i in range(1000))} }}"
    tests = "".join(f'test "{i}" {{ setup {{ fixture all; }} assert p(1); }}' for i in range(MAX_FACTS // 1000 + 1))
    assert problems_of(f"declare p(Integer); {fixture} {tests}") == [
        f"the tests have more than {MAX_FACTS:,} facts in total"
    ]
