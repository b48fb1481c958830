# Roles on a parent become roles on what belongs to it, and roles of one resource build on each other.
actor User {}

resource Organization {
  roles = ["member", "admin"];
  permissions = ["read"];
  "member" if "admin";
  "read" if "member";
}

resource Repository {
  roles = ["reader", "maintainer", "admin"];
  permissions = ["read", "push", "delete"];
  relations = { organization: Organization };

  "reader" if "member" on "organization";
  "admin" if "admin" on "organization";
  "maintainer" if "admin";
  "reader" if "maintainer";

  "read" if "reader";
  "push" if "maintainer";
  "delete" if "admin";
}

resource Issue {
  permissions = ["read", "close"];
  relations = { repository: Repository, creator: User };
  "read" if "reader" on "repository";
  "close" if "push" on "repository";
  "close" if "creator" and "read";
}

test fixture world {
  has_relation(Repository{"anvil"}, "organization", Organization{"acme"});
  has_relation(Issue{"1"}, "repository", Repository{"anvil"});
  has_relation(Issue{"1"}, "creator", User{"carol"});
  has_role(User{"alice"}, "admin", Organization{"acme"});
  has_role(User{"bob"}, "member", Organization{"acme"});
  has_role(User{"carol"}, "reader", Repository{"anvil"});
}

test "roles flow down" {
  setup { fixture world; }
  assert allow(User{"alice"}, action: String, Repository{"anvil"}) iff action in ["read", "push", "delete"];
  assert allow(User{"bob"}, action: String, Repository{"anvil"}) iff action in ["read"];
  assert allow(User{"bob"}, "read", Issue{"1"});
  assert_not allow(User{"bob"}, "close", Issue{"1"});
  assert allow(User{"alice"}, "close", Issue{"1"});
}

test "who created an issue may close it, while still able to read it" {
  setup { fixture world; }
  assert allow(User{"carol"}, "close", Issue{"1"});
}

test "a creator who can no longer read" {
  setup { has_relation(Issue{"1"}, "creator", User{"carol"}); }
  assert_not allow(User{"carol"}, "close", Issue{"1"});
}
