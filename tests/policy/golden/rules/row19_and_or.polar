actor User {}
actor Bot {}
resource Org { roles = ["member"]; }
resource Repo {
  roles = ["reader", "banned"];
  permissions = ["read", "write"];
  relations = { org: Org, owner: User, other: Org };
  "read" if "reader" and ("member" on "org" or "member" on "other");
  "write" if "owner" or "reader" and is_open(resource);
  "reader" if "owner" and "member" on "org" and "member" on "org";
}
