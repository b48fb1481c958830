actor User {}
actor Bot {}
resource Doc { roles = ["a", "b", "a"]; }
