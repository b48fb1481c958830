# A drive that people share: documents lie in folders, and folders in folders.

# Whoever signs in.
actor user {}

# People who get access together.
# A group may be a member of another.
resource group {
  roles = ["manager", "member"];
  permissions = ["belong"];
  relations = { member_group: group };

  "member" if "member" on "member_group";
  "belong" if "member";
  "belong" if "manager";
}

resource folder {
  roles = ["owner", "editor", "viewer"];
  permissions = ["edit", "view"];
  relations = { parent: folder, editor_group: group, viewer_group: group };

  "editor" if "belong" on "editor_group";
  "viewer" if "belong" on "viewer_group";
  "edit" if "editor";
  "edit" if "owner";
  "edit" if "edit" on "parent";
  "view" if "viewer";
  "view" if "edit";
  "view" if "view" on "parent";
}

resource document {
  roles = ["owner", "editor", "viewer", "blocked"];
  permissions = ["delete", "edit", "comment", "view", "share"];
  relations = { folder: folder, editor_group: group, viewer_group: group };

  "editor" if "belong" on "editor_group";

  # `user:*` is "anyone with the link"
  "viewer" if "belong" on "viewer_group";
  "viewer" if is_public(resource, "viewer");
  "delete" if "owner";
  "edit" if ("editor" or "owner" or "edit" on "folder") and not "blocked";
  "comment" if "edit";
  "comment" if "viewer";
  "view" if ("viewer" or "owner" or "editor" or "view" on "folder") and not "blocked";

  # only those who may edit all around it
  "share" if "edit" and "edit" on "folder";
}

# Roles can be asked for as permissions can: /authorize answers for both.
allow(actor: Actor, action: String, resource: Resource) if has_permission(actor, action, resource);
allow(actor: Actor, role: String, resource: Resource) if has_role(actor, role, resource);

test fixture tuples {
  has_role(user{"mia"}, "manager", group{"design"});
  has_role(user{"dan"}, "member", group{"design"});
  has_relation(group{"all"}, "member_group", group{"design"});
  has_role(user{"ann"}, "member", group{"all"});
  has_relation(folder{"work"}, "parent", folder{"top"});
  has_role(user{"olga"}, "owner", folder{"top"});
  has_relation(folder{"top"}, "viewer_group", group{"all"});
  has_relation(folder{"work"}, "editor_group", group{"design"});
  has_relation(document{"plan"}, "folder", folder{"work"});
  has_role(user{"paul"}, "owner", document{"plan"});
  has_role(user{"vera"}, "viewer", document{"plan"});
  has_role(user{"dan"}, "blocked", document{"plan"});
  is_public(document{"news"}, "viewer");
}

test "shared_drive" {
  setup {
    fixture tuples;
  }
  assert allow(user{"ann"}, "view", document{"plan"});
  assert allow(user{"vera"}, "view", document{"plan"});
  assert allow(user{"mia"}, "edit", document{"plan"});
  assert allow(user{"olga"}, "edit", document{"plan"});
  assert allow(user{"mia"}, "share", document{"plan"});
  assert allow(user{"paul"}, "delete", document{"plan"});
  assert allow(user{"somebody"}, "view", document{"news"});
  assert allow(user{"somebody"}, "comment", document{"news"});
  assert allow(user{"dan"}, "edit", folder{"work"});
  assert_not allow(user{"dan"}, "view", document{"plan"});
  assert_not allow(user{"dan"}, "edit", document{"plan"});
  assert_not allow(user{"ann"}, "edit", document{"plan"});
  assert_not allow(user{"paul"}, "share", document{"plan"});
  assert_not allow(user{"somebody"}, "view", document{"plan"});
  assert_not allow(user{"ann"}, "edit", folder{"work"});
  assert_not allow(user{"anybody"}, "view", document{"plan"});
  assert allow(user{"mia"}, "view", document{"plan"});
  assert allow(user{"olga"}, "view", document{"plan"});
  assert allow(user{"paul"}, "view", document{"plan"});
}
