resource Repo {
  has_role(user: User, "a", repo: Repo) if owns(user, repo);
}
