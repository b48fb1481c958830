# A folder's own setting wins over that of its parent.
actor User {}

resource Folder {
  roles = ["reader"];
  permissions = ["read"];
  relations = { parent: Folder };
  "read" if "reader";
}

has_role(user: User, role: String, folder: Folder) if
  parent matches Folder and
  has_relation(folder, "parent", parent) and
  not has_own_roles(folder) and
  has_role(user, role, parent);

test "overriding" {
  setup {
    has_relation(Folder{"b"}, "parent", Folder{"a"});
    has_relation(Folder{"c"}, "parent", Folder{"b"});
    has_relation(Folder{"x"}, "parent", Folder{"a"});
    has_own_roles(Folder{"b"});
    has_role(User{"ann"}, "reader", Folder{"a"});
    has_role(User{"bob"}, "reader", Folder{"b"});
  }
  assert allow(User{"ann"}, "read", folder: Folder) iff folder in [Folder{"a"}, Folder{"x"}];
  assert allow(User{"bob"}, "read", folder: Folder) iff folder in [Folder{"b"}, Folder{"c"}];
}
