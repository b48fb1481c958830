"""The types of variables."""

import pytest

from tests.policy.rules_text import accepted, problems_of, types_of, warnings_of

BLOCKS = "actor User {} actor Bot {} resource Doc {} resource File extends Doc {} "


def test_an_untyped_variable_that_nothing_narrows_is_anything():
    text = BLOCKS + "hello(x) if is_friendly(x); other(u: User) if is_friendly(u);"
    assert types_of(text, "hello") == {"x": "_"}
    assert "is_friendly(_)" in accepted(text)


@pytest.mark.parametrize(
    ("rules", "types"),
    [
        ("p(x: User) if q(x);", "User"),
        ("p(x: Actor) if q(x);", "Actor"),
        ("p(x) if q(x) and x matches Doc;", "Doc"),
        ("p(x) if q(x) and x matches! Doc;", "Doc!"),
        ("p(x: Resource) if q(x) and x matches Doc;", "Doc"),
        ("p(x) if q(x) and x < 3;", "Integer"),
        ("p(x) if q(x) and 3 < x and x < @current_unix_time;", "Integer"),
        ('p(x) if q(x) and x in ["a", 3];', "Integer | String"),
        ("p(x) if q(x) and not x matches Doc and x matches Resource;", "Actor"),
        ("declare q(User); p(x) if q(x);", "User"),
        ("declare q(User); declare q(Doc); p(x) if q(x);", "Doc! | File | User"),
        ("declare q(Actor); declare r(User); p(x) if q(x) and r(x);", "User"),
        ("q(_: User); p(x) if q(x);", "User"),
        ("p(x) if q(x); q(x) if r(x); r(_: Doc);", "Doc"),
        ("declare q(User); p(x) if not q(x);", "_"),
        ("declare q(User); p(x) if r(x) and not q(x);", "_"),
        ("declare q(User); p(x) if r(x) and (q(x) or s(x) and x matches Bot);", "Actor"),
        ("p(x) if r(x) and (x = 3 or x matches Doc);", "Doc! | File | Integer"),
        ("p(x) if q(x, 3); declare q(User, Integer); declare q(Bot, String);", "User"),
        ("p(x) if q(x, y) and y matches Doc; declare q(User, Integer); declare q(Bot, File);", "Bot"),
        ("p(x) if x != 3 and q(x);", "_"),
        ("p(x) if p(x) and q(x); declare q(Bot);", "Bot"),
        ("p(x) if p(y) and q(y, x); declare q(User, User);", "User"),
        ("p(x) if q(x); q(x) if p(x);", "_"),
    ],
)
def test_x_is_of_these_types(rules, types):
    assert types_of(BLOCKS + rules, "p")["x"] == types


def test_time_is_an_integer():
    text = BLOCKS + "p(file: File) if expires_at(file, time) and @current_unix_time < time;"
    assert types_of(text, "p") == {"file": "File", "time": "Integer"}
    assert "expires_at(File, Integer)" in accepted(text)


def test_a_variable_inside_of_one_not_is_narrowed_by_it():
    assert types_of(BLOCKS + "declare q(User, Doc); p(x: User) if not q(x, y) and r(x);", "p")["y"] == "Doc"


def test_helper_rules_know_the_types_outside():
    text = BLOCKS + "p(x: User) if f matches File and (q(x, f) or r(f, z)) and not (q(x, f) and s(w));"
    assert types_of(text, "or#1") == {"f": "File", "x": "User"}
    assert types_of(text, "or#1", 1) == {"f": "File", "x": "User", "z": "_"}
    assert types_of(text, "not#2") == {"f": "File", "x": "User", "w": "_"}


def test_types_flow_into_helpers_from_other_conjuncts_and_out_of_their_branches():
    text = BLOCKS + "declare q(User); p(x) if q(x) and (r(x) or s(x));"
    assert types_of(text, "or#1") == {"x": "User"}
    text = BLOCKS + "declare q(User); declare r(Bot); p(x) if s(x) and (q(x) or r(x));"
    assert types_of(text, "p") == {"x": "Actor"}


def test_a_call_of_its_own_shape_widens_what_others_see():
    """A Role in place of a String: the typed call makes such facts storable, and the untyped one finds them."""
    text = (
        'actor User {} resource Role {} resource Org { roles = ["a"]; } '
        "custom(u: User, o: Org) if role matches Role and has_role(u, role, o); any(u, r, o) if has_role(u, r, o);"
    )
    assert types_of(text, "any") == {"u": "User", "r": "Role | String", "o": "Org"}
    assert [line for line in accepted(text) if line.startswith("has_role")] == [
        "has_role(User, Role | String, Org)",
    ]


def test_a_call_that_fits_nothing_keeps_its_open_variables():
    text = BLOCKS + "declare q(User, Doc); p(x: Bot, y) if q(x, y); r(x, y) if q(x, y);"
    assert types_of(text, "p")["y"] == "_"
    assert types_of(text, "r") == {"x": "Actor", "y": "_"}
    assert "q(Bot, _)" in accepted(text)


def test_facts_that_are_accepted_in_any_case_stay_in_sight():
    """`has_group` has a rule for Bots alone, but any actor may be stored in any group: open calls can meet those."""
    text = BLOCKS + "has_group(x: Bot, y: Bot) if next_to(x, y); p(x: User) if r(x); "
    assert types_of(text + "p(x, g) if has_group(x, g);", "p", 1) == {"x": "Actor", "g": "Actor"}
    assert types_of(text + "p(x) if r(x) and not has_group(x, g);", "p", 1)["g"] == "Actor"
    assert types_of(text + "p(x: Doc, g) if has_group(x, g);", "p", 1) == {"x": "Doc", "g": "_"}
    only_one = text.replace("actor Bot", "resource Bot")
    assert types_of(only_one + "p(x, g) if has_group(x, g);", "p", 1) == {"x": "Bot", "g": "Bot"}


def test_facts_that_are_accepted_in_any_case_leave_a_call_that_fits_nothing_its_shape():
    text = BLOCKS + "p(x, g) if has_group(x, g);"
    assert types_of(text, "p") == {"x": "_", "g": "_"}
    assert "has_group(_, _)" in accepted(text)
    text = BLOCKS + "has_group(x: Bot, y: Bot) if next_to(x, y); p(x: User, g) if has_group(x, g);"
    assert types_of(text, "p")["g"] == "_"
    assert "has_group(User, _)" in accepted(text)


def test_allow_covers_whatever_has_permission_says():
    text = BLOCKS + 'has_permission(_: User, "create", "Report"); has_permission(Doc{"d"}, "see", 3);'
    types = types_of(text, "allow", 1)
    assert set(types["resource"].replace("!", "").split(" | ")) == {"Bot", "Doc", "File", "Integer", "String", "User"}
    assert set(types["actor"].split(" | ")) == {"Bot", "Doc!", "User"}


def test_the_order_of_rules_does_not_matter():
    rules = ["p(x) if q(x) and r(x);", "q(x) if s(x);", "declare s(User);", "r(_: Actor);", "s(x) if p(x);"]
    assert types_of(BLOCKS + "".join(rules), "p") == types_of(BLOCKS + "".join(reversed(rules)), "p") == {"x": "Actor"}


def test_what_can_never_be_is_warned_of():
    text = BLOCKS + "declare q(User); declare r(Doc); p(x) if q(x) and r(x);"
    assert warnings_of(text) == ["no type fits all uses of `x`"]
    assert warnings_of(BLOCKS + "p(x: User) if q(x) and not x matches Actor;") == [
        "`x` is always `User`, which a `not` excludes"
    ]


@pytest.mark.parametrize("rule", ["p(x: User) if q(x) and x < 3;", "p(x: User) if x matches Doc and q(x);"])
def test_a_conflict_within_a_rule_is_refused(rule):
    assert problems_of(BLOCKS + rule)


def test_long_chains_of_untyped_rules_end():
    rules = "".join(f"p{i}(x) if p{i + 1}(x);\n" for i in range(300))
    assert types_of(BLOCKS + rules + "declare p300(User);", "p299") == {"x": "User"}
