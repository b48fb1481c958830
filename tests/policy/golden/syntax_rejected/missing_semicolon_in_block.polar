resource Repo {
  roles = ["a", "b"]
  permissions = ["c"];
}
