# Whoever is blocked may do nothing; the default `allow` is written out to say so.
actor User {}

resource Repository {
  roles = ["reader", "banned"];
  permissions = ["read"];
  "read" if "reader" and not "banned";
}

allow(user: User, action: String, resource: Resource) if
  not is_blocked(user) and
  has_permission(user, action, resource);

test "denials" {
  setup {
    has_role(User{"ann"}, "reader", Repository{"r"});
    has_role(User{"bob"}, "reader", Repository{"r"});
    has_role(User{"cat"}, "reader", Repository{"r"});
    has_role(User{"cat"}, "banned", Repository{"r"});
    is_blocked(User{"bob"});
  }
  assert allow(user: User, "read", Repository{"r"}) iff user in [User{"ann"}];
  assert has_permission(User{"bob"}, "read", Repository{"r"});
  assert_not has_permission(User{"cat"}, "read", Repository{"r"});
}
