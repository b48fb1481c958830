"""Which facts a policy accepts."""

import pytest

from policy.rules import compile_text
from tests.policy.rules_text import accepted

BLOCKS = "actor User {} resource Doc {} resource Dog {} "


def test_blocks_imply_facts_about_their_names():
    text = (
        'actor User {} global { roles = ["a"]; permissions = ["p"]; } resource Bare {} '
        'resource Org { roles = ["r"]; } resource Doc { permissions = ["p"]; relations = { org: Org, by: Actor }; }'
    )
    assert accepted(text) == [
        "has_relation(Doc, String, Org | User)",
        "has_role(User, String)",
        "has_role(User, String, Org)",
    ]


def test_permissions_may_be_stored_with_the_default_allow():
    program = compile_text(BLOCKS)
    assert program.accepts("has_permission", ("User", "String", "Doc"))
    assert program.accepts("has_permission", ("User", "String"))
    assert program.accepts("allow", ("User", "String", "Doc"))
    assert not program.accepts("has_permission", ("Doc", "String", "User"))


def test_an_allow_of_ones_own_ends_that():
    program = compile_text(BLOCKS + 'allow(u: User, "read", d: Doc) if likes(u, d);')
    assert not program.accepts("has_permission", ("User", "String", "Doc"))
    assert program.accepts("has_permission", ("User", "String"))


def test_a_call_accepts_its_types_alone():
    text = BLOCKS + 'has_permission(user: User, "pet", dog: Dog) if are_friends(user, dog);'
    program = compile_text(text)
    assert accepted(text) == ["are_friends(User, Dog)"]
    assert program.accepts("are_friends", ("User", "Dog"))
    for types in [("User", "Doc"), ("Dog", "User"), ("User",), ("User", "Dog", "Dog")]:
        assert not program.accepts("are_friends", types)


@pytest.mark.parametrize(
    ("rules", "patterns"),
    [
        ("declare p(User, String); declare p(User); declare p(Doc);", ["p(Doc | User)", "p(User, String)"]),
        ("p(x: User) if not q(x, y);", ["p(User)", "q(User, _)"]),
        ("p(_: User); p(_: Doc);", ["p(Doc | User)"]),
        ("p(x: Resource) if q(x); r(x: User) if q(x);", ["p(Resource)", "q(Resource)", "r(User)"]),
        ("p(x: User) if q(x) and (r(x) or not (s(x) and t(x)));", [f"{name}(User)" for name in "pqrst"]),
        ('p("a", 3, true) if q(@current_unix_time);', ["p(String, Integer, Boolean)", "q(Integer)"]),
        ("declare q(Doc); p(x: User, y) if r(x) and not q(y);", ["p(User, _)", "q(Doc)", "r(User)"]),
        ("p() if q(Doc{\"d\"}) and r(a, a, a, a, a, a);", ["q(Doc)"]),
        ("p(x: User) if false;", []),
    ],
)  # fmt: skip
def test_these_rules_accept_these_facts(rules, patterns):
    assert accepted(BLOCKS + rules) == patterns


def test_subtypes_are_accepted_where_a_supertype_is():
    program = compile_text('actor User {} resource Doc { roles = ["r"]; } resource Page extends Doc {}')
    assert program.accepts("has_role", ("User", "String", "Page"))


def test_names_are_not_checked_only_types():
    assert compile_text('actor User {} resource Doc { roles = ["r"]; }').accepts("has_role", ("User", "String", "Doc"))


def test_patterns_are_merged_and_none_is_inside_another():
    text = BLOCKS + "declare p(User, Doc); declare p(User, Dog); declare p(Resource, Dog); declare p(User, String);"
    assert accepted(text) == ["p(User, Doc | String)", "p(Resource, Dog)"]
