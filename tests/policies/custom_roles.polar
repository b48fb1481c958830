# Roles that customers define: a Role is a resource, and stands where a role's name would.
actor User {}

resource Role {}

resource Organization {
  roles = ["admin"];
  permissions = ["read", "write", "bill"];
  permission if "admin";
}

has_permission(user: User, action: String, org: Organization) if
  role matches Role and
  has_role(user, role, org) and
  grants_permission(role, action);

test "what a custom role grants" {
  setup {
    has_role(User{"bob"}, Role{"bookkeeper"}, Organization{"acme"});
    grants_permission(Role{"bookkeeper"}, "read");
    grants_permission(Role{"bookkeeper"}, "bill");
    has_role(User{"ann"}, "admin", Organization{"acme"});
  }
  assert allow(User{"bob"}, action: String, Organization{"acme"}) iff action in ["read", "bill"];
  assert_not allow(User{"bob"}, "read", Organization{"globex"});
  assert allow(User{"ann"}, "write", Organization{"acme"});
  assert has_role(User{"bob"}, Role{"bookkeeper"}, Organization{"acme"});
  assert_not has_role(User{"bob"}, "bookkeeper", Organization{"acme"});
}
