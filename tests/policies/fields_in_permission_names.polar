# Field-level access in the names of permissions.
actor User {}

resource Account {
  roles = ["visitor", "owner"];
  permissions = ["username.read", "username.update", "email.read", "email.update"];
  "visitor" if "owner";
  "username.read" if "visitor";
  "email.read" if "owner";
  "username.update" if "owner";
  "email.update" if "owner" and not is_verified(resource);
}

test "fields" {
  setup {
    has_role(User{"ann"}, "owner", Account{"a"});
    has_role(User{"ann"}, "owner", Account{"v"});
    has_role(User{"bob"}, "visitor", Account{"a"});
    is_verified(Account{"v"});
  }
  assert allow(User{"bob"}, action: String, Account{"a"}) iff action in ["username.read"];
  assert allow(User{"ann"}, action: String, Account{"v"}) iff action not in ["email.update"];
  assert allow(User{"ann"}, "email.update", Account{"a"});
}
