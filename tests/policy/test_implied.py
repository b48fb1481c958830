"""Types that no block declares: accepted with a warning where the rules ask for facts of them, else refused."""

import pytest

from policy.language.source import PolicyRejected
from policy.rules import compile_text
from tests.policy.rules_text import accepted, problems_of, warnings_of

BLOCKS = """
actor User {}
resource Organization { roles = ["member"]; }
resource Repo { permissions = ["read"]; relations = { organization: Organization }; }
"""
CUSTOM_ROLES = """
has_permission(user: User, action: String, repo: Repo) if
  role matches Role and has_role(user, role, repo) and grants_permission(role, action);
"""
WARNING = "type `Role` is used in rules, but not declared"


def test_facts_of_the_type_can_be_stored():
    assert warnings_of(BLOCKS + CUSTOM_ROLES) == [WARNING]
    found = accepted(BLOCKS + CUSTOM_ROLES)
    assert "grants_permission(Role, String)" in found and "has_role(User, Role, Repo)" in found
    program = compile_text(BLOCKS + CUSTOM_ROLES)
    assert program.knows("Role") and "Role" not in program.types
    assert "Role" not in program.subtypes["Resource"] | program.subtypes["Actor"]


@pytest.mark.parametrize(
    "rule",
    [
        "grants(role: Role, action: String) if q(role, action);",
        "p(_: Role);",
        "p(x: User) if not (q(x, y) and y matches! Role);",
        "p(x: User) if q(x) or r(x, y) and y matches Role and has_role(y, _a, x);",
        "declare q(User, Role); p(x: User) if q(x, y) and y matches Role;",
    ],
)
def test_a_head_or_a_condition_of_its_own_speaks_for_a_type(rule):
    assert [each for each in warnings_of(BLOCKS + rule) if "`Role`" in each] == [WARNING]


@pytest.mark.parametrize(
    "rule",
    [
        "has_permission(u: User, _a, r: Repo) if role matches Role and has_role(u, role, r);",
        "p(x: User) if o matches Role and has_relation(x, _a, o);",
        "q(_: User); p(x: User) if q(x) and q(y) and y matches Role;",
        "p(x: User) if q(x) and x = y and y matches Role;",
        "p(x: User) if q(x, _) and _ matches Role;",
        'p(x: User) if q(x, Role{"a"});',
        "declare q(Role);",
        "resource Thing { relations = { role: Role }; }",
        "resource Thing extends Role {}",
        'test "t" { setup { q(Role{"a"}); } assert p(User{"a"}); }',
    ],
)
def test_nothing_else_does(rule):
    assert "unknown type `Role`" in problems_of(BLOCKS + rule)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Rep", "Repo"), ("repo", "Repo"), ("Repos", "Repo"), ("Org", "Organization"), ("Organisation", "Organization"),
        ("Actr", "Actor"), ("string", "String"), ("int", "Integer"), ("Bolean", "Boolean"), ("Roel", "Role"),
    ],
)  # fmt: skip
def test_a_name_that_resembles_a_known_one_is_a_mistake(name, meant):
    text = f"{BLOCKS}{CUSTOM_ROLES} p(x: User) if q(x, y) and y matches {name}; r(role: Role) if s(role);"
    with pytest.raises(PolicyRejected) as rejected:
        compile_text(text)
    assert f"unknown type `{name}` (did you mean `{meant}`?)" in rejected.value.message


def test_a_type_that_is_spoken_for_may_stand_elsewhere():
    text = f"""{BLOCKS}{CUSTOM_ROLES}
    resource Team {{ relations = {{ role: Role }}; }}
    declare is_default(Role);
    test "custom roles" {{
      setup {{ has_role(User{{"ann"}}, Role{{"editor"}}, Repo{{"r"}}); grants_permission(Role{{"editor"}}, "read"); }}
      assert allow(User{{"ann"}}, "read", Repo{{"r"}});
    }}"""
    assert warnings_of(text) == [WARNING]


def test_most_such_types_are_mistakes():
    text = "".join(f"p(x: Aa{chr(97 + i // 26) * 9}{chr(97 + i % 26) * 20});\n" for i in range(51))
    assert len(problems_of(text)) == 50
