# Creating needs no resource, or names its kind.
actor User {}

global {
  permissions = ["create_organization"];
}

resource Organization {
  roles = ["admin"];
  permissions = ["repository.create"];
  "repository.create" if "admin";
}

has_permission(user: User, "create_organization") if is_verified(user);
has_permission(_: User, "create", "Organization");
has_permission(user: User, "create", "Report") if is_verified(user);

test "who may create" {
  setup { is_verified(User{"ann"}); has_role(User{"bob"}, "admin", Organization{"acme"}); }
  assert allow(User{"ann"}, "create_organization");
  assert_not allow(User{"bob"}, "create_organization");
  assert allow(User{"bob"}, "create", "Organization");
  assert_not allow(User{"bob"}, "create", "Report");
  assert allow(User{"ann"}, "create", kind: String);
  assert allow(User{"bob"}, "create", kind: String) iff kind in ["Organization"];
  assert allow(User{"bob"}, "repository.create", Organization{"acme"});
}
