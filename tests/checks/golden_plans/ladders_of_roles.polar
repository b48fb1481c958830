# Roles that are other roles, permissions of roles of relations, and an owner: much that differs in one name only.
actor User {}

resource Org {
  roles = ["guest", "member", "manager", "owner"];
  permissions = ["see", "join", "invite", "close"];
  "guest" if "member"; "member" if "manager"; "manager" if "owner";
  "see" if "guest"; "join" if "guest"; "invite" if "manager"; "close" if "owner";
}
resource Repo {
  roles = ["reader", "triager", "writer", "admin"];
  permissions = ["pull", "label", "push", "delete"];
  relations = { org: Org, fork: Repo };
  "reader" if "triager"; "triager" if "writer"; "writer" if "admin";
  "reader" if "guest" on "org"; "triager" if "member" on "org"; "writer" if "manager" on "org"; "admin" if "owner" on "org";
  "reader" if "reader" on "fork";
  "pull" if "reader"; "label" if "triager"; "push" if "writer"; "delete" if "admin";
}
resource Issue {
  roles = ["assignee"];
  permissions = ["read", "comment", "close"];
  relations = { repo: Repo, author: User };
  "read" if "pull" on "repo"; "comment" if "read"; "close" if "label" on "repo"; "close" if "author"; "close" if "assignee";
}
