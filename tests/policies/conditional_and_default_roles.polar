# The role that members have on new repositories is data of the organisation; one may turn it off.
actor User {}

resource Organization {
  roles = ["member", "admin"];
}

resource Repository {
  roles = ["reader", "editor"];
  permissions = ["read", "write"];
  relations = { organization: Organization };
  "reader" if "editor";
  "read" if "reader";
  "write" if "editor";
}

has_role(user: User, role: String, repo: Repository) if
  org matches Organization and
  has_relation(repo, "organization", org) and
  has_default_role(org, role) and
  has_role(user, "member", org) and
  not is_protected(repo);

test "the organisation's default role" {
  setup {
    has_relation(Repository{"a"}, "organization", Organization{"acme"});
    has_relation(Repository{"b"}, "organization", Organization{"globex"});
    has_relation(Repository{"safe"}, "organization", Organization{"acme"});
    has_default_role(Organization{"acme"}, "editor");
    has_default_role(Organization{"globex"}, "reader");
    is_protected(Repository{"safe"});
    has_role(User{"ann"}, "member", Organization{"acme"});
    has_role(User{"ann"}, "member", Organization{"globex"});
    has_role(User{"bob"}, "reader", Repository{"safe"});
  }
  assert allow(User{"ann"}, "write", repo: Repository) iff repo in [Repository{"a"}];
  assert allow(User{"ann"}, "read", repo: Repository) iff repo in [Repository{"a"}, Repository{"b"}];
  assert_not allow(User{"ann"}, "read", Repository{"safe"});
  assert allow(User{"bob"}, "read", Repository{"safe"});
}
