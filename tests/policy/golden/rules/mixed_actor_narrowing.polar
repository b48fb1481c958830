# one operand names a user, the others any actor: only that branch is narrowed
actor User {}
actor Bot {}
resource Org { relations = { owner: User }; }
resource Repo {
  permissions = ["read"];
  roles = ["reader"];
  relations = { owner: User, keeper: Actor, anything: Resource, org: Org };
  "read" if ("owner" or "reader") and is_active(actor);
  "read" if "keeper";
  "read" if "anything";
  "read" if ("owner" on "org" or "owner") and "reader";
}
