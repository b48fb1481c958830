# All of them, not any of them: a double negation.
actor User {}

resource Document {
  permissions = ["sign"];
}

global { roles = ["lawyer", "director"]; }

has_permission(user: User, "sign", document: Document) if
  is_signer(user, document) and
  not (role matches String and requires_role(document, role) and not has_role(user, role));

test "every required role" {
  setup {
    is_signer(User{"ann"}, Document{"deed"});
    is_signer(User{"bob"}, Document{"deed"});
    is_signer(User{"bob"}, Document{"note"});
    requires_role(Document{"deed"}, "lawyer");
    requires_role(Document{"deed"}, "director");
    has_role(User{"ann"}, "lawyer");
    has_role(User{"ann"}, "director");
    has_role(User{"bob"}, "lawyer");
  }
  assert allow(user: User, "sign", Document{"deed"}) iff user in [User{"ann"}];
  assert allow(User{"bob"}, "sign", Document{"note"});
  assert_not allow(User{"ann"}, "sign", Document{"note"});
}
