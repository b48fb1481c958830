resource Repo {
  relations = { on: Org };
}
