resource Repo {
  "read" if not "banned" and not ("a" on "parent" or global "b");
  "read" if resource = actor;
  "read" if resource != Repo{"secret"} and level < 3;
  "read" if actor matches User and has_group(actor, group) and group in [Team{"a"}, Team{"b"}];
  "read" if true or false;
}
