resource Repo {
  "read" if resource == actor;
}
