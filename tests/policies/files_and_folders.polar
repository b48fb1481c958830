# A tree of folders; a permission on a folder is one on all below it.
actor User {}

resource Repository {
  roles = ["maintainer"];
}

resource Folder {
  roles = ["reader", "writer"];
  relations = { repository: Repository, folder: Folder };
  "writer" if "maintainer" on "repository";
  role if role on "folder";
  "reader" if "writer";
}

resource File {
  roles = ["reader", "writer"];
  permissions = ["read", "write"];
  relations = { folder: Folder };
  role if role on "folder";
  "read" if "reader";
  "write" if "writer";
}

test fixture tree {
  has_relation(Folder{"root"}, "repository", Repository{"anvil"});
  has_relation(Folder{"src"}, "folder", Folder{"root"});
  has_relation(Folder{"lib"}, "folder", Folder{"src"});
  has_relation(File{"main"}, "folder", Folder{"src"});
  has_relation(File{"util"}, "folder", Folder{"lib"});
  has_relation(File{"readme"}, "folder", Folder{"root"});
}

test "roles go down the tree, not up" {
  setup { fixture tree; has_role(User{"bob"}, "reader", Folder{"src"}); }
  assert allow(User{"bob"}, "read", file: File) iff file in [File{"main"}, File{"util"}];
  assert_not allow(User{"bob"}, "write", File{"util"});
  assert_not allow(User{"bob"}, "read", File{"readme"});
}

test "from the repository to the deepest file" {
  setup { fixture tree; has_role(User{"ann"}, "maintainer", Repository{"anvil"}); }
  assert allow(User{"ann"}, "write", file: File) iff file in [File{"main"}, File{"util"}, File{"readme"}];
}

test "folders in a circle" {
  setup {
    fixture tree;
    has_relation(Folder{"root"}, "folder", Folder{"lib"});
    has_role(User{"bob"}, "reader", Folder{"lib"});
  }
  assert allow(User{"bob"}, "read", file: File) iff file in [File{"main"}, File{"util"}, File{"readme"}];
}
