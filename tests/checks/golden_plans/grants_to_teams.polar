# Teams in teams, with roles on repositories. Whether a team with a role is one of the user's is looked up in a set.
actor User {}
actor Team {}

resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read"];
  "read" if "reader"; "reader" if "writer";
}

has_group(x: User, outer: Team) if inner matches Team and has_group(x, inner) and has_group(inner, outer);
has_group(x: Team, outer: Team) if inner matches Team and has_group(x, inner) and has_group(inner, outer);
has_role(user: User, role: String, repo: Repo) if
  team matches Team and has_group(user, team) and has_role(team, role, repo);
