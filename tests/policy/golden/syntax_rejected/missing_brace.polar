resource Repo {
  "a" if "b";

global { roles = ["c"]; }
