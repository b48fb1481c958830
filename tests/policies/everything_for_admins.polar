# `permission` as head: every action, even one that nobody declared.
actor User {}

resource Organization { roles = ["admin", "auditor"]; }

resource Repository {
  permissions = ["read", "write"];
  relations = { organization: Organization };
  permission if "admin" on "organization";
  "read" if "auditor" on "organization";
}

test "all permissions" {
  setup {
    has_relation(Repository{"a"}, "organization", Organization{"acme"});
    has_role(User{"ann"}, "admin", Organization{"acme"});
    has_role(User{"bob"}, "auditor", Organization{"acme"});
  }
  assert allow(User{"ann"}, "write", Repository{"a"});
  assert allow(User{"ann"}, "something new", Repository{"a"});
  assert allow(User{"bob"}, action: String, Repository{"a"}) iff action in ["read"];
  assert_not allow(User{"ann"}, "write", Repository{"b"});
}
