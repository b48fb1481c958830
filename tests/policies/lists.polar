# A variable out of a list: it chooses, and it generates.
actor User {}

resource Document {
  roles = ["reader", "editor", "owner"];
  permissions = ["read", "edit"];
}

has_permission(user: User, "read", document: Document) if
  role in ["reader", "editor", "owner"] and
  has_role(user, role, document);

has_permission(user: User, action: String, document: Document) if
  action in ["read", "edit"] and
  has_role(user, "owner", document);

has_permission(user: User, "edit", document: Document) if
  has_role(user, role, document) and
  (role = "editor" or role in ["owner", "admin"]) and
  not user in [User{"mallory"}, User{"trudy"}];

test "lists" {
  setup {
    has_role(User{"ann"}, "owner", Document{"d"});
    has_role(User{"bob"}, "reader", Document{"d"});
    has_role(User{"mallory"}, "editor", Document{"d"});
  }
  assert allow(User{"ann"}, action: String, Document{"d"}) iff action in ["read", "edit"];
  assert allow(User{"bob"}, action: String, Document{"d"}) iff action in ["read"];
  assert allow(User{"mallory"}, action: String, Document{"d"}) iff action in ["read"];
}
