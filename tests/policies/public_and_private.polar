# Attributes are facts: a resource is public, or protected, or is not.
actor User {}

resource Repository {
  roles = ["reader", "admin"];
  permissions = ["read", "fork", "delete"];
  "read" if "reader";
  "read" if is_public(resource);
  "fork" if is_public(resource) and not is_archived(resource);
  "delete" if "admin" and is_protected(resource, false);
}

test "public resources are for everybody" {
  setup {
    is_public(Repository{"open"});
    is_public(Repository{"old"});
    is_archived(Repository{"old"});
    has_role(User{"ann"}, "reader", Repository{"closed"});
  }
  assert allow(User{"anyone"}, "read", repo: Repository) iff repo in [Repository{"open"}, Repository{"old"}];
  assert allow(User{"ann"}, "read", Repository{"closed"});
  assert allow(User{"anyone"}, "fork", Repository{"open"});
  assert_not allow(User{"anyone"}, "fork", Repository{"old"});
  assert_not allow(User{"anyone"}, "read", Repository{"closed"});
  assert allow(_anyone: User, "read", Repository{"open"});
}

test "a Boolean attribute" {
  setup {
    has_role(User{"ann"}, "admin", Repository{"a"});
    has_role(User{"ann"}, "admin", Repository{"b"});
    is_protected(Repository{"a"}, true);
    is_protected(Repository{"b"}, false);
  }
  assert_not allow(User{"ann"}, "delete", Repository{"a"});
  assert allow(User{"ann"}, "delete", Repository{"b"});
  assert_not allow(User{"ann"}, "delete", Repository{"c"});
}
