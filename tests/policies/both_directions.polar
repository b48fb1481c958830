# From parent to child and from child to parent, without end.
actor User {}

resource Organization {
  roles = ["visitor", "admin"];
  permissions = ["view"];
  "view" if "visitor";
  "visitor" if "admin";
}

resource Repository {
  roles = ["reader", "admin"];
  permissions = ["read"];
  relations = { organization: Organization };
  "admin" if "admin" on "organization";
  "reader" if "admin";
  "read" if "reader";
}

has_role(user: User, "visitor", org: Organization) if
  repo matches Repository and
  has_relation(repo, "organization", org) and
  has_role(user, "reader", repo);

test "up and down" {
  setup {
    has_relation(Repository{"a"}, "organization", Organization{"acme"});
    has_relation(Repository{"b"}, "organization", Organization{"acme"});
    has_role(User{"ann"}, "reader", Repository{"a"});
    has_role(User{"bob"}, "admin", Organization{"acme"});
  }
  assert allow(User{"ann"}, "view", Organization{"acme"});
  assert_not allow(User{"ann"}, "read", Repository{"b"});
  assert allow(User{"bob"}, "read", Repository{"b"});
  assert allow(user: User, "view", Organization{"acme"}) iff user in [User{"ann"}, User{"bob"}];
}
