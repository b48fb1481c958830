resource Repo {
  roles = [admin, 3];
}
