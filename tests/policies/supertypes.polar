# What holds for a supertype holds for its subtypes, which keep their exact types.
actor User {}
actor Admin extends User {}

resource Content {
  roles = ["viewer", "editor"];
  permissions = ["view", "edit"];
  relations = { container: Content };
  role if role on "container";
  "viewer" if "editor";
  "view" if "viewer";
  "edit" if "editor";
}

resource Folder extends Content {}

resource Page extends Content {
  permissions = ["publish"];
  "publish" if "editor" and is_reviewed(resource);
}

has_permission(_: Admin, "view", _: Content);

test "inherited roles, permissions and relations" {
  setup {
    has_relation(Page{"p"}, "container", Folder{"f"});
    has_relation(Folder{"f"}, "container", Folder{"top"});
    has_role(User{"ann"}, "editor", Folder{"top"});
    is_reviewed(Page{"p"});
  }
  assert allow(User{"ann"}, action: String, Page{"p"}) iff action in ["view", "edit", "publish"];
  assert allow(User{"ann"}, "edit", page: Page) iff page in [Page{"p"}];
  assert_not allow(User{"ann"}, "edit", Page{"f"});
  assert allow(Admin{"root"}, "view", Folder{"any"});
  assert_not allow(User{"root"}, "view", Folder{"any"});
}

test "a fact about a subtype's role" {
  setup { has_role(Admin{"zoe"}, "editor", Page{"p"}); }
  assert allow(Admin{"zoe"}, "edit", Page{"p"});
  assert_not allow(User{"zoe"}, "edit", Page{"p"});
}
