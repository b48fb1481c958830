# Roles in an organisation, with dotted permission names.
actor User {}

resource Organization {
  roles = ["viewer", "owner"];
  permissions = ["organization.view", "organization.delete", "repository.create"];

  "viewer" if "owner";
  "organization.view" if "viewer";
  "organization.delete" if "owner";
  "repository.create" if "owner";
}

test fixture tenants {
  has_role(User{"alice"}, "owner", Organization{"acme"});
  has_role(User{"bob"}, "viewer", Organization{"acme"});
  has_role(User{"bob"}, "owner", Organization{"globex"});
}

test "roles count in their own organisation only" {
  setup { fixture tenants; }
  assert allow(User{"alice"}, "organization.delete", Organization{"acme"});
  assert allow(User{"bob"}, "organization.view", Organization{"acme"});
  assert_not allow(User{"bob"}, "organization.delete", Organization{"acme"});
  assert_not allow(User{"alice"}, "organization.view", Organization{"globex"});
  assert allow(User{"bob"}, action: String, Organization{"acme"}) iff action in ["organization.view"];
  assert allow(user: User, "organization.view", Organization{"acme"}) iff user in [User{"alice"}, User{"bob"}];
  assert allow(User{"bob"}, "repository.create", org: Organization) iff org in [Organization{"globex"}];
}

test "an action that nobody declared" {
  setup { fixture tenants; }
  assert_not allow(User{"alice"}, "organization.paint", Organization{"acme"});
}
