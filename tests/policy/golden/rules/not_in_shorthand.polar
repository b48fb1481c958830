actor User {}
resource Org { roles = ["banned"]; }
resource Repo {
  roles = ["member", "guest", "banned"];
  permissions = ["read"];
  relations = { org: Org };
  "member" if "guest" and not "banned";
  "read" if "member" and not is_locked(resource) and not "banned" on "org";
  "read" if "guest" and not (is_locked(resource) or "banned");
}
