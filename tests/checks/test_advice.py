"""Which words a policy has, where rules and facts grant names that no block declares."""

import pytest

from checks.asking.advice import advice
from policy.rules import compile_text

POLICY = """
actor User {}
actor Team {}
resource Folder { roles = ["viewer"]; }
resource Doc {
  roles = ["owner"];
  permissions = ["read"];
  relations = { folder: Folder };
  role if role on "folder";
  "read" if "owner";
}
resource Org { permissions = ["see"]; }
has_permission(user: User, "purge", doc: Doc) if is_root(user) and doc matches Doc;
has_permission(user: User, action: String, org: Org) if has_custom(user, action, org);
"""


@pytest.mark.parametrize(
    ("predicate", "terms", "said"),
    [
        ("allow", [("User", "a"), ("String", "purge"), ("Doc", "d")], []),
        ("allow", [("User", "a"), ("String", "prge"), ("Doc", "d")],
         ["the policy has no action `prge` on Doc (did you mean `purge`? declared: `purge`, `read`)"]),
        ("allow", [("User", "a"), ("String", "anything that facts say"), ("Org", "o")], []),
        ("allow", [("User", "a"), ("String", "x"), ("Folder", "f")],
         ["the policy has no action `x` on Folder (none are declared)"]),
        ("allow", [("User", "a"), ("String", None), ("Doc", None)], []),
        ("allow", [("Usr", "a"), ("String", "x"), ("Dok", "d")],
         ["the policy has no type `Usr` (did you mean `User`? declared: `Doc`, `Folder`, `Org`, `Team`, `User`)",
          "the policy has no type `Dok` (did you mean `Doc`? declared: `Doc`, `Folder`, `Org`, `Team`, `User`)"]),
        ("has_role", [("User", "a"), ("String", "viewer"), ("Doc", "d")], []),
        ("has_role", [("User", "a"), ("String", "view"), ("Doc", "d")],
         ["the policy has no role `view` on Doc (did you mean `viewer`? declared: `owner`, `viewer`)"]),
        ("has_relation", [("Doc", "d"), ("String", "folders"), ("Folder", "f")],
         ["the policy has no relation `folders` on Doc (did you mean `folder`? declared: `folder`)"]),
    ],
)  # fmt: skip
def test_words_without_a_meaning_are_reported(predicate, terms, said):
    assert list(advice(compile_text(POLICY), predicate, terms)) == said
