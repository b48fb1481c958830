resource Repo {
  "read" if resource.is_public = true;
}
