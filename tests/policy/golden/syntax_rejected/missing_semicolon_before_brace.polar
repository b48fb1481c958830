resource Repo {
  "a" if "b"
}
