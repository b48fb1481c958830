# Documents in folders, shared with users, with groups, and by link.
#
# Shows folders (roles are inherited through a tree of any depth), sharing, groups, overriding of inherited roles, and
# shares that expire.

actor User {}

# Groups are actors: what is shared with a group is shared with its members. See the rules about groups below.
actor Group {}

resource Workspace {
  roles = ["guest", "member", "admin"];
  permissions = ["enter", "create_folder", "manage_people", "see_activity"];

  "guest" if "member";
  "member" if "admin";

  "enter" if "guest";
  "create_folder" if "member";
  "manage_people" if "admin";
  "see_activity" if "admin";
}

resource Folder {
  roles = ["viewer", "commenter", "editor", "owner"];
  permissions = ["view", "add", "rename", "share", "delete"];
  relations = { workspace: Workspace, parent: Folder };

  "viewer" if "commenter";
  "commenter" if "editor";
  "editor" if "owner";

  # `role` stands for each of the roles above: an editor of a folder is an editor of the folders within it. A restricted
  # folder inherits no roles.
  role if role on "parent" and not is_restricted(resource);

  # Only top-level folders have this relation; its roles are inherited like any other.
  "owner" if "admin" on "workspace";

  "view" if "viewer";
  "add" if "editor";
  "rename" if "editor";
  "share" if "owner";
  "delete" if "owner";
}

resource Document {
  roles = ["viewer", "commenter", "editor", "owner"];
  permissions = ["view", "download", "comment", "edit", "share", "delete"];
  relations = { folder: Folder, author: User };

  "viewer" if "commenter";
  "commenter" if "editor";
  "editor" if "owner";

  role if role on "folder";
  "owner" if "author";

  "view" if "viewer";
  "download" if "viewer" and not is_view_only(resource);
  "comment" if "commenter";

  # No one can edit a locked document, not even its owner.
  "edit" if "editor" and not is_locked(resource);
  "share" if "owner";
  "delete" if "owner" and not is_locked(resource);
}

# ---- groups -------------------------------------------------------------------------------------------------------

has_role(member: Actor, role: String, folder: Folder) if
  group matches Group and
  in_group(member, group) and
  has_role(group, role, folder);

has_role(member: Actor, role: String, document: Document) if
  group matches Group and
  in_group(member, group) and
  has_role(group, role, document);

# Nested groups.
in_group(member: Actor, group: Group) if
  between matches Group and
  in_group(member, between) and
  in_group(between, group);

# ---- links --------------------------------------------------------------------------------------------------------

# Everyone who has the link has the role. The service cannot know who has it: `_` matches everyone.
has_role(_: User, role: String, document: Document) if shared_by_link(document, role);

# Shared with everyone in a workspace.
has_role(user: User, role: String, document: Document) if
  workspace matches Workspace and
  shared_in(document, role, workspace) and
  has_permission(user, "enter", workspace);

# ---- shares that expire ---------------------------------------------------------------------------------------------

# A share that expires needs no rule: its fact has an `expires_at`, after which the fact no longer counts.
# Access that starts later needs a rule. The number is a Unix time.
has_role(user: User, "viewer", document: Document) if
  time matches Integer and
  opens_at(document, user, time) and
  time <= @current_unix_time;

# ---- tests --------------------------------------------------------------------------------------------------------

test fixture tree {
  has_role(User{"wanda"}, "admin", Workspace{"studio"});
  has_role(User{"mo"}, "member", Workspace{"studio"});
  has_role(User{"gus"}, "guest", Workspace{"studio"});
  has_relation(Folder{"clients"}, "workspace", Workspace{"studio"});
  has_relation(Folder{"acme"}, "parent", Folder{"clients"});
  has_relation(Folder{"drafts"}, "parent", Folder{"acme"});
  has_relation(Folder{"money"}, "parent", Folder{"acme"});
  is_restricted(Folder{"money"});
  has_relation(Document{"logo"}, "folder", Folder{"drafts"});
  has_relation(Document{"offer"}, "folder", Folder{"money"});
  has_relation(Document{"logo"}, "author", User{"ada"});
}

test "roles in a workspace" {
  setup { fixture tree; }
  assert allow(User{"wanda"}, action: String, Workspace{"studio"})
    iff action in ["enter", "create_folder", "manage_people", "see_activity"];
  assert allow(User{"mo"}, action: String, Workspace{"studio"}) iff action in ["enter", "create_folder"];
  assert allow(User{"gus"}, action: String, Workspace{"studio"}) iff action in ["enter"];
}

test "roles are inherited through the tree" {
  setup {
    fixture tree;
    has_role(User{"eve"}, "editor", Folder{"acme"});
    has_role(User{"vic"}, "viewer", Folder{"clients"});
    has_role(User{"con"}, "commenter", Document{"logo"});
  }
  assert allow(User{"eve"}, action: String, Folder{"drafts"}) iff action in ["view", "add", "rename"];
  assert allow(User{"eve"}, action: String, Document{"logo"}) iff action in ["view", "download", "comment", "edit"];
  assert allow(User{"vic"}, action: String, Document{"logo"}) iff action in ["view", "download"];
  assert allow(User{"con"}, action: String, Document{"logo"}) iff action in ["view", "download", "comment"];
  assert_not allow(User{"con"}, "view", Folder{"drafts"});
}

test "a restricted folder inherits no roles" {
  setup {
    fixture tree;
    has_role(User{"eve"}, "editor", Folder{"acme"});
    has_role(User{"fin"}, "owner", Folder{"money"});
  }
  assert allow(user: User, "view", Document{"offer"}) iff user in [User{"fin"}];
  assert allow(User{"wanda"}, "delete", Folder{"drafts"});
  assert_not allow(User{"wanda"}, "view", Folder{"money"});
  assert allow(User{"fin"}, action: String, Folder{"money"}) iff action in ["view", "add", "rename", "share", "delete"];
}

test "authors own their documents in any folder" {
  setup { fixture tree; }
  assert allow(User{"ada"}, action: String, Document{"logo"})
    iff action in ["view", "download", "comment", "edit", "share", "delete"];
  assert_not allow(User{"ada"}, "view", Folder{"drafts"});
}

test "locked and view-only documents" {
  setup {
    fixture tree;
    is_locked(Document{"logo"});
    is_view_only(Document{"logo"});
  }
  assert allow(User{"ada"}, action: String, Document{"logo"}) iff action in ["view", "comment", "share"];
}

test "groups and nested groups" {
  setup {
    fixture tree;
    in_group(User{"ida"}, Group{"interns"});
    in_group(Group{"interns"}, Group{"design"});
    has_role(Group{"design"}, "editor", Folder{"acme"});
    has_role(Group{"interns"}, "viewer", Document{"offer"});
  }
  assert allow(User{"ida"}, "edit", document: Document) iff document in [Document{"logo"}];
  assert allow(User{"ida"}, "view", document: Document) iff document in [Document{"logo"}, Document{"offer"}];
  assert_not allow(User{"ida"}, "share", Folder{"acme"});
}

test "sharing by link and with a whole workspace" {
  setup {
    fixture tree;
    shared_by_link(Document{"flyer"}, "viewer");
    shared_in(Document{"menu"}, "commenter", Workspace{"studio"});
  }
  assert allow(User{"anybody"}, action: String, Document{"flyer"}) iff action in ["view", "download"];
  assert allow(user: User, "comment", Document{"menu"}) iff user in [User{"wanda"}, User{"mo"}, User{"gus"}];
}

test "access that starts later" {
  setup {
    opens_at(Document{"report"}, User{"pat"}, 1000000000);
    opens_at(Document{"sequel"}, User{"pat"}, 4000000000);
  }
  assert allow(User{"pat"}, "view", document: Document) iff document in [Document{"report"}];
}
