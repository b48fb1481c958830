actor User {}
resource Org { roles = ["admin"]; }
resource Repo {
  roles = ["owner"];
  permissions = ["read"];
  relations = { org: Org };
  permission if "owner";
  permission if "admin" on "org";
}
