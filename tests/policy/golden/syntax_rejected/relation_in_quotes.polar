resource Repo {
  relations = { "parent": Org };
}
