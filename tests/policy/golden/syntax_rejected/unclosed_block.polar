actor User {}
resource Repo {
  roles = ["a"];
