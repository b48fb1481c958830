resource Repo {
  read if "reader";
}
