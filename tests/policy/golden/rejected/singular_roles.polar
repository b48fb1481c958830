actor User {}
actor Bot {}
resource Doc { role = ["a"]; permission = ["b"]; relation = { c: User }; }
