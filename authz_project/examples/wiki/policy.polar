actor User {}

resource Organization {
  roles = ["member", "admin"];
  permissions = ["read"];
  "member" if "admin";
  "read" if "member";
}

resource Team {
  roles = ["member"];
}

resource Project {
  relations = { organization: Organization, team: Team };
  roles = ["viewer", "editor"];
  permissions = ["read", "edit"];
  "editor" if "member" on "team";
  "editor" if "admin" on "organization";
  "viewer" if "editor";
  "read" if "viewer";
  "edit" if "editor";
}

resource Folder {
  relations = { project: Project, parent: Folder };
  roles = ["viewer", "editor"];
  permissions = ["read", "edit"];
  role if role on "project";
  role if role on "parent";
  "viewer" if "editor";
  "read" if "viewer";
  "edit" if "editor";
}

resource Document {
  relations = { folder: Folder, author: User };
  roles = ["viewer", "editor"];
  permissions = ["read", "edit", "delete"];
  role if role on "folder";
  "viewer" if "editor";
  "read" if "viewer";
  "read" if is_public(resource);
  "edit" if "editor" and not is_archived(resource);
  "delete" if "author" and not is_archived(resource);
}

test "members of a project's team edit its documents" {
  setup {
    has_role(User{"ann"}, "member", Team{"t"});
    has_relation(Project{"p"}, "team", Team{"t"});
    has_relation(Folder{"f"}, "project", Project{"p"});
    has_relation(Document{"d"}, "folder", Folder{"f"});
    is_archived(Document{"old"});
    has_relation(Document{"old"}, "folder", Folder{"f"});
  }
  assert allow(User{"ann"}, "edit", Document{"d"});
  assert_not allow(User{"ben"}, "read", Document{"d"});
  assert_not allow(User{"ann"}, "edit", Document{"old"});
}
