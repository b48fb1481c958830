# Roles that are other roles; and the admins of an organisation are among its members.
actor User {}
resource Org { roles = ["member", "admin", "owner"]; "member" if "admin"; "admin" if "owner"; }
resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read"];
  relations = { org: Org };
  "reader" if "writer";
  "reader" if "member" on "org";
  "reader" if "admin" on "org";
  "read" if "reader";
}
