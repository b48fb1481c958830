actor User {}
actor Bot {}
actor User { roles = ["a"]; }
