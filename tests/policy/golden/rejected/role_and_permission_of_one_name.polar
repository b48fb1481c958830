actor User {}
actor Bot {}
resource Doc { roles = ["read"]; permissions = ["read"]; }
