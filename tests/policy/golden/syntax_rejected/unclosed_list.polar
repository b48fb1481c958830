resource Repo {
  roles = ["a", "b"
