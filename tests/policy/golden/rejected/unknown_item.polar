actor User {}
actor Bot {}
resource Doc { attributes = ["a"]; }
