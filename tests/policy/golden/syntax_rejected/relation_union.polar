resource Repo {
  relations = { owner: User | Team, parent: [Org, Repo] };
}
