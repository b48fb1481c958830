"""Which variables need a value, which may stay open, and which are probably mistakes."""

import pytest

from tests.policy.rules_text import problems_of, warnings_of


@pytest.mark.parametrize(
    "rule",
    [
        "p(x);",
        "p(x) if not q(x);",
        "p(x) if x < 3;",
        "p(x, y) if x != y;",
        "p(x, y) if (x < 3 or y < 3) and not q(x, y);",
        "p(x) if q(x) and not r(x, y);",
        "p(x) if q(x) and not r(x, y) and not s(x, z);",
        "p(x) if q(x) and not (r(x, y) and y < 3);",
        "p(x) if q(x) and not (r(x, y) and not s(y));",
        "p(x) if q(x, y) and (y < 3 or r(y));",
        "p(x) if (q(x, y) or r(x, y)) and y < 3;",
        "p(x) if (q(x, y) or y in [1, 2]) and y < 3;",
        "p(x) if (q(x, y) or y = 2 and r(x)) and y < 3;",
        "p(x) if (q(x, y) and (s(y) or t(y)) or r(x, y)) and not u(y);",
        "p(x) if (q(x) or r(y)) and s(y) and y < 3;",
        "p(x) if (q(x, y) or r(x)) and (s(y) or t(x));",
        "p(x) if not not q(x);",
        "p(x) if q(x) and not (not r(x, y) and s(y));",
        "p(x) if not is_banned(x) and q(x);",
    ],
)
def test_this_is_safe(rule):
    assert problems_of(rule) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("p(x) if q(x) and y < 3;", "unbound variable `y` in a comparison"),
        ("p(x) if q(x) and y != x;", "unbound variable `y` in a comparison"),
        ("p(x) if q(x) and (r(x) or y < 3);", "unbound variable `y` in a comparison"),
        ("p(x) if q(x) and not (r(x) and y < 3);", "unbound variable `y` in a comparison"),
        ("p(x) if q(x) and (y < 3 or r(y)) and y != x;", "unbound variable `y` in an alternative of the `or`"),
        ("p(x) if q(x) and not r(y) and not s(y);", "unbound variable `y` in a `not`"),
        ("p(x) if q(x) and y matches String and not r(y);", "unbound variable `y` in a `not`"),
        ("p(x) if q(x) and y = z and not r(z);", "unbound variable `y` in a `not`"),
        ("p(x) if q(x) and y = z and not (r(z) and s(z));", "unbound variable `y` in a `not`"),
        ("p(x) if q(x) and not y matches Integer;", "unbound variable `y` in a `not`"),
        ("p(x) if q(x) and not not r(y) and not s(y);", "unbound variable `y` in a `not`"),
        ("p(x) if (q(x, y) or r(x)) and not s(y);", "unbound variable `y` in an alternative of the `or`"),
        ("p(x) if q(x) and not (not r(x, y) and not s(y));", "unbound variable `y` in a `not`"),
    ],
)
def test_this_is_not(rule, message):
    assert problems_of(rule) == [message]


def test_a_call_of_a_rule_that_grants_to_all_counts_as_a_value():
    """What stays open then is known only with the question: list refuses it, authorize answers."""
    assert problems_of("q(_: Integer); p() if q(x) and x < 3;") == []


@pytest.mark.parametrize(
    ("rule", "warnings"),
    [
        ("p(x) if q(x, y);", ["`y` is used only once, so it matches any value"]),
        ("p(x, z) if q(x);", ["`z` is used only once, so it matches every value"]),
        ("p(x, _z) if q(x, _) and not r(x, _y);", []),
        ("p(x) if q(x) and y matches Doc;", ["`y` is used only once, so it matches any value"]),
        ("p(Doc) if q(Doc);", ["`Doc` is a type, but is used as a variable here"]),
    ],
)
def test_probable_mistakes_are_warned_of(rule, warnings):
    assert warnings_of("resource Doc {} " + rule) == warnings


@pytest.mark.parametrize(
    ("rule", "warnings"),
    [
        ("p(record: record) if q(record);", []),
        ("p(user: user, record: record) if q(user, record);", []),
        ("p(x) if q(x, record) and (record matches record or not r(record));", []),
        ("p(_: record) if q(record) and r(record);", ["`record` is a type, but is used as a variable here"]),
        ("p(record: record) if q(record, user) and r(user);", ["`user` is a type, but is used as a variable here"]),
    ],
)
def test_a_variable_with_a_type_may_be_named_like_it(rule, warnings):
    assert warnings_of("actor user {} resource record {} " + rule) == warnings
