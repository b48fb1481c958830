"""Which rules differ between two policies, and what depends on them."""

import pytest

from policy.rules import compile_text
from policy.rules.changes import changed_rules, reached

POLICY = """
actor User {}
resource Folder { roles = ["viewer"]; }
resource Doc {
  roles = ["reader", "owner"];
  permissions = ["read", "write"];
  relations = { folder: Folder };
  "read" if "reader";
  "write" if "owner";
  "reader" if "viewer" on "folder";
}
has_permission(u: User, "write", d: Doc) if is_root(u) and d matches Doc and not (is_shut(d) or is_banned(u));
"""


def difference(new: str, old: str = POLICY):
    programs = compile_text(old), compile_text(new)
    changed = changed_rules(*programs)
    return changed, reached(*programs, [each.head for each in changed])


def shown(found) -> dict[str, tuple]:
    """What is reached, and in which places of the starts its arguments are."""
    said = {}
    for atoms, origins in found:
        args = (str(value or "/".join(sorted(kinds))) for kinds, value in zip(atoms.types, atoms.values))
        places = tuple(None if each is None else sorted({place for _, place in each}) for each in origins)
        said[f"{atoms.predicate}({', '.join(args)})"] = places
    return said


@pytest.mark.parametrize(
    "new",
    [
        POLICY.replace("\n", "\n\n") + "# the end",
        POLICY.replace('  "read" if "reader";\n', "").replace('  "write" if', '  "read" if "reader"; "write" if'),
        POLICY + 'test "t" { assert_not allow(User{"a"}, "read", Doc{"d"}); }',
        POLICY + 'resource Unused {}',
        "is_new(u: User) if is_old(u) or (is_young(u) and (is_red(u) or is_blue(u)));" + POLICY,
    ],
    ids=["layout", "order", "tests", "types", "numbers of parts"],
)  # fmt: skip
def test_what_is_only_written_otherwise_does_not_reach_a_permission(new):
    _, found = difference(new)
    assert not any(each.atoms.predicate == "has_permission" for each in found)


def test_a_rule_that_goes_is_followed_to_the_decisions_that_depend_on_it():
    changed, found = difference(POLICY.replace('"reader" if "viewer" on "folder";', ""))
    assert [(each.is_new, each.rule.head.predicate) for each in changed] == [(False, "has_role")]
    assert shown(found) == {
        'has_role(User, "reader", Doc)': ([0], [1], [2]),
        'has_permission(User, "read", Doc)': ([0], None, [2]),
        'allow(User, "read", Doc)': ([0], None, [2]),
    }


def test_what_is_denied_by_a_rule_depends_on_it():
    _, found = difference(POLICY + "is_banned(u: User) if is_new(u);")
    said = shown(found)
    assert said["is_banned(User)"] == ([0],)
    assert said['allow(User, "write", Doc)'] == ([0], None, None)  # of whatever document


def test_a_part_of_a_rule_is_the_rule():
    changed, found = difference(POLICY.replace("is_shut(d) or ", ""))
    assert [each.is_new for each in changed] == [False, True]
    assert 'allow(User, "write", Doc)' in shown(found)


def test_a_rule_about_every_type_differs_for_the_types_that_come():
    everywhere = POLICY + 'has_permission(u: User, "see", r: Resource) if is_root(u) and r matches Resource;'
    _, found = difference(everywhere + "resource Page {}", everywhere)
    assert shown(found)["allow(User, String, Page)"] == ([0], [1], [2])
    assert not any("Doc" in text for text in shown(found))
