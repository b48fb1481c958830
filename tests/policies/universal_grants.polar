# Rules without conditions, for every value of a type.
actor User {}
actor Bot {}

global { roles = ["user"]; }

resource Organization {
  roles = ["admin"];
  permissions = ["read", "delete"];
  "read" if global "user";
  "delete" if "admin";
}

resource Field {}

has_role(_: User, "user");
has_relation(Field{"email"}, "account", _: Organization);
is_contact(field: Field, org: Organization) if has_relation(field, "account", org);

test "for every user" {
  setup { has_role(User{"bob"}, "admin", Organization{"acme"}); }
  assert allow(User{"whoever"}, "read", Organization{"wherever"});
  assert_not allow(Bot{"b"}, "read", Organization{"wherever"});
  assert allow(User{"bob"}, action: String, Organization{"acme"}) iff action in ["read", "delete"];
  assert allow(User{"whoever"}, action: String, Organization{"acme"}) iff action in ["read"];
  assert allow(user: User, "delete", Organization{"acme"}) iff user in [User{"bob"}];
  assert is_contact(Field{"email"}, Organization{"any"});
  assert_not is_contact(Field{"name"}, Organization{"any"});
}
