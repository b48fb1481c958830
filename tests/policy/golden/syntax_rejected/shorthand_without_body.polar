resource Repo {
  "read";
}
