# Field-level access with a predicate of one's own over four things.
actor User {}
resource Field {}

resource Account {
  roles = ["visitor", "owner"];
  permissions = ["read", "update"];
  "visitor" if "owner";
  "read" if "visitor";
  "update" if "owner";
}

allow_field(user: User, "read", account: Account, Field{"username"}) if
  has_permission(user, "read", account);

allow_field(user: User, action: String, account: Account, _field: Field) if
  has_role(user, "owner", account) and
  has_permission(user, action, account);

allow_field(user: User, "update", account: Account, field: Field) if
  may_edit_field(user, field) and
  has_permission(user, "read", account) and
  field in [Field{"username"}, Field{"email"}];

test "fields" {
  setup {
    has_role(User{"ann"}, "owner", Account{"a"});
    has_role(User{"bob"}, "visitor", Account{"a"});
    may_edit_field(User{"bob"}, Field{"email"});
    may_edit_field(User{"bob"}, Field{"salary"});
  }
  assert allow_field(User{"ann"}, "update", Account{"a"}, Field{"anything"});
  assert allow_field(User{"bob"}, "read", Account{"a"}, field: Field) iff field in [Field{"username"}];
  assert allow_field(User{"bob"}, "update", Account{"a"}, field: Field) iff field in [Field{"email"}];
  assert_not allow_field(User{"bob"}, "read", Account{"a"}, Field{"email"});
  assert allow_field(User{"ann"}, "read", Account{"a"}, _any: Field);
}
