resource Repo {
  "read" if "reader" on "parent" on "owner";
}
