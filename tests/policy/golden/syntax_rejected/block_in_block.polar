resource Org {
  resource Repo {}
}
