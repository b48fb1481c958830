"""Longhand to flat rules: shapes, sharing, sizes. Meaning is held against the oracle in test_normalise_meaning."""

import pytest

from policy.rules import compile_text
from policy.rules.flatten import MAX_VARIABLES
from tests.policy.rules_text import problems_of, rules_of, warnings_of


@pytest.mark.parametrize(
    ("body", "rules"),
    [
        ("q(x) or r(x)", ["p(x) if q(x);", "p(x) if r(x);"]),
        ("q(x) and (r(x) or s(x))", ["p(x) if q(x) and or#1(x);", "or#1(x) if r(x);", "or#1(x) if s(x);"]),
        ("(r(y) or s(y)) and q(x)", ["p(x) if or#1() and q(x);", "or#1() if r(y);", "or#1() if s(y);"]),
        ("q(x, y) and (r(y) or s(z))", ["p(x) if q(x, y) and or#1(y);", "or#1(y) if r(y);", "or#1(y) if s(z);"]),
        ("not q(x)", ["p(x) if not q(x);"]),
        ("not q(x, y)", ["p(x) if not q(x, y);"]),
        ("not (q(x) and r(y))", ["p(x) if not not#1(x);", "not#1(x) if q(x) and r(y);"]),
        ("not (q(x) or r(x))", ["p(x) if not not#1(x);", "not#1(x) if q(x);", "not#1(x) if r(x);"]),
        ("q(x) and not not r(x)", ["p(x) if q(x) and not#1(x);", "not#1(x) if r(x);"]),
        ("not not not q(x)", ["p(x) if not q(x);"]),
        ("x = y and q(y)", ["p(x) if q(x);"]),
        ("q(y) and z = y and x = z", ["p(x) if q(x);"]),
        ('x = "a"', ['p("a");']),
        ('q(x) and (x = "a" or r(x))', ["p(x) if q(x) and or#1(x);", 'or#1("a");', "or#1(x) if r(x);"]),
        ("q(x, t) and t = @current_unix_time", ["p(x) if q(x, @current_unix_time);"]),
        ("x = @current_unix_time", ["p(x) if x <= @current_unix_time and x >= @current_unix_time;"]),
        ("x = @current_unix_time and x = 3", ["p(3) if @current_unix_time = 3;"]),
        (
            "q(x) and y = @current_unix_time and y in [1, 2]",
            ["p(x) if q(x) and or#1();", "or#1() if @current_unix_time = 1;", "or#1() if @current_unix_time = 2;"],
        ),
        ("q(x) and not x = 3", ["p(x) if q(x) and x != 3;"]),
        ("x in [1, 2, 1]", ["p(x) if x in [1, 2];"]),
        ("x in [1]", ["p(1);"]),
        ("q(x) and not x in [1, 2]", ["p(x) if q(x) and x != 1 and x != 2;"]),
        ("q(x) and (x = 1 or x in [2, 3] or 4 = x)", ["p(x) if q(x) and x in [1, 2, 3, 4];"]),
        ("q(x) and x matches Integer", ["p(x) if q(x);"]),
        ("q(x) and not x matches Integer", ["p(x) if q(x);"]),
        ("q(x) and 1 < 2 and true and 2 in [2, 3]", ["p(x) if q(x);"]),
        ("q(x) and x <= x", ["p(x) if q(x) and x <= x;"]),
        ("q(x) and _ = x and _ matches String", ["p(x) if q(x);"]),
        ("q(x) and (r(x) or false)", ["p(x) if q(x) and or#1(x);", "or#1(x) if r(x);"]),
        ("q(x) and not false and not (false and r(x))", ["p(x) if q(x);"]),
        ("q(_, x, _)", ["p(x) if q(_#2, x, _#3);"]),
    ],
)
def test_a_body_becomes_these_rules(body, rules):
    assert rules_of(f"p(x) if {body};") == rules


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("false", "this condition is never true"),
        ("not true", "this condition is never true"),
        ('x = "a" and x = "b"', '`"a"` never equals `"b"`'),
        ('"a" = @current_unix_time and q(x)', '`"a"` never equals `@current_unix_time`'),
        ("q(x) and 3 < 2", "`3 < 2` is never true"),
        ("q(x) and 3 != 3", "`3 != 3` is never true"),
        ("q(x) and x < x", "`x < x` is never true"),
        ('q(x) and "c" in ["a", "b"]', '`"c"` is not in the list'),
        ("q(x) and x in []", "the list is empty"),
        ("q(x) and _ in []", "the list is empty"),
        ("q(x) and @current_unix_time < @current_unix_time", "`@current_unix_time < @current_unix_time` is never true"),
        ('q(x) and y = "a" and not y matches String', '`"a"` is always `String`'),
        ("q(x) and (false or 1 = 2)", "no alternative of this can be true"),
    ],
)
def test_a_rule_that_cannot_hold_is_left_out_with_a_warning(body, warning):
    text = f"p(x) if {body};"
    assert rules_of(text) == []
    assert warning in warnings_of(text)


def test_nothing_is_multiplied_out():
    text = "p(x) if " + " and ".join(f"(a{i}(x) or b{i}(x))" for i in range(1000)) + ";"
    assert len(rules_of(text)) == 2001


def test_helper_predicates_are_known_as_such():
    program = compile_text("p(x) if q(x) and (r(x) or s(x)) and not (r(x) and s(x));")
    assert program.helpers == {"or#1", "not#2"}
    assert not {name for name, _ in program.accepted} & program.helpers
    assert not program.predicates & program.helpers


def test_repeated_head_variables_stay_repeated():
    assert rules_of("p(x, x) if q(x);") == ["p(x, x) if q(x);"]
    assert rules_of("p(x, y) if x = y and q(x);") == ["p(x, x) if q(x);"]


def test_nesting_as_deep_as_the_parser_allows():
    text = "p(x) if " + "(a(x) and (b(x) or " * 99 + "c(x)" + "))" * 99 + ";"
    assert len(rules_of(text)) == 199
    assert problems_of("p(x) if " + "not (a(x) and " * 99 + "c(x)" + ")" * 99 + ";") == []


def test_deep_shorthand():
    body = '("a" and ("b" or ' * 99 + '"a"' + "))" * 99
    assert problems_of(f'actor U {{}} resource R {{ roles = ["a", "b"]; "a" if {body}; }}') == []


def test_variables_of_one_rule_have_a_limit():
    many = " or ".join(f"q(x{i})" for i in range(MAX_VARIABLES + 1))
    assert problems_of(f"p(x) if r(x) and ({many});") == [f"the rule has more than {MAX_VARIABLES:,} variables"]
