resource Repo {
  "read" if "reader" on role;
}
