actor User {}
actor Bot {}
resource Doc { roles = ["a"]; roles = ["b"]; }
