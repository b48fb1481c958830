# The owner of a document may share it with users and teams.
actor User {}
actor Team {}

resource Document {
  roles = ["viewer", "editor"];
  permissions = ["read", "edit", "share"];
  relations = { owner: User };
  "editor" if "owner";
  "viewer" if "editor";
  "read" if "viewer";
  "edit" if "editor";
  "share" if "owner";
}

has_role(user: User, role: String, document: Document) if
  team matches Team and
  is_member(user, team) and
  has_role(team, role, document);

test "owners, and those they share with" {
  setup {
    has_relation(Document{"plan"}, "owner", User{"ann"});
    has_role(User{"bob"}, "viewer", Document{"plan"});
    has_role(Team{"design"}, "editor", Document{"plan"});
    is_member(User{"cat"}, Team{"design"});
  }
  assert allow(User{"ann"}, action: String, Document{"plan"}) iff action in ["read", "edit", "share"];
  assert allow(User{"bob"}, action: String, Document{"plan"}) iff action in ["read"];
  assert allow(User{"cat"}, action: String, Document{"plan"}) iff action in ["read", "edit"];
  assert allow(Team{"design"}, "edit", Document{"plan"});
  assert allow(user: User, "share", Document{"plan"}) iff user in [User{"ann"}];
  assert_not allow(User{"dan"}, "read", Document{"plan"});
}
