actor User {}
actor Bot {}
resource Repo { roles = ["a", "b", "c"]; "a" if "b" and not "c"; "c" if "a"; }
