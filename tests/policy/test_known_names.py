"""Which roles and relations a policy knows."""

import pytest

from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.program import Signature
from policy.rules.types import known_names

POLICY = """
actor User {}
actor Team {}
global { roles = ["root"]; permissions = ["audit"]; "audit" if "root"; }
resource Org { roles = ["member", "owner"]; permissions = ["read"]; "member" if "owner"; "read" if "member"; }
resource Repo {
  roles = ["reader", "writer"]; permissions = ["read"]; relations = { organization: Org };
  "reader" if "writer"; "reader" if "member" on "organization"; "read" if "reader";
}
resource Doc { relations = { repo: Repo }; permissions = ["read"]; "read" if "read" on "repo"; }
"""
GROUPS = """
has_role(actor: Actor, role: String, resource: Resource) if
  has_group(actor, group) and group matches Team and has_role(group, role, resource);
"""
INHERITED = """
has_role(u: User, role: String, d: Doc) if has_relation(d, "repo", r) and r matches Repo and has_role(u, role, r);
"""


def known(policy: str, predicate: str, *types: str):
    found = known_names(compile_source(Source(policy)), Signature(predicate, types))
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("more", "signature", "names"),
    [
        ("", "has_role User String Org", {"member", "owner"}),
        ("", "has_role User String Repo", {"reader", "writer"}),
        ("", "has_role User String", {"root"}),
        ("", "has_role User String Doc", set()),
        ("", "has_relation Repo String Org", {"organization"}),
        ("", "has_relation Doc String Repo", {"repo"}),
        # a rule that names one knows it, whether it asks for it or not
        ('has_permission(u: User, "x", d: Doc) if has_role(u, "guest", d);', "has_role User String Doc", {"guest"}),
        ('has_permission(u: User, "x", d: Doc) if not has_role(u, "ban", d);', "has_role User String Doc", {"ban"}),
        ('has_role(u: User, "boss", o: Org) if has_role(u, "owner", o);', "has_role User String Org",
         {"boss", "member", "owner"}),
        ('has_permission(u: User, "x", d: Doc) if r in ["a", "b"] and has_role(u, r, d);', "has_role User String Doc",
         {"a", "b"}),
        ('has_permission(u: User, "x", d: Doc) if has_relation(d, "author", u);', "has_relation Doc String User",
         {"author", "repo"}),
        # one that hands names on knows those that are known where they arrive
        (GROUPS, "has_role Team String Repo", {"reader", "writer"}),
        (INHERITED, "has_role User String Repo", {"reader", "writer"}),
        (INHERITED + 'has_permission(u: User, "x", d: Doc) if has_role(u, "guest", d);', "has_role User String Repo",
         {"guest", "reader", "writer"}),
        ("has_role(u: User, r: String) if o matches Org and has_role(u, r, o);", "has_role User String Org",
         {"member", "owner", "root"}),
        # and one that looks names up in facts knows all of them
        ("has_permission(u: User, a: String, o: Org) if has_role(u, r, o) and grants(r, a);",
         "has_role User String Org", None),
        ("has_permission(u: User, a: String, d: Doc) if has_role(u, a, d);" + INHERITED, "has_role User String Repo",
         None),
        (GROUPS + "has_permission(t: Actor, a: String, o: Org) if has_role(t, r, o) and grants(r, a);",
         "has_role Team String Org", None),
        # what has no name
        ("declare member(User, Team);", "member User Team", None),
        ("", "has_role User Integer Org", None),
    ],
)  # fmt: skip
def test_names_that_a_policy_knows(more, signature, names):
    predicate, *types = signature.split()
    assert known(POLICY + more, predicate, *types) == names
